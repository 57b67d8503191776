// SPDX-License-Identifier: Apache-2.0
// What a test holds in the doubles until it lets go of it: should what it waits for not come, the
// test ends all the same, and is told so.
#ifndef PARALLAX_TESTS_CUDA_HELD_H_
#define PARALLAX_TESTS_CUDA_HELD_H_

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "cuda/double/control.h"

namespace cuda_double_test {

inline constexpr std::chrono::seconds kLong(10);

// Whether it comes true in its time.
inline bool comes(const std::function<bool()>& what) {
  const auto until = std::chrono::steady_clock::now() + kLong;
  while (!what()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}

// Until this or release() ends it, any thread.
class Held {
 public:
  Held(std::string what, std::function<void()> let_go)
      : what_(std::move(what)), let_go_(std::move(let_go)) {
    watch_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      vain_ = !changed_.wait_for(lock, kLong, [this] { return released_; });
      if (vain_) let_go_();
    });
  }
  ~Held() {
    release();
    watch_.join();
    EXPECT_FALSE(vain_) << "it waited for " << what_;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  void release() {
    const std::lock_guard lock(mutex_);
    if (!released_ && !vain_) let_go_();
    released_ = true;
    changed_.notify_all();
  }
  bool vain() {
    const std::lock_guard lock(mutex_);
    return vain_;
  }

 private:
  const std::string what_;
  const std::function<void()> let_go_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false, vain_ = false;
  std::thread watch_;
};

// Calls of a function, which do not go on.
class HeldCall {
 public:
  explicit HeldCall(const char* function)
      : function_(function),
        before_(cuda_double_calls(function)),
        held_(function, [] { cuda_double_hold_call(nullptr); }) {
    cuda_double_hold_call(function);
  }
  void release() { held_.release(); }
  // So many of them have been called.
  void await(uint64_t calls) const {
    EXPECT_TRUE(comes([&] { return cuda_double_calls(function_) - before_ >= calls; }))
        << function_;
  }

 private:
  const char* const function_;
  const uint64_t before_;
  Held held_;
};

}  // namespace cuda_double_test

#endif  // PARALLAX_TESTS_CUDA_HELD_H_
