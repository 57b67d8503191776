// SPDX-License-Identifier: Apache-2.0
// AllReduces in bench/peers: of one tensor, or of the many of a step, which every rank gives. WORDS
// of a command: DTYPE/REDUCTION/BYTES,BYTES..., the bytes of each tensor: f32/sum/4096,64.
#ifndef PARALLAX_BENCH_PEERS_DENSE_H_
#define PARALLAX_BENCH_PEERS_DENSE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "contender.h"

namespace parallax::peers {

struct DenseStep {
  uint32_t dtype = 0;  // parallax_dtype_t: F32, F16 or BF16
  bool mean = false;   // over all ranks, else the sum
  std::vector<uint64_t> bytes;

  static DenseStep read(const std::string& words);
  auto operator<=>(const DenseStep&) const = default;
};

class Dense : public Contender {
 public:
  using Memory = std::vector<std::span<std::byte>>;

  Dense(uint32_t rank, uint32_t world) : rank_(rank), world_(world) {}

  uint64_t check(const std::string& variant, const std::string& words) final;
  void refill() final;

 protected:
  // Where the tensors of a step lie, and then their sums, in their order. Good until the next call;
  // iterate() reduces them in place.
  virtual Memory place(const std::string& variant, const DenseStep& step) = 0;
  // False for what moves bytes alone: there is nothing to check.
  virtual bool sums() const { return true; }

  const uint32_t rank_, world_;

 private:
  Memory given_;
};

using Tensors = std::vector<std::span<float>>;

// Of contenders that know floats alone.
class FloatDense : public Dense {
 public:
  using Dense::Dense;
  Took iterate() final;

 protected:
  // As place().
  virtual Tensors tensors(const std::string& variant, const std::vector<uint64_t>& bytes) = 0;
  // Sums what tensors() gave last, in place.
  virtual Took allreduce() = 0;
  // True where allreduce() gives factor() times the sum; else that is a pass of its own.
  virtual bool multiplies() const { return false; }
  float factor() const { return factor_; }

 private:
  Memory place(const std::string& variant, const DenseStep& step) final;

  Tensors floats_;
  float factor_ = 1;
};

// Side by side in one buffer: with a gap where a tensor is not whole cache lines, so that each has
// its own, or without.
enum class Gaps : uint8_t { kNone, kToLines };
uint64_t slab_elements(const std::vector<uint64_t>& bytes, Gaps gaps);
Tensors on_slab(float* slab, const std::vector<uint64_t>& bytes, Gaps gaps);
Dense::Memory memory_of(const Tensors& tensors);

// Tensors in one buffer that this process keeps, on lines of their own.
class Slab {
 public:
  Tensors place(const std::vector<uint64_t>& bytes);

 private:
  std::vector<float> values_;
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
