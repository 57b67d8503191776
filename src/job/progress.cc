// SPDX-License-Identifier: Apache-2.0
// The engine mutex, the progress thread and waiting. See progress.h.
#include "job/progress.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/threads.h"

namespace parallax {

namespace {

// Passes without a move before a thread blocks. Few: ranks often outnumber cores, and a spinning
// thread steals the time of the one it waits for.
constexpr int kIdlePasses = 4;
// Blocking never lasts longer, whatever the timers say.
constexpr int64_t kBlockMaxNs = 1000 * kNanosecondsPerMillisecond;

// Between two looks at what compute threads are to finish.
constexpr useconds_t kLookAgainUs = 200;

// Cores that this process may run on; 1 where the kernel does not say.
size_t core_count() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? static_cast<size_t>(CPU_COUNT(&cores))
                                                         : 1;
}

bool all_done(std::span<Request* const> requests) {
  return std::all_of(requests.begin(), requests.end(),
                     [](const Request* request) { return request->done(); });
}

}  // namespace

Status Progress::start(JobGroups& groups, bool manual) {
  groups_ = &groups;
  if (core_count() < groups.whole().columns().locals().size()) spin_.forbid();
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  bool ready = epoll_fd_ >= 0 && wake_fd_ >= 0;
  int transport_fd = -1;
  {
    const MutexLock lock(engine_mutex_);
    transport_fd = transport_.wait_fd();
  }
  for (const int fd : {wake_fd_, transport_fd}) {
    if (!ready || fd < 0) continue;
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ready = epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0;
  }
  if (!ready) {
    return limit(std::string("cannot open the descriptors to wait on: ") + std::strerror(errno) +
                 "; raise ulimit -n");
  }
  if (manual) return {};
  PARALLAX_RETURN_IF_ERROR(start_thread(&thread_, [this] { thread_main(); }));
  binding_.adopt(thread_, "parallax-prog");
  return {};
}

Progress::~Progress() {
  stop();
  for (const int fd : {epoll_fd_, wake_fd_, completion_fd_.load()}) {
    if (fd >= 0) close(fd);
  }
}

void Progress::stop() {
  stopping_ = true;
  {
    // With the mutex: a thread between its look at stopping_ and its wait would miss it.
    const MutexLock lock(waiters_mutex_);
    waiters_changed_.notify_all();
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void Progress::thread_main() {
  while (!stopping_) {
    {
      // A waiter drives the engine better than this thread: it is the one that needs it.
      const MutexLock lock(waiters_mutex_);
      if (waiters_ > 0) wake();  // a wake-up read by this thread may have been the waiter's
      while (waiters_ > 0 && !stopping_) waiters_changed_.wait(waiters_mutex_);
    }
    int idle_passes = 0;
    while (!stopping_ && idle_passes < kIdlePasses) idle_passes = pass() ? 0 : idle_passes + 1;
    if (!stopping_) block(kNever, {});
  }
}

bool Progress::pass() {
  const MutexLock lock(engine_mutex_);
  // The caller's thread may round otherwise, and sums must not depend on who drives.
  const FloatEnvironment environment;
  const Binding::Scope memory(binding_);
  const bool moved = groups_->run();
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

// Arms the transport and sleeps until it has something, wake() is called, or a timer is due.
void Progress::block(int64_t deadline_ns, std::span<Request* const> requests) {
  {
    const MutexLock lock(engine_mutex_);
    // Completions hold the engine mutex: one before this look is seen here, a later one wakes us.
    if (!requests.empty() && all_done(requests)) return;
    if (!transport_.arm()) return;
    if (!requests.empty()) driver_blocked_ = true;
    deadline_ns = std::min(deadline_ns, groups_->next_deadline_ns());
    // Before the mutex is free: who posts next sees that there is a thread to wake.
    ++blocked_;
  }
  const int64_t left_ns = std::clamp<int64_t>(deadline_ns - clock_.now_ns(), 0, kBlockMaxNs);
  const int timeout_ms =
      static_cast<int>((left_ns + kNanosecondsPerMillisecond - 1) / kNanosecondsPerMillisecond);
  epoll_event events[2];
  const int count = epoll_wait(epoll_fd_, events, 2, timeout_ms);
  --blocked_;
  if (!requests.empty()) driver_blocked_ = false;
  for (int i = 0; i < count; ++i) {
    // The transport's descriptor is read by its own next poll.
    if (events[i].data.fd != wake_fd_) continue;
    uint64_t ignored;
    [[maybe_unused]] const ssize_t got = read(wake_fd_, &ignored, sizeof ignored);
  }
}

void Progress::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t wrote = write(wake_fd_, &one, sizeof one);
}

void Progress::wake_blocked() {
  if (blocked_ > 0) wake();
}

void Progress::let_speak() {
  while (look([](const Engine& engine) { return engine.speaking(); })) {
    if (!pass()) block(kNever, {});
  }
}

void Progress::drive_once() {
  pass();
  wake_blocked();  // whoever sleeps on an arming that this pass has used up
}

void Progress::finish_computing(uint32_t group) {
  const auto computing = [group](const JobGroups& groups) { return groups.computing(group); };
  while (drive_once(), with_groups(computing)) usleep(kLookAgainUs);
}

void Progress::on_completed() {
  const int fd = completion_fd_;
  if (fd >= 0) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t wrote = write(fd, &one, sizeof one);
  }
  const MutexLock lock(waiters_mutex_);
  ++completions_;
  // A waiter that drives sees completions of its own passes; asleep, it must be woken.
  if (driver_blocked_) wake();
  // One of them drives, and does not wait for this.
  if (waiters_ > 1) waiters_changed_.notify_all();
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

bool Progress::wait(std::span<Request* const> requests, int64_t deadline_ns) {
  if (all_done(requests)) return true;
  MutexLock lock(waiters_mutex_);
  ++waiters_;
  bool done = all_done(requests);
  while (!done && clock_.now_ns() < deadline_ns) {
    if (driving_) {
      // Another waiter drives; it, or its leaving, wakes this one.
      const uint64_t seen = completions_;
      const int64_t left_ns = std::min(deadline_ns - clock_.now_ns(), kBlockMaxNs);
      const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(left_ns);
      while (completions_ == seen && driving_ &&
             waiters_changed_.wait_until(waiters_mutex_, until)) {
        continue;
      }
      done = all_done(requests);
      continue;
    }
    driving_ = true;
    lock.unlock();
    int idle_passes = 0;
    int64_t moved_ns = clock_.now_ns();
    for (int64_t now_ns = moved_ns; !(done = all_done(requests)) && now_ns < deadline_ns;
         now_ns = clock_.now_ns()) {
      if (pass()) {
        if (idle_passes >= kIdlePasses) spin_.found();
        idle_passes = 0;
        moved_ns = now_ns;
        continue;
      }
      if (++idle_passes < kIdlePasses || now_ns - moved_ns < spin_.now_ns()) continue;
      if (all_done(requests)) continue;
      block(deadline_ns, requests);
      spin_.blocked();
      idle_passes = 0;
      moved_ns = clock_.now_ns();
    }
    lock.lock();
    driving_ = false;
  }
  const bool last = --waiters_ == 0;
  // For the next waiter, which has to drive now, and for the progress thread.
  waiters_changed_.notify_all();
  lock.unlock();
  // The progress thread may sleep on an arming that this thread's passes have used up.
  if (last) wake_blocked();
  return done;
}

}  // namespace parallax
