// SPDX-License-Identifier: Apache-2.0
// The library inside a process that does other things too: forks, takes signals, has several jobs,
// and opens and closes them for ever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/own_process.h"
#include "support/sanitizers.h"

namespace {
std::atomic<uint64_t> getpid_calls = 0;
}  // namespace

// In the place of the C library's, for the program and for libparallax.so.
extern "C" __attribute__((visibility("default"))) pid_t getpid() noexcept {
  ++getpid_calls;
  return static_cast<pid_t>(syscall(SYS_getpid));
}

namespace {

using parallax::Error;
using parallax::Job;
using parallax::Request;
using parallax::sized;
using parallax::testkit::open_descriptors;
using parallax::testkit::resident_kib;

constexpr uint64_t kRows = 4;

parallax_options_t two_ranks(const std::string& rendezvous, uint32_t rank) {
  auto options = sized<parallax_options_t>();
  options.rank = rank;
  options.world = 2;
  options.rendezvous = rendezvous.c_str();
  return options;
}

uint32_t register_dense(Job& job) {
  auto variable = sized<parallax_variable_t>();
  variable.name = "dense";
  variable.rows = kRows;
  variable.row_elements = 1;
  variable.rule = PARALLAX_RULE_SGD;
  const uint32_t id = job.register_variable(variable);
  job.commit();
  return id;
}

// Pushes `gradient` to every element, and gives the first element before that.
float train_step(Job& job, uint32_t id, float gradient) {
  std::vector<float> values(kRows), gradients(kRows, gradient);
  const uint64_t step = job.step_begin();
  auto slice = sized<parallax_slice_t>();
  slice.variable = id;
  slice.values = values.data();
  job.pull(step, {slice}).wait();
  slice.values = gradients.data();
  Request push = job.push(step, {slice});
  auto end = sized<parallax_step_end_options_t>();
  end.learning_rate = 1;
  job.step_end(step, end).wait();
  push.wait();
  return values[0];
}

// Runs `body` in a forked child and gives its exit status; what it returns is 0 when all is well.
template <typename Body>
int in_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// How many of the statuses are not STATE.
int count_other(std::initializer_list<int> statuses) {
  int others = 0;
  for (const int status : statuses) others += status != PARALLAX_STATE;
  return others;
}

// Given a job with a request under way, expect every call of a forked child to answer STATE and to
// leave the parent's job as it was, and the child to have a job of its own.
TEST(Fork, AChildLeavesItsParentsJobAlone) {
  Job job(sized<parallax_options_t>());
  const uint32_t id = register_dense(job);
  Request barrier = job.barrier();
  barrier.wait();
  parallax_job_t* copy = job.get();
  parallax_request_t* request = barrier.get();
  EXPECT_EQ(train_step(job, id, 1), 0);
  EXPECT_EQ(in_child([&] {
              uint64_t step = 0;
              size_t bytes = 0;
              parallax_request_t* none = nullptr;
              auto info = sized<parallax_job_info_t>();
              auto slice = sized<parallax_slice_t>();
              return count_other({parallax_step_begin(copy, &step), parallax_barrier(copy, &none),
                                  parallax_pull(copy, 3, &slice, 1, &none),
                                  parallax_push(copy, 3, &slice, 1, &none),
                                  parallax_reduce(copy, 3, &slice, 1, &none),
                                  parallax_step_end(copy, 3, nullptr, &none),
                                  parallax_broadcast(copy, &step, 8, 0, &none),
                                  parallax_commit(copy), parallax_query(copy, &info),
                                  parallax_report(copy, PARALLAX_REPORT_PLAN, nullptr, &bytes),
                                  parallax_progress(copy), parallax_wait(&request, 1, 0),
                                  parallax_request_test(request), parallax_request_cancel(request),
                                  parallax_request_release(request),
                                  parallax_abort(copy, "not mine"), parallax_close(copy)}) +
                     (std::string(parallax_last_error()).find("process") == std::string::npos);
            }),
            0);
  EXPECT_EQ(in_child([] {
              auto options = sized<parallax_options_t>();
              options.manual_progress = 1;  // ThreadSanitizer allows a forked child no thread
              Job own(options);
              const uint32_t dense = register_dense(own);
              train_step(own, dense, 2);
              const bool right = train_step(own, dense, 0) == -2;
              own.close();
              return right ? 0 : 1;
            }),
            0);
  EXPECT_EQ(train_step(job, id, 1), -1);
  job.close();
}

// Given a child that the C library knows nothing of, expect the same.
TEST(Fork, AChildOfABareCloneIsToldApart) {
  auto options = sized<parallax_options_t>();
  options.manual_progress = 1;  // no other thread, whose locks the child would inherit
  Job job(options);
  const uint32_t id = register_dense(job);
  EXPECT_EQ(train_step(job, id, 1), 0);
  std::fflush(nullptr);
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    uint64_t step = 0;
    _exit(count_other({parallax_step_begin(job.get(), &step), parallax_progress(job.get())}));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(train_step(job, id, 1), -1);
  job.close();
}

// Given steps, expect the library to ask for no process number: that is a system call, and a step
// has many calls.
TEST(Process, AStepAsksForNoProcessNumber) {
  Job job(sized<parallax_options_t>());
  const uint32_t id = register_dense(job);
  EXPECT_EQ(train_step(job, id, 1), 0);
  const uint64_t before = getpid_calls;
  for (int step = 1; step < 9; ++step) {
    EXPECT_EQ(train_step(job, id, 1), -static_cast<float>(step));
  }
  EXPECT_EQ(getpid_calls, before);
  EXPECT_EQ(getpid(), static_cast<pid_t>(syscall(SYS_getpid)));
  EXPECT_GT(getpid_calls, before) << "the count sees a call";
  job.close();
}

// Given two jobs of two ranks each in one process, stepping in turn, expect each to have its own
// values.
TEST(Process, SeveralJobsAtOnce) {
  std::vector<std::thread> ranks;
  std::atomic<int> right = 0;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([rank, &right] {
      Job first(two_ranks("inproc:several_a", rank));
      Job second(two_ranks("inproc:several_b", rank));
      const uint32_t a = register_dense(first);
      const uint32_t b = register_dense(second);
      for (int step = 0; step < 8; ++step) {
        right += train_step(first, a, 1) == -2.0F * static_cast<float>(step);
        right += train_step(second, b, 10) == -20.0F * static_cast<float>(step);
      }
      second.close();
      right += train_step(first, a, 0) == -16;
      first.close();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(right, 2 * (2 * 8 + 1));
}

std::atomic<int> signals_taken = 0;

// Given a host that takes a signal every millisecond, expect its waits to go on to their end, and
// its handlers to stay its own.
TEST(Process, SignalsDisturbNoWait) {
  struct sigaction handler = {}, before_alarm = {}, before_interrupt = {}, now = {};
  handler.sa_handler = [](int) { ++signals_taken; };  // no SA_RESTART: every call sees EINTR
  ASSERT_EQ(sigaction(SIGALRM, &handler, &before_alarm), 0);
  ASSERT_EQ(sigaction(SIGINT, &handler, &before_interrupt), 0);
  const itimerval often = {.it_interval = {0, 1000}, .it_value = {0, 1000}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  std::vector<std::thread> ranks;
  std::atomic<int> right = 0;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([rank, &right] {
      Job job(two_ranks("inproc:signals", rank));
      const uint32_t id = register_dense(job);
      for (int step = 0; step < 10; ++step) {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        if (rank == 0) raise(SIGINT);
        right += train_step(job, id, 1) == -2.0F * static_cast<float>(step);
      }
      job.close();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  const itimerval never = {};
  setitimer(ITIMER_REAL, &never, nullptr);
  EXPECT_EQ(right, 20);
  EXPECT_GT(signals_taken, 10);
  ASSERT_EQ(sigaction(SIGINT, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, handler.sa_handler);
  sigaction(SIGALRM, &before_alarm, nullptr);
  sigaction(SIGINT, &before_interrupt, nullptr);
}

// Given a host that blocks a signal in its only thread, expect the library's threads to have it
// blocked too, since it would otherwise be delivered to one of them and end the process.
TEST(Process, ItsSignalsStayItsOwn) {
  Job job(sized<parallax_options_t>());
  sigset_t one, pending, before;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &one, &before), 0);
  ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGUSR1), 1);
  const timespec at_once = {};
  EXPECT_EQ(sigtimedwait(&one, nullptr, &at_once), SIGUSR1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  job.close();
}

// Opens, trains a step and closes, as two ranks, `count` times.
void open_and_close(int count) {
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([rank, count] {
      for (int i = 0; i < count; ++i) {
        Job job(two_ranks("inproc:cycles", rank));
        const uint32_t id = register_dense(job);
        EXPECT_EQ(train_step(job, id, 1), 0);
        job.close();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// Given 1,000 jobs one after the other, expect no descriptor and no memory to stay behind.
TEST(Process, AThousandJobsLeaveNothing) {
  constexpr int kWarmUp = 100;
  constexpr int kJobs = parallax::testkit::kBrief ? 200 : 1000;
  constexpr long kGrowthKib = 2048;  // of the allocator: 2 KiB a job would be a leak
  open_and_close(kWarmUp);
  const int descriptors = open_descriptors();
  const long before = resident_kib();
  open_and_close(kJobs);
  EXPECT_EQ(open_descriptors(), descriptors);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(resident_kib() - before, kGrowthKib);
#else
  RecordProperty("resident_kib", static_cast<int>(resident_kib() - before));
  static_cast<void>(kGrowthKib);  // the sanitizers keep what was freed
#endif
}

}  // namespace
