// SPDX-License-Identifier: Apache-2.0
// TensorFlow's way with dense variables, modelled over MPI's messages: a server on every host, in
// the process of its first rank, and every tensor whole on one server. Tensors go to the server
// that has the fewest bytes so far, as tf.contrib's GreedyLoadBalancingStrategy put them.
#ifndef PARALLAX_BENCH_PEERS_MPI_SERVERS_H_
#define PARALLAX_BENCH_PEERS_MPI_SERVERS_H_

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "dense.h"

namespace parallax::peers {

class MpiServers {
 public:
  explicit MpiServers(Tensors tensors);
  // Every rank's tensors are their sums when it returns.
  void run();

 private:
  enum class What : uint8_t { kGradientSent, kGradientCame, kSumSent, kSumCame };
  struct Transfer {
    What what;
    uint32_t tensor;
  };

  void place();
  void post(What what, uint32_t tensor, int peer, float* values);
  void ended(const Transfer& transfer);
  void add(uint32_t tensor);
  bool serves(uint32_t tensor) const { return server_[tensor] == rank_; }

  Tensors tensors_;
  int rank_ = 0, world_ = 0;
  std::vector<int> server_;               // of each tensor, a rank
  std::vector<std::vector<float>> came_;  // of served tensors: the other ranks' gradients
  std::vector<int> missing_;              // and how many have not come
  std::vector<MPI_Request> requests_;
  std::vector<Transfer> transfers_;  // of requests_
};

}  // namespace parallax::peers

#endif  // PARALLAX_BENCH_PEERS_MPI_SERVERS_H_
