// SPDX-License-Identifier: Apache-2.0
// SharedArray: an array that does not change any more and that copies share, so that many may keep
// one of the size of the world. A value otherwise; any thread.
#ifndef PARALLAX_BASE_SHARED_ARRAY_H_
#define PARALLAX_BASE_SHARED_ARRAY_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace parallax {

template <typename T>
class SharedArray {
 public:
  SharedArray() : values_(std::make_shared<const std::vector<T>>()) {}
  // NOLINTNEXTLINE(google-explicit-constructor): it is that vector, from now on unchanged
  SharedArray(std::vector<T> values)
      : values_(std::make_shared<const std::vector<T>>(std::move(values))) {}

  // NOLINTNEXTLINE(google-explicit-constructor)
  operator const std::vector<T>&() const { return *values_; }
  const T& operator[](size_t i) const { return (*values_)[i]; }
  size_t size() const { return values_->size(); }
  bool empty() const { return values_->empty(); }
  auto begin() const { return values_->begin(); }
  auto end() const { return values_->end(); }

  bool operator==(const SharedArray& other) const {
    return values_ == other.values_ || *values_ == *other.values_;
  }

 private:
  std::shared_ptr<const std::vector<T>> values_;  // never null
};

}  // namespace parallax

#endif  // PARALLAX_BASE_SHARED_ARRAY_H_
