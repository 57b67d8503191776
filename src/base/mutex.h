// SPDX-License-Identifier: Apache-2.0
// The locks of src: Mutex, MutexLock, which holds one for a scope, and CondVar. They are the
// standard library's with Clang's thread safety annotations, which libstdc++'s own do not carry:
// the analysis would see neither who locks a std::mutex nor who has it. They add no state but
// MutexLock's bool, allocate nothing and throw nothing.
//
// Any thread. lock() blocks until the mutex is free, the waits of CondVar without it.
#ifndef PARALLAX_BASE_MUTEX_H_
#define PARALLAX_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/thread_annotations.h"

namespace parallax {

class PARALLAX_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() PARALLAX_ACQUIRE() { mutex_.lock(); }
  void unlock() PARALLAX_RELEASE() { mutex_.unlock(); }

  // Waited on under one mutex, which a wait gives up while it sleeps and has again when it returns.
  // A wait may also return for no reason: it stands in a loop over what is waited for.
  class CondVar {
   public:
    CondVar() = default;
    CondVar(const CondVar&) = delete;
    CondVar& operator=(const CondVar&) = delete;

    void wait(Mutex& mutex) PARALLAX_REQUIRES(mutex) {
      std::unique_lock lock(mutex.mutex_, std::adopt_lock);
      changed_.wait(lock);
      lock.release();
    }
    // False once `until` has passed.
    bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point until)
        PARALLAX_REQUIRES(mutex) {
      std::unique_lock lock(mutex.mutex_, std::adopt_lock);
      const std::cv_status status = changed_.wait_until(lock, until);
      lock.release();
      return status == std::cv_status::no_timeout;
    }
    bool wait_for(Mutex& mutex, std::chrono::nanoseconds time) PARALLAX_REQUIRES(mutex) {
      return wait_until(mutex, std::chrono::steady_clock::now() + time);
    }
    void notify_one() { changed_.notify_one(); }
    void notify_all() { changed_.notify_all(); }

   private:
    std::condition_variable changed_;
  };

 private:
  std::mutex mutex_;
};

using CondVar = Mutex::CondVar;

// Holds `mutex` from its construction to its end, but for what lies between unlock() and lock().
class PARALLAX_SCOPED_CAPABILITY MutexLock {
 public:
  [[nodiscard]] explicit MutexLock(Mutex& mutex) PARALLAX_ACQUIRE(mutex) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() PARALLAX_RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() PARALLAX_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  void lock() PARALLAX_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_MUTEX_H_
