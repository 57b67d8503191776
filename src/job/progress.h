// SPDX-License-Identifier: Apache-2.0
// Progress: who drives a real rank's engine. The engine has one owner at a time and no locks of its
// own; its owner is who holds the engine mutex. A caller takes it to post something, a waiter to
// drive the engine itself until its requests are done, so that no thread hand-over lies on a small
// message's path; the progress thread has it while no caller waits and none has for a moment
// (parking.h), and keeps the leases alive. Nobody holds the engine mutex while blocked in the
// kernel.
//
// A waiter looks for some time before it blocks (spin_time.h). A wait that ends by looking makes no
// system call, nor does a call whose messages leave at once.
//
// Threads: everything here may be called from any thread, except start and stop (the job's opener
// and closer). wait() blocks up to its deadline, call() as long as one pass of the engine takes.
#ifndef PARALLAX_JOB_PROGRESS_H_
#define PARALLAX_JOB_PROGRESS_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>

#include "base/binding.h"
#include "base/clock.h"
#include "base/float_environment.h"
#include "base/mutex.h"
#include "engine/job_groups.h"
#include "job/followed_soon.h"
#include "job/parking.h"
#include "job/spin_time.h"
#include "job/wait_set.h"
#include "transport/transport.h"

namespace parallax {

class Progress {
 public:
  // `binding` says where the thread runs, and where arenas lie that the engine reserves.
  Progress(Transport& transport, const Clock& clock, Binding& binding)
      : transport_(transport), clock_(clock), binding_(binding) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `manual`: no thread; waiters and drive_once alone move the engine. LIMIT: no descriptor left.
  Status start(JobGroups& groups, bool manual, const SpinOptions& spin = {});
  void stop();

  // Runs `body` on the engine of a group (JobGroups numbers them), with the engine mutex, then lets
  // the engines start what was posted. Where the body has set *key what is to be sent may be left
  // to the next call (followed_soon.h). Where the job has just failed, waits until the others were
  // told why, or FirstFailure::kLastWordsNs: the caller may exit.
  template <typename Body>
  Status call(uint32_t group, Body body, const uint32_t* key = nullptr) {
    return call_groups([&](JobGroups& groups) { return body(groups.group(group)); }, key);
  }
  template <typename Body>
  Status call(Body body) {
    return call(0, body);
  }
  template <typename Body>
  Status call_groups(Body body, const uint32_t* key = nullptr) {
    bool unfinished = false;
    bool speaking = false;
    Status status;
    {
      const MutexLock lock(engine_mutex_);
      const SumEnvironment environment;
      const Binding::Scope memory(binding_);
      status = body(*groups_);
      // A thread that rests looks by itself, should no other call come.
      const bool follows = key != nullptr && *key != FollowedSoon::kNoKey && looks_by_itself();
      const bool holds = follows && followed_.expects(*key);
      groups_->kick(holds);
      followed_.passed(groups_->whole().passed_ns(), holds);
      if (follows) followed_.left(*key, clock_.now_ns());
      unfinished = !holds && (groups_->needs_pass() || due_before_sleep_ends());
      // Who is woken by this call arms them himself.
      if (!unfinished && asleep()) groups_->arm_devices();
      speaking = groups_->speaking();
    }
    // What credits held back, or is done piece by piece, needs the engine's next pass.
    if (unfinished) wake_driver();
    if (speaking) let_speak();
    return status;
  }
  // The same for looking only.
  template <typename Body>
  auto look(uint32_t group, Body body) const {
    const MutexLock lock(engine_mutex_);
    return body(static_cast<const Engine&>(groups_->group(group)));
  }
  template <typename Body>
  auto look(Body body) const {
    return look(0, body);
  }

  // With the engine mutex, without a pass and without a look at this object afterwards: the body
  // may have made it another thread's to destroy.
  template <typename Body>
  auto with_groups(Body body) {
    const MutexLock lock(engine_mutex_);
    return body(*groups_);
  }

  // True once all are done; false at the deadline.
  bool wait(std::span<Request* const> requests, int64_t deadline_ns) {
    return wait_for(requests, deadline_ns - clock_.now_ns());
  }
  // The same for so long. Who drives has the time from its passes, and reads no clock.
  bool wait_for(std::span<Request* const> requests, int64_t timeout_ns);
  void drive_once();
  // Until a group that starts no more compute jobs has none under way. The engine mutex is free
  // meanwhile: the others go on, and may be what a job of the pool waits for.
  void finish_computing(uint32_t group);

  // The engine's `completed` hook: called with the engine mutex held.
  void on_completed() PARALLAX_EXCLUDES(waiters_mutex_);
  // Something is to be seen by a pass that no message tells of: a compute thread finished a job.
  // Wakes who drives, if he sleeps. Under any lock but this object's.
  void wake();

  // Readable after a request completed whose completion no wait() saw for itself, from the first
  // call on. -1: none to be had.
  int completion_fd();

