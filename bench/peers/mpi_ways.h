// SPDX-License-Identifier: Apache-2.0
// Ways to make a sparse step over MPI in bench/peers, each by hand and as well as it can be done.
#ifndef PARALLAX_BENCH_PEERS_MPI_WAYS_H_
#define PARALLAX_BENCH_PEERS_MPI_WAYS_H_

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rows.h"

namespace parallax::peers {

inline void expect_mpi(int status, const char* call) {
  if (status != MPI_SUCCESS) fail(std::string(call) + " failed");
}

// What one way keeps between steps. Buffers for the wire are shared by all: one is used at a time.
struct WireBuffers {
  std::vector<float> sent, came;
  std::vector<int32_t> ids_sent, ids_came;
};

class MpiWay {
 public:
  virtual ~MpiWay() = default;
  virtual Took run(const Buffers& buffers, const int64_t* ids) = 0;
};

// Horovod's way, `gather`: every rank has all tables, and gets every rank's ids and gradients, as
// they are, by MPI_Allgatherv. `gather-merged`: summed by id first, once on each rank.
std::unique_ptr<MpiWay> gather_way(const SparseStep& step, const TableParts& tables, bool merges,
                                   WireBuffers& wire);
// ZEN's way, `balanced`: every rank has all tables; rows, summed by id, go to the owners of their
// ids by MPI_Alltoallv, id % N's, and the owners' sums to all by MPI_Allgatherv.
std::unique_ptr<MpiWay> balanced_way(const SparseStep& step, const TableParts& tables,
                                     WireBuffers& wire);
// `owners`: row `id` is owner id % N's; ids and rows go there, merged, and rows come from there, by
// MPI_Alltoallv.
std::unique_ptr<MpiWay> owners_way(const SparseStep& step, WireBuffers& wire);
// TensorFlow's way, `ranges`: a server in each rank has a range of each table's rows; ids and
// gradients go there as they are, a message for each table and rank.
std::unique_ptr<MpiWay> ranges_way(const SparseStep& step, WireBuffers& wire);

template <typename T>
void make_room(std::vector<T>& buffer, uint64_t count) {
  if (buffer.size() < count) buffer.resize(count);
}

}  // namespace parallax::peers

#endif  // PARALLAX_BENCH_PEERS_MPI_WAYS_H_
