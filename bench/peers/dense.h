// SPDX-License-Identifier: Apache-2.0
// AllReduces in bench/peers: of one tensor, or of the many of a step, which every rank gives. WORDS
// of a command are the bytes of each, with commas.
#ifndef PARALLAX_BENCH_PEERS_DENSE_H_
#define PARALLAX_BENCH_PEERS_DENSE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "contender.h"

namespace parallax::peers {

using Tensors = std::vector<std::span<float>>;

class Dense : public Contender {
 public:
  Dense(uint32_t rank, uint32_t world) : rank_(rank), world_(world) {}

  uint64_t check(const std::string& variant, const std::string& words) final;
  void refill() final;
  Took iterate() final { return allreduce(); }

 protected:
  // Where the tensors of a step lie, and then their sums, in the order of their `bytes`. Good until
  // the next call.
  virtual Tensors tensors(const std::string& variant, const std::vector<uint64_t>& bytes) = 0;
  // Reduces what tensors() gave last, in place.
  virtual Took allreduce() = 0;
  // False for what moves bytes alone: there is nothing to check.
  virtual bool sums() const { return true; }

  const uint32_t rank_, world_;

 private:
  Tensors given_;
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

}  // namespace parallax::peers

#endif  // PARALLAX_BENCH_PEERS_DENSE_H_
