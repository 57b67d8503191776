// SPDX-License-Identifier: Apache-2.0
// What every rank of every contender of bench/peers does: it reads commands, runs AllReduces as
// told, checks one, times the others, and says what they took. Only the AllReduce itself is the
// contender's own.
//
// Commands come by a FIFO of each rank's own, so that the ranks of whoever is not being measured
// block in read() and take no processor: `VARIANT BYTES ITERATIONS`, a line. The answer is a line:
// median and 99th percentile of the AllReduce and of the whole step in ns, and how many numbers of
// the checked one were wrong.
#ifndef PARALLAX_BENCH_PEERS_CONTENDER_H_
#define PARALLAX_BENCH_PEERS_CONTENDER_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace parallax::peers {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "peers: %s\n", what.c_str());
  std::exit(1);
}

inline int64_t now_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// What one iteration took.
struct Took {
  int64_t reduce_ns = 0;  // until the sum is where the caller wants it
  int64_t step_ns = 0;    // and until the next may begin; the same where there are no steps
};

class Contender {
 public:
  virtual ~Contender() = default;
  // Where the values of an AllReduce of so many bytes lie, and then its sum. The same for the same
  // variant and size, until the next call.
  virtual float* buffer(const std::string& variant, uint64_t bytes) = 0;
  // Of what buffer() gave last.
  virtual Took allreduce() = 0;
};

// Small whole numbers: every sum is exact, in any order.
inline float value_of(uint32_t rank, uint64_t at) {
  return static_cast<float>((at * 7 + rank * 3) % 11 + rank);
}

// The `share` of sorted times, 0.5 for the median.
int64_t quantile(const std::vector<int64_t>& sorted, double share);

// Serves commands until there are none. The FIFOs are `folder`/RANK.in and RANK.out.
void serve(Contender& contender, uint32_t rank, uint32_t world, const std::string& folder);

// Argument `at` of a program that bench/peers/run starts; ends it where there is none.
std::string argument(int count, char** all, int at);

}  // namespace parallax::peers

#endif  // PARALLAX_BENCH_PEERS_CONTENDER_H_
