// SPDX-License-Identifier: Apache-2.0
// Meanwhile: what takes the driver or NCCL long, done on a thread of its own for an owner who does
// not wait: he asks, and asks again once he was woken. One piece of work at a time; its outcome is
// told once, to who next asks for that work.
//
// Any thread may ask. The end waits for what is being done.
#ifndef PARALLAX_CUDA_MEANWHILE_H_
#define PARALLAX_CUDA_MEANWHILE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"

namespace parallax {

class Meanwhile {
 public:
  // Called by the thread once something is over; outlives this.
  explicit Meanwhile(const std::function<void()>& wake) : wake_(wake) {}
  ~Meanwhile() { finish(); }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

  // Work by its number. *over is false where it, or something else, is being done.
  Status ask(uint64_t number, const std::function<Status()>& work, bool* over)
      PARALLAX_EXCLUDES(mutex_) {
    *over = false;
    {
      const MutexLock lock(mutex_);
      if (const auto told = outcomes_.find(number); told != outcomes_.end()) {
        const Status outcome = std::move(told->second);
        outcomes_.erase(told);
        *over = true;
        return outcome;
      }
      if (working_) return {};
      if (thread_.joinable()) thread_.join();  // it has done its work, and is about to end
      try {
        thread_ = std::thread([this, number, work] { run(number, work); });
        working_ = true;
        return {};
      } catch (const std::system_error&) {
        // No thread: it is done here.
      }
    }
    *over = true;
    return work();
  }

  // Something is being done.
  bool working() const PARALLAX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return working_;
  }

  void finish() PARALLAX_EXCLUDES(mutex_) {
    std::thread thread;
    {
      const MutexLock lock(mutex_);
      thread = std::move(thread_);
    }
    if (thread.joinable()) thread.join();
  }

 private:
  void run(uint64_t number, const std::function<Status()>& work) PARALLAX_EXCLUDES(mutex_) {
    Status outcome = work();
    {
      const MutexLock lock(mutex_);
      outcomes_[number] = std::move(outcome);
      working_ = false;
    }
    if (wake_) wake_();
  }

  const std::function<void()>& wake_;
  mutable Mutex mutex_;
  std::map<uint64_t, Status> outcomes_ PARALLAX_GUARDED_BY(mutex_);
  bool working_ PARALLAX_GUARDED_BY(mutex_) = false;
  std::thread thread_ PARALLAX_GUARDED_BY(mutex_);
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_MEANWHILE_H_
