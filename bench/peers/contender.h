// SPDX-License-Identifier: Apache-2.0
// What every rank of every contender of bench/peers does: it reads commands, runs AllReduces as
// told, checks one, times the others, and says what they took. Only the AllReduce itself is the
// contender's own.
//
// Commands come by a FIFO of each rank's own, so that the ranks of whoever is not being measured
// block in read() and take no processor: `VARIANT TENSORS ITERATIONS`, a line; TENSORS are the
// bytes of each that a step reduces, with commas. The answer is a line: median and 99th percentile
// of the AllReduce and of the whole step in ns, and how many numbers of the checked one were wrong.
#ifndef PARALLAX_BENCH_PEERS_CONTENDER_H_
#define PARALLAX_BENCH_PEERS_CONTENDER_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>
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

using Tensors = std::vector<std::span<float>>;

class Contender {
 public:
  virtual ~Contender() = default;
  // Where the tensors of a step lie, and then their sums, in the order of their `bytes`. Good until
  // the next call.
  virtual Tensors tensors(const std::string& variant, const std::vector<uint64_t>& bytes) = 0;
  // Reduces what tensors() gave last, in place.
  virtual Took allreduce() = 0;
  // False for what moves bytes alone: there is nothing to check.
  virtual bool sums() const { return true; }
};

// Tensors side by side in one buffer, each on cache lines of its own: what they take, and where
// each begins.
uint64_t slab_elements(const std::vector<uint64_t>& bytes);
Tensors on_slab(float* slab, const std::vector<uint64_t>& bytes);

// Tensors in one buffer that this process keeps, and the numbers in it.
class Slab {
 public:
  Tensors place(const std::vector<uint64_t>& bytes);
  float* data() { return values_.data(); }
  uint64_t used() const { return used_; }

 private:
  std::vector<float> values_;
  uint64_t used_ = 0;
};

// How peers fuse many tensors: copied side by side into a buffer of at most so many bytes
// (Horovod's default), reduced at once, copied back.
inline constexpr uint64_t kFusionBytes = 64 << 20;

class Fusion {
 public:
  // `reduce(float* values, uint64_t count)` sums one buffer over all ranks.
  template <typename Reduce>
  void run(const Tensors& tensors, const Reduce& reduce) {
    for (size_t first = 0; first < tensors.size();) {
      const size_t end = pack(tensors, first);
      reduce(buffer_.data(), used_);
      unpack(tensors, first, end);
      first = end;
    }
  }

 private:
  size_t pack(const Tensors& tensors, size_t first);
  void unpack(const Tensors& tensors, size_t first, size_t end) const;

  std::vector<float> buffer_;
  uint64_t used_ = 0;
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
