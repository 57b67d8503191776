// SPDX-License-Identifier: Apache-2.0
// Fifo: a ring buffer of values whose room is reserved ahead, so that push never allocates. Whoever
// owns it reserves for the bound that credits give (a peer adds kSendsInFlightMax). Not
// thread-safe: the owner locks. Nothing blocks.
#ifndef PARALLAX_TRANSPORT_INPROC_FIFO_H_
#define PARALLAX_TRANSPORT_INPROC_FIFO_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"

namespace parallax {

template <typename T>
class Fifo {
 public:
  // Makes room for `count` values in all.
  void reserve(size_t count) {
    if (count <= ring_.size()) return;
    std::vector<T> larger(count);
    for (size_t i = 0; i < count_; ++i) larger[i] = ring_[(first_ + i) % ring_.size()];
    ring_ = std::move(larger);
    first_ = 0;
  }

  void push(const T& value) {
    PARALLAX_CHECK(count_ < ring_.size());
    ring_[(first_ + count_) % ring_.size()] = value;
    ++count_;
  }

  T pop() {
    PARALLAX_CHECK(count_ > 0);
    T value = ring_[first_];
    first_ = (first_ + 1) % ring_.size();
    --count_;
    return value;
  }

  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  std::vector<T> ring_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_INPROC_FIFO_H_
