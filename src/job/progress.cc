// SPDX-License-Identifier: Apache-2.0
// The engine mutex, the progress thread and waiting. See progress.h.
#include "job/progress.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/threads.h"

namespace parallax {

namespace {

// Passes without a move before a thread sleeps: to find a message that is on its way costs less
// than a wake-up.
constexpr int kIdlePasses = 4;
// Blocking never lasts longer, whatever the timers say.
constexpr int64_t kBlockMaxNs = 1000 * kNanosecondsPerMillisecond;

// Between two looks at what is seldom waited for.
constexpr useconds_t kLookAgainUs = 200;

size_t done_count(std::span<Request* const> requests) {
  return static_cast<size_t>(std::count_if(
      requests.begin(), requests.end(), [](const Request* request) { return request->awaited(); }));
}

bool all_done(std::span<Request* const> requests) {
  return std::all_of(requests.begin(), requests.end(),
                     [](const Request* request) { return request->awaited(); });
}

}  // namespace

Status Progress::start(JobGroups& groups, bool manual, const SpinOptions& spin) {
  groups_ = &groups;
  manual_ = manual;
  spin_ = SpinTime(spin);
  int transport_fd = -1;
  {
    const MutexLock lock(engine_mutex_);
    transport_fd = transport_.wait_fd();
  }
  PARALLAX_RETURN_IF_ERROR(waiter_set_.open(transport_fd));
  // Between hosts calls leave what they send to a thread that looks soon (followed_soon.h).
  if (groups.whole().options().view.hosts.ranks_of.size() == 1) parking_.rest_longer();
  if (manual) return {};
  PARALLAX_RETURN_IF_ERROR(thread_set_.open(transport_fd));
  PARALLAX_RETURN_IF_ERROR(start_thread(&thread_, [this] { thread_main(); }));
  binding_.adopt(thread_, "parallax-prog");
  return {};
}

Progress::~Progress() {
  stop();
  const int fd = completion_fd_;
  if (fd >= 0) close(fd);
}

void Progress::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  ring(thread_set_);
  thread_.join();
}

// ---- the progress thread

void Progress::thread_main() {
  while (!stopping_) {
    Parking::Thread turn = Parking::Thread::kAwake;
    int64_t rest_ns = 0;
    {
      const MutexLock lock(waiters_mutex_);
      const int64_t now_ns = clock_.now_ns();
      turn = parking_.next(now_ns, news_);
      rest_ns = parking_.wake_ns() - now_ns;
    }
    // wake() rings where it finds the thread asleep, else leaves news that is seen here.
    const bool needed = news_ && parking_.waiters() == 0;
    if (turn == Parking::Thread::kAwake) {
      drive_alone();
    } else if (!needed && !stopping_) {
      const bool rests = turn == Parking::Thread::kRests;
      ++(rests ? counters_.thread_rests : counters_.thread_sleeps);
      thread_set_.sleep_by_bell(rests ? &rest_ns : nullptr);
    }
  }
  const MutexLock lock(waiters_mutex_);
  parking_.wake();
}

// Until nothing moves, and then until something is to be done, unless a caller comes to wait: it
// drives the engine better than this thread, since it is the one that needs it.
void Progress::drive_alone() {
  int idle_passes = 0;
  while (!stopping_ && idle_passes < kIdlePasses) {
    const MutexLock lock(engine_mutex_);
    // With the mutex: a waiter's arming is not used up by a pass that it does not know of.
    if (parking_.waiters() > 0) return;
    ++counters_.thread_passes;
    idle_passes = run() ? 0 : idle_passes + 1;
  }
  if (!stopping_) sleep_on_duty();
}

void Progress::sleep_on_duty() {
  int64_t time_ns = 0;
  {
    const MutexLock lock(engine_mutex_);
    thread_set_.watch();
    if (!groups_->arm()) return;
    time_ns = sleep_ns(kNever);
    // Before the mutex is free: who posts next sees that there is a thread to wake.
    const MutexLock waiting(waiters_mutex_);
    if (!parking_.go_on_duty()) return;
  }
  if (!news_ && !stopping_) {
    ++counters_.thread_sleeps;
    thread_set_.sleep(time_ns);
  }
  const MutexLock lock(waiters_mutex_);
  parking_.wake();
}

// Until the engine wants a pass; of what ends on devices it is told from here on.
int64_t Progress::sleep_ns(int64_t deadline_ns) {
  groups_->arm_devices();
  sleep_until_ns_ = std::min(deadline_ns, groups_->next_deadline_ns());
  return std::clamp<int64_t>(sleep_until_ns_ - clock_.now_ns(), 0, kBlockMaxNs);
}

// ---- passes

bool Progress::pass() {
  const MutexLock lock(engine_mutex_);
  return run();
}