  // For the stats.
  struct Counts {
    uint64_t waits_spun = 0;     // waits that looked for themselves and ended without a sleep
    uint64_t waits_blocked = 0;  // sleeps of waiters in the kernel
    uint64_t thread_rests = 0;   // of the progress thread, after each of which it looks by itself
    uint64_t thread_sleeps = 0;  // its others: armed, or beside a long wait
    uint64_t thread_passes = 0;  // passes that it made
    uint64_t bells = 0;          // rung to wake one of them
  };
  Counts counts() const;

 private:
  void thread_main();
  void drive_alone() PARALLAX_EXCLUDES(engine_mutex_, waiters_mutex_);
  void sleep_on_duty() PARALLAX_EXCLUDES(engine_mutex_, waiters_mutex_);
  bool pass() PARALLAX_EXCLUDES(engine_mutex_, waiters_mutex_);
  bool pass_for(std::span<Request* const> requests, int64_t* began_ns)
      PARALLAX_EXCLUDES(engine_mutex_, waiters_mutex_);
  bool glance(std::span<Request* const> requests, int64_t* now_ns)
      PARALLAX_EXCLUDES(engine_mutex_, waiters_mutex_);
  template <typename Move>
  bool move_for(std::span<Request* const> requests, Move move) PARALLAX_REQUIRES(engine_mutex_);
  bool run() PARALLAX_REQUIRES(engine_mutex_);
  void tell_completions(uint64_t count);
  // When a wait ends, by the first look at the time that it has.
  struct WaitEnd {
    int64_t timeout_ns = 0;
    int64_t deadline_ns = kNever;
    void saw(int64_t now_ns) {
      if (deadline_ns == kNever) deadline_ns = now_ns + timeout_ns;
    }
  };
  bool drive(std::span<Request* const> requests, WaitEnd* end, int64_t* now_ns)
      PARALLAX_EXCLUDES(engine_mutex_, waiters_mutex_);
  bool looks_on(int64_t looked_ns) PARALLAX_EXCLUDES(engine_mutex_, waiters_mutex_);
  void block(std::span<Request* const> requests, int64_t deadline_ns)
      PARALLAX_EXCLUDES(engine_mutex_, waiters_mutex_);
  int64_t sleep_ns(int64_t deadline_ns) PARALLAX_REQUIRES(engine_mutex_);
  bool asleep() const { return driver_blocked_ || parking_.thread() == Parking::Thread::kOnDuty; }
  bool due_before_sleep_ends() const PARALLAX_REQUIRES(engine_mutex_) {
    return asleep() && groups_->next_deadline_ns() < sleep_until_ns_;
  }
  // What a call holds back then is sent before anybody sleeps: by the first pass of a waiter, who
  // has come later and is not beside this look any more, or by the thread's behind its rest.
  bool looks_by_itself() const {
    return !manual_ && parking_.waiters() == 0 && !driver_blocked_ &&
           parking_.thread() == Parking::Thread::kRests;
  }
  void wake_driver();
  void ring(WaitSet& set);
  void let_speak() PARALLAX_EXCLUDES(engine_mutex_, waiters_mutex_);
  void warn_if_held_up() PARALLAX_REQUIRES(engine_mutex_);

  Transport& transport_ PARALLAX_GUARDED_BY(engine_mutex_);
  const Clock& clock_;
  Binding& binding_;
  mutable Mutex engine_mutex_ PARALLAX_ACQUIRED_BEFORE(waiters_mutex_);
  JobGroups* groups_ PARALLAX_PT_GUARDED_BY(engine_mutex_) = nullptr;
  bool manual_ = false;  // written by start() alone
  bool warned_ PARALLAX_GUARDED_BY(engine_mutex_) = false;
  int64_t sleep_until_ns_ PARALLAX_GUARDED_BY(engine_mutex_) = 0;  // of who drives
  FollowedSoon followed_ PARALLAX_GUARDED_BY(engine_mutex_);
  SpinTime spin_;       // of the waiter that drives
  WaitSet waiter_set_;  // of the waiter that drives
  WaitSet thread_set_;  // watched and muted with the engine mutex
  std::atomic<int> completion_fd_{-1};
  // Completions during a pass that a waiter makes, of which it tells afterwards. With the engine
  // mutex.
  bool counts_completions_ = false;
  uint64_t completions_counted_ = 0;
  std::atomic<bool> driver_blocked_{false};  // a waiter sleeps in the kernel
  std::atomic<bool> news_{false};            // that wake() told of, and no pass has seen
  std::atomic<bool> stopping_{false};

  Mutex waiters_mutex_;
  CondVar waiters_changed_;
  Parking parking_;                                           // changed with waiters_mutex_
  bool driving_ PARALLAX_GUARDED_BY(waiters_mutex_) = false;  // a waiter drives the engine
  // Counts, so that a waiter that does not drive misses none.
  uint64_t completions_ PARALLAX_GUARDED_BY(waiters_mutex_) = 0;
  // As Counts has them.
  struct {
    std::atomic<uint64_t> waits_spun{0}, waits_blocked{0}, thread_rests{0}, thread_sleeps{0},
        thread_passes{0}, bells{0};
  } counters_;
  std::thread thread_;
};

}  // namespace parallax

#endif  // PARALLAX_JOB_PROGRESS_H_
