// SPDX-License-Identifier: Apache-2.0
// MPI in bench/peers, in place, of whatever MPI this was compiled with. Which transport it takes
// and whether it yields is said to mpirun.
//
// Variants: `default`, MPI_Allreduce of each tensor in turn; `fused`, of tensors copied side by
// side, as Horovod does; `servers`, TensorFlow's parameter servers: one on each host, every tensor
// whole on one of them, which adds up what the ranks send it and sends each the sum, a message for
// every tensor and rank.
#include <mpi.h>

#include <algorithm>
#include <memory>

#include "dense.h"
#include "mpi_rank.h"
#include "mpi_servers.h"

namespace parallax::peers {
namespace {

class Mpi final : public FloatDense {
 public:
  using FloatDense::FloatDense;
  void settle() override { MPI_Barrier(MPI_COMM_WORLD); }

 protected:
  Tensors tensors(const std::string& variant, const std::vector<uint64_t>& bytes) override {
    variant_ = variant;
    tensors_ = slab_.place(bytes);
    servers_.reset();
    if (variant == "servers") servers_ = std::make_unique<MpiServers>(tensors_);
    return tensors_;
  }

  Took allreduce() override {
    const int64_t start_ns = now_ns();
    if (variant_ == "servers") {
      servers_->run();
    } else if (variant_ == "fused") {
      fusion_.run(tensors_, sum);
    } else {
      for (const auto& tensor : tensors_) sum(tensor.data(), tensor.size());
    }
    const int64_t took_ns = now_ns() - start_ns;
    return {took_ns, took_ns};
  }

 private:
  static void sum(float* values, uint64_t count) {
    if (MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD) != MPI_SUCCESS) {
      fail("MPI_Allreduce failed");
    }
  }

  std::string variant_;
  Slab slab_;
  Tensors tensors_;
  Fusion fusion_;
  std::unique_ptr<MpiServers> servers_;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER
int main(int count, char** all) {
  using namespace parallax::peers;
  return serve_rank_of_mpi<Mpi>(count, all);
}