// What who waits for these moves: it tells their completions by its return, and only others' by the
// descriptor, which is a system call.
template <typename Move>
bool Progress::move_for(std::span<Request* const> requests, Move move) {
  if (completion_fd_ < 0) return move();
  const size_t done_before = done_count(requests);
  completions_counted_ = 0;
  counts_completions_ = true;
  const bool moved = move();
  counts_completions_ = false;
  const size_t own = done_count(requests) - done_before;
  if (completions_counted_ > own) tell_completions(completions_counted_ - own);
  return moved;
}

// A pass.
bool Progress::pass_for(std::span<Request* const> requests, int64_t* began_ns) {
  const MutexLock lock(engine_mutex_);
  const bool moved =
      move_for(requests, [this]() PARALLAX_REQUIRES(engine_mutex_) { return run(); });
  *began_ns = groups_->whole().passed_ns();
  return moved;
}

// A look at boards, before it counts as a waiter. True: that was all that they waited for.
bool Progress::glance(std::span<Request* const> requests, int64_t* now_ns) {
  const MutexLock lock(engine_mutex_);
  const SumEnvironment environment;
  const Binding::Scope memory(binding_);
  const bool moved =
      move_for(requests, [this]() PARALLAX_REQUIRES(engine_mutex_) { return groups_->glance(); });
  *now_ns = groups_->whole().passed_ns();
  return moved && all_done(requests);
}

bool Progress::run() {
  // The caller's thread may round otherwise, and sums must not depend on who drives.
  const SumEnvironment environment;
  const Binding::Scope memory(binding_);
  // Before the pass: what comes later is for the next.
  if (news_) news_ = false;
  const bool moved = groups_->run();
  followed_.passed(groups_->whole().passed_ns(), false);
  warn_if_held_up();
  return moved;
}

void Progress::warn_if_held_up() {
  const Engine& engine = groups_->whole();
  const int64_t lease_ns = engine.options().lease_ns;
  if (warned_ || engine.held_up_ns() <= lease_ns / Membership::kHeartbeatsPerLease) return;
  warned_ = true;
  PARALLAX_LOG(kWarn, kMember,
               "rank " + std::to_string(engine.options().rank) + " was held up for " +
                   std::to_string(engine.held_up_ns() / kNanosecondsPerMillisecond) +
                   " ms, with a lease of " + std::to_string(lease_ns / kNanosecondsPerMillisecond) +
                   " ms; one that is held up for longer than its lease is taken for lost: raise "
                   "lease_ms, or give the ranks more cores");
}

// ---- waking

void Progress::wake() {
  news_ = true;
  if (driver_blocked_) {
    ring(waiter_set_);
  } else if (parking_.waiters() == 0 && parking_.thread() != Parking::Thread::kAwake) {
    ring(thread_set_);
  }
}

// For what a message might not bring about: the one who drives makes a pass soon. A thread that
// rests does by itself.
void Progress::wake_driver() {
  if (driver_blocked_) {
    ring(waiter_set_);
  } else if (parking_.thread() == Parking::Thread::kOnDuty) {
    ring(thread_set_);
  }
}

void Progress::ring(WaitSet& set) {
  ++counters_.bells;
  set.ring();
}

Progress::Counts Progress::counts() const {
  return {.waits_spun = counters_.waits_spun,
          .waits_blocked = counters_.waits_blocked,
          .thread_rests = counters_.thread_rests,
          .thread_sleeps = counters_.thread_sleeps,
          .thread_passes = counters_.thread_passes,
          .bells = counters_.bells};
}

void Progress::let_speak() {
  while (look([](const Engine& engine) { return engine.speaking(); })) {
    drive_once();
    usleep(kLookAgainUs);
  }
}

void Progress::drive_once() {
  pass();
  wake_driver();  // whoever sleeps on an arming that this pass has used up
}

void Progress::finish_computing(uint32_t group) {
  const auto computing = [group](const JobGroups& groups) { return groups.computing(group); };
  while (drive_once(), with_groups(computing)) usleep(kLookAgainUs);
}

void Progress::tell_completions(uint64_t count) {
  const int fd = completion_fd_;
  if (fd < 0) return;
  // It fails only where the count is full, and then the descriptor is readable anyway.
  [[maybe_unused]] const ssize_t wrote = write(fd, &count, sizeof count);
}

void Progress::on_completed() {
  if (counts_completions_) {
    ++completions_counted_;
  } else {
    tell_completions(1);
  }
  // A waiter that drives sees completions of its own passes; asleep, it must be woken.
  if (driver_blocked_) ring(waiter_set_);
  // One of them drives, and does not wait for this; one that comes now looks for itself first.
  if (parking_.waiters() <= 1) return;
  const MutexLock lock(waiters_mutex_);
  ++completions_;
  waiters_changed_.notify_all();
}

int Progress::completion_fd() {
  if (completion_fd_ < 0) {
    int none = -1;
    const int made = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    // Two threads may be making it at once: the first one's stays.
    if (made >= 0 && !completion_fd_.compare_exchange_strong(none, made)) close(made);
  }
  return completion_fd_;
}

// ---- waiting

