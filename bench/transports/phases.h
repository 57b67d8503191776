// SPDX-License-Identifier: Apache-2.0
// What every way of bench/transports is timed at, and how its figures are told: a line of JSON from
// each of the two ranks.
#ifndef PARALLAX_BENCH_TRANSPORTS_PHASES_H_
#define PARALLAX_BENCH_TRANSPORTS_PHASES_H_

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <vector>

namespace parallax::transports {

inline constexpr size_t kTripBytes = 64;
inline constexpr size_t kMessageBytes[] = {60 << 10, 16 << 20};

inline double seconds_now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline double cpu_seconds() {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

struct Figures {
  double trip_us = 0;
  double gb_per_s[2] = {};      // as the summing rank sees it
  double cpu_s_per_gb[2] = {};  // of this rank
};

// `Link` has trips(count): round trips of kTripBytes, begun by
// rank 1, so that rank 0 never hears more than it waits for; one_way(count, bytes): rank 1 sends
// messages, rank 0 adds the floats of each to one vector, and rank 1 knows when all were added;
// wrong(): whether a sum is not what `added` messages of ones make.
template <typename Link>
Figures take_figures(Link& link, uint64_t trips, uint64_t megabytes) {
  Figures figures;
  link.trips(trips / 10);
  double began = seconds_now();
  link.trips(trips);
  figures.trip_us = 1e6 * (seconds_now() - began) / static_cast<double>(trips);
  for (size_t i = 0; i < 2; ++i) {
    const size_t bytes = kMessageBytes[i];
    const uint64_t count = std::max<uint64_t>(megabytes * 1'000'000 / bytes, 1);
    link.one_way(std::max<uint64_t>(count / 10, 1), bytes);
    const double cpu = cpu_seconds();
    began = seconds_now();
    link.one_way(count, bytes);
    const double gb = 1e-9 * static_cast<double>(count * bytes);
    figures.gb_per_s[i] = gb / (seconds_now() - began);
    figures.cpu_s_per_gb[i] = (cpu_seconds() - cpu) / gb;
  }
  return figures;
}

inline void print_figures(const Figures& figures) {
  std::printf(
      "figures {\"trip_us\": %.3f, \"gb_per_s\": [%.4f, %.4f], "
      "\"cpu_s_per_gb\": [%.4f, %.4f]}\n",
      figures.trip_us, figures.gb_per_s[0], figures.gb_per_s[1], figures.cpu_s_per_gb[0],
      figures.cpu_s_per_gb[1]);
  std::fflush(stdout);
}

// Whether every one of the first `bytes` of a vector is the sum of so many ones; it is zero again.
inline bool takes_sum(std::vector<float>& into, size_t bytes, uint64_t count) {
  const auto end = into.begin() + static_cast<ptrdiff_t>(bytes / sizeof(float));
  const bool right = std::all_of(
      into.begin(), end, [count](float value) { return value == static_cast<float>(count); });
  std::fill(into.begin(), end, 0.0f);
  return right;
}

}  // namespace parallax::transports

#endif  // PARALLAX_BENCH_TRANSPORTS_PHASES_H_
