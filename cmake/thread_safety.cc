// SPDX-License-Identifier: Apache-2.0
// What cmake/thread_safety.cmake compiles to see that locks are checked: CASE 0 keeps every promise
// that it makes, each of the others breaks one.
#include "base/mutex.h"

namespace parallax {

class Account {
 public:
  void add(int sum) {
    const MutexLock lock(mutex_);
    balance_ += sum;
    *total_ += sum;
    note();
    const MutexLock after(later_);
  }

#if PARALLAX_CASE == 1  // reads what is guarded
  int balance() const { return balance_; }
#elif PARALLAX_CASE == 2  // reads what a guarded pointer points to
  int total() const { return *total_; }
#elif PARALLAX_CASE == 3  // calls what expects the lock
  void note_now() { note(); }
#elif PARALLAX_CASE == 4  // goes on where the lock was given up
  void add_late(int sum) {
    MutexLock lock(mutex_);
    lock.unlock();
    balance_ += sum;
  }
#elif PARALLAX_CASE == 5  // waits without the lock
  void sleep() { changed_.wait(mutex_); }
#elif PARALLAX_CASE == 6  // takes two locks against their order
  void turn() {
    const MutexLock after(later_);
    const MutexLock lock(mutex_);
  }
#endif

 private:
  void note() PARALLAX_REQUIRES(mutex_) { changed_.notify_all(); }

  Mutex mutex_ PARALLAX_ACQUIRED_BEFORE(later_);
  Mutex later_;
  CondVar changed_;
  int balance_ PARALLAX_GUARDED_BY(mutex_) = 0;
  int* total_ PARALLAX_PT_GUARDED_BY(mutex_) = nullptr;
};

void keep(Account& account);
void keep(Account& account) { account.add(1); }

}  // namespace parallax