bool Progress::wait_for(std::span<Request* const> requests, int64_t timeout_ns) {
  if (all_done(requests)) {
    // What has completed within its calls has made no pass, and nobody else keeps the leases.
    if (manual_ && timeout_ns > 0) drive_once();
    return true;
  }
  // Who only asks does not keep the progress thread from its work.
  if (timeout_ns <= 0) return false;
  int64_t now_ns = 0;
  // The most of small steps.
  bool done = glance(requests, &now_ns), drove = done, blocked = false;
  WaitEnd end = {.timeout_ns = std::min(timeout_ns, kNever / 2)};
  MutexLock lock(waiters_mutex_);
  parking_.came();
  while (!done && now_ns < end.deadline_ns) {
    if (driving_) {
      // Another waiter drives; it, or its leaving, wakes this one. What completed before it could
      // know of this one is seen here.
      if (all_done(requests)) {
        done = true;
        break;
      }
      const uint64_t seen = completions_;
      now_ns = clock_.now_ns();
      end.saw(now_ns);
      const int64_t left_ns = std::clamp<int64_t>(end.deadline_ns - now_ns, 0, kBlockMaxNs);
      const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(left_ns);
      while (completions_ == seen && driving_ &&
             waiters_changed_.wait_until(waiters_mutex_, until)) {
        continue;
      }
      done = all_done(requests);
      now_ns = clock_.now_ns();
      continue;
    }
    driving_ = drove = true;
    lock.unlock();
    const uint64_t blocked_before = counters_.waits_blocked;
    done = drive(requests, &end, &now_ns);
    lock.lock();
    blocked |= counters_.waits_blocked != blocked_before;
    driving_ = false;
  }
  // With the mutex, so a load and a store will do: no bus is locked on a short wait's path.
  if (drove && !blocked) {
    counters_.waits_spun.store(counters_.waits_spun.load(std::memory_order_relaxed) + 1,
                               std::memory_order_relaxed);
  }
  const bool thread_sleeps = parking_.left(now_ns, drove);
  // For the next waiter, which has to drive now.
  if (parking_.waiters() > 0) waiters_changed_.notify_all();
  lock.unlock();
  if (thread_sleeps) ring(thread_set_);
  return done;
}

// Passes until all are done or the deadline is over, at least one; *now_ns is when the last began.
bool Progress::drive(std::span<Request* const> requests, WaitEnd* end, int64_t* now_ns) {
  int idle_passes = 0;
  bool quietly = true, blocked = false;
  int64_t idle_ns = *now_ns, still_ns = *now_ns;  // since it looks, and since nothing moves
  while (true) {
    const bool moved = pass_for(requests, now_ns);
    if (moved && (blocked || idle_passes >= kIdlePasses)) spin_.waited(*now_ns - still_ns);
    if (all_done(requests)) return true;
    end->saw(*now_ns);
    if (*now_ns >= end->deadline_ns) {
      spin_.gave_up();
      return false;
    }
    if (moved) {
      if (quietly && idle_passes >= kIdlePasses) spin_.found();
      idle_passes = 0;
      quietly = true;
      blocked = false;
      continue;
    }
    // Not before: what moved last may have taken long.
    if (idle_passes == 0) idle_ns = *now_ns;
    if (idle_passes == 0 && !blocked) still_ns = *now_ns;
    // Who always yields has no reason to look longer before the first time.
    if (++idle_passes < kIdlePasses && spin_.quiet_ns() > 0) continue;
    const int64_t looked_ns = *now_ns - idle_ns;
    if (quietly && looked_ns >= spin_.quiet_ns()) {
      quietly = false;
      spin_.vain();
    }
    // Once it has blocked it takes long.
    if (looked_ns < spin_.whole_ns() || (!blocked && looks_on(looked_ns))) {
      if (!quietly) sched_yield();
      continue;
    }
    block(requests, end->deadline_ns);
    idle_passes = 0;
    quietly = true;
    blocked = true;
  }
}

bool Progress::looks_on(int64_t looked_ns) {
  if (looked_ns < spin_.longer_ns()) return true;
  if (looked_ns >= spin_.longest_ns()) return false;
  const MutexLock lock(engine_mutex_);
  return groups_->devices_reduce();
}

// Arms the transport and sleeps until it has something, wake() is called, or a timer is due.
void Progress::block(std::span<Request* const> requests, int64_t deadline_ns) {
  int64_t time_ns = 0;
  {
    const MutexLock lock(engine_mutex_);
    // Completions hold the engine mutex: one before this look is seen here, a later one wakes us.
    if (all_done(requests)) return;
    // Else what wakes this thread would wake the other one too.
    if (parking_.thread() == Parking::Thread::kOnDuty) thread_set_.mute();
    if (!groups_->arm()) return;
    time_ns = sleep_ns(deadline_ns);
    driver_blocked_ = true;
  }
  if (!news_) {
    ++counters_.waits_blocked;
    waiter_set_.sleep(time_ns);
  }
  driver_blocked_ = false;
}

}  // namespace parallax
