// SPDX-License-Identifier: Apache-2.0
// A rank of MPI that serves commands: the main program of what runs over MPI.
#ifndef PARALLAX_BENCH_PEERS_MPI_RANK_H_
#define PARALLAX_BENCH_PEERS_MPI_RANK_H_

#include <mpi.h>

#include <cstdint>

#include "contender.h"

namespace parallax::peers {

// Of arguments FOLDER, where the commands come from (serve()). The contender is gone before MPI is.
template <typename MpiContender>
int serve_rank_of_mpi(int count, char** all) {
  MPI_Init(&count, &all);
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  {
    MpiContender mpi(static_cast<uint32_t>(rank), static_cast<uint32_t>(world));
    serve(mpi, static_cast<uint32_t>(rank), argument(count, all, 1));
  }
  MPI_Finalize();
  return 0;
}

}  // namespace parallax::peers

#endif  // PARALLAX_BENCH_PEERS_MPI_RANK_H_
