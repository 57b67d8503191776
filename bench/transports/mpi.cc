// SPDX-License-Identifier: Apache-2.0
// MPI in bench/transports: two ranks, sends and receives, and the same sums.
//
//   parallax_transports_mpi TRIPS MEGABYTES
#include <mpi.h>

#include <algorithm>
#include <cstdlib>

#include "phases.h"

namespace parallax::transports {
namespace {

constexpr uint64_t kWindow = 16;  // messages under way, as the library's transports have

void add(std::vector<float>& into, const float* from, size_t bytes) {
  for (size_t i = 0; i < bytes / sizeof(float); ++i) into[i] += from[i];
}

class Link {
 public:
  explicit Link(int rank)
      : rank_(rank),
        ones_(kMessageBytes[1] / sizeof(float), 1.0f),
        sums_(ones_.size()),
        came_(std::max(kWindow * kMessageBytes[0], 2 * kMessageBytes[1]) / sizeof(float)) {}

  void trips(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      if (rank_ == 1) send(kTripBytes);
      hear_one(kTripBytes);
      if (rank_ == 0) send(kTripBytes);
    }
    check(kTripBytes, count);
  }
  void one_way(uint64_t count, size_t bytes) {
    if (rank_ == 1) {
      send_many(count, bytes);
      hear_one(kTripBytes);
      return check(kTripBytes, 1);
    }
    hear_many(count, bytes);
    send(kTripBytes);
    check(bytes, count);
  }

 private:
  static uint64_t window(size_t bytes) { return bytes == kMessageBytes[1] ? 2 : kWindow; }
  void send(size_t bytes) {
    MPI_Send(ones_.data(), static_cast<int>(bytes), MPI_BYTE, 1 - rank_, 0, MPI_COMM_WORLD);
  }
  void hear_one(size_t bytes) {
    MPI_Recv(came_.data(), static_cast<int>(bytes), MPI_BYTE, 1 - rank_, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    add(sums_, came_.data(), bytes);
  }
  void send_many(uint64_t count, size_t bytes) {
    std::vector<MPI_Request> requests(window(bytes), MPI_REQUEST_NULL);
    for (uint64_t i = 0; i < count; ++i) {
      MPI_Request& request = requests[i % requests.size()];
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Isend(ones_.data(), static_cast<int>(bytes), MPI_BYTE, 1 - rank_, 0, MPI_COMM_WORLD,
                &request);
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }
  void hear_many(uint64_t count, size_t bytes) {
    std::vector<MPI_Request> requests(window(bytes), MPI_REQUEST_NULL);
    const auto begin = [&](uint64_t i) {
      if (i >= count) return;
      MPI_Irecv(place(i, bytes), static_cast<int>(bytes), MPI_BYTE, 1 - rank_, 0, MPI_COMM_WORLD,
                &requests[i % requests.size()]);
    };
    for (uint64_t i = 0; i < requests.size(); ++i) begin(i);
    for (uint64_t i = 0; i < count; ++i) {
      MPI_Wait(&requests[i % requests.size()], MPI_STATUS_IGNORE);
      add(sums_, place(i, bytes), bytes);
      begin(i + requests.size());
    }
  }
  float* place(uint64_t i, size_t bytes) {
    return came_.data() + i % window(bytes) * (bytes / sizeof(float));
  }
  void check(size_t bytes, uint64_t count) {
    if (takes_sum(sums_, bytes, count)) return;
    std::fprintf(stderr, "parallax_transports_mpi: a sum is wrong\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  const int rank_;
  std::vector<float> ones_, sums_, came_;
};

}  // namespace
}  // namespace parallax::transports

int main(int count, char** all) {
  using namespace parallax::transports;
  MPI_Init(&count, &all);
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (count != 3 || world != 2) {
    std::fprintf(stderr, "parallax_transports_mpi: two ranks, and TRIPS MEGABYTES\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  Link link(rank);
  Figures figures =
      take_figures(link, std::strtoull(all[1], nullptr, 10), std::strtoull(all[2], nullptr, 10));
  double both[2] = {};
  MPI_Reduce(figures.cpu_s_per_gb, both, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  std::copy(both, both + 2, figures.cpu_s_per_gb);
  if (rank == 0) print_figures(figures);
  MPI_Finalize();
  return 0;
}
