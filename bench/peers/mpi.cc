// SPDX-License-Identifier: Apache-2.0
// MPI_Allreduce in bench/peers, in place, of whatever MPI this was compiled with. Which transport
// it takes and whether it yields is said to mpirun.
#include <mpi.h>

#include "contender.h"

namespace parallax::peers {
namespace {

class Mpi final : public Contender {
 public:
  float* buffer(const std::string& /*variant*/, uint64_t bytes) override {
    if (values_.size() < bytes / sizeof(float)) values_.resize(bytes / sizeof(float));
    count_ = static_cast<int>(bytes / sizeof(float));
    return values_.data();
  }

  Took allreduce() override {
    const int64_t start_ns = now_ns();
    if (MPI_Allreduce(MPI_IN_PLACE, values_.data(), count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) !=
        MPI_SUCCESS) {
      fail("MPI_Allreduce failed");
    }
    const int64_t took_ns = now_ns() - start_ns;
    return {took_ns, took_ns};
  }

 private:
  std::vector<float> values_;
  int count_ = 0;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER
int main(int count, char** all) {
  using namespace parallax::peers;
  MPI_Init(&count, &all);
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  {
    Mpi mpi;
    serve(mpi, static_cast<uint32_t>(rank), static_cast<uint32_t>(world), argument(count, all, 1));
  }
  MPI_Finalize();
  return 0;
}
