// SPDX-License-Identifier: Apache-2.0
// What waiting costs a rank: CPU of the caller within calls, CPU of the library's own threads,
// context switches, and how late it hears of what it waited for. Through parallax.h alone, started
// by bench/waiting/run, a process a rank; each prints one line of JSON. Between steps a rank
// pauses:
//   burn   computes, so many milliseconds of CPU
//   sleep  sleeps, as who waits for a device
//   late   sleeps, but for rank 0, which waits meanwhile: its latency is from when the last rank
//          called to the end of its own wait
#include <dirent.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "parallax/parallax.h"

namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr uint64_t kRowElementsMax = 1 << 20;  // longer rows are refused
constexpr int kWarmUpSteps = 20;

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "parallax_waiting: %s\n", why.c_str());
  std::exit(1);
}

void expect(parallax_status_t status, const char* call) {
  if (status == PARALLAX_OK) return;
  fail(std::string(call) + ": " + parallax_status_string(status) + ": " + parallax_last_error());
}

int64_t read_clock(clockid_t clock) {
  timespec now = {};
  if (clock_gettime(clock, &now) != 0) return 0;  // a thread that has just ended
  return now.tv_sec * 1'000 * kNsPerMs + now.tv_nsec;
}

int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

// CPU of all threads of this process but the calling one. As the kernel makes a clock of a thread's
// id: clock_gettime(2), CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED.
int64_t other_threads_ns() {
  int64_t total_ns = 0;
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  DIR* const tasks = opendir("/proc/self/task");
  if (tasks == nullptr) fail("cannot read /proc/self/task");
  while (const dirent* entry = readdir(tasks)) {
    const int id = std::atoi(entry->d_name);
    if (id > 0 && id != self) total_ns += read_clock((~static_cast<clockid_t>(id) << 3) | 6);
  }
  closedir(tasks);
  return total_ns;
}

struct Usage {
  int64_t others_ns = other_threads_ns();
  int64_t switches = 0;

  Usage() {
    rusage used = {};
    getrusage(RUSAGE_SELF, &used);
    switches = used.ru_nvcsw + used.ru_nivcsw;
  }
};

enum class Pause { kBurn, kSleep, kLate };

struct Options {
  uint64_t bytes = 8;
  int steps = 1000;
  int64_t pause_ns = 0;
  Pause kind = Pause::kBurn;
};

void pause(const Options& options, uint32_t rank) {
  if (options.pause_ns == 0 || (options.kind == Pause::kLate && rank == 0)) return;
  if (options.kind != Pause::kBurn) {
    const timespec time = {.tv_sec = 0, .tv_nsec = options.pause_ns};
    nanosleep(&time, nullptr);
    return;
  }
  const int64_t end_ns = read_clock(CLOCK_THREAD_CPUTIME_ID) + options.pause_ns;
  volatile uint64_t work = 0;
  while (read_clock(CLOCK_THREAD_CPUTIME_ID) < end_ns) {
    for (int i = 0; i < 20'000; ++i) work = work + 1;
  }
}

class Rank {
 public:
  explicit Rank(uint64_t bytes) : values_(bytes / sizeof(double)) {
    parallax_options_t options = {};
    options.size = sizeof options;
    options.rendezvous = "env";
    expect(parallax_open(&options, &job_), "open");
    parallax_variable_t variable = {};
    variable.size = sizeof variable;
    variable.name = "v";
    variable.row_elements = values_.size() <= kRowElementsMax ? values_.size() : 1;
    variable.rows = values_.size() / variable.row_elements;
    variable.dtype = PARALLAX_F64;
    variable.tag = PARALLAX_DENSE;
    variable.reduction = PARALLAX_SUM;
    variable.rule = PARALLAX_RULE_NONE;
    expect(parallax_register(job_, &variable, &slice_.variable), "register");
    expect(parallax_commit(job_), "commit");
    slice_.size = sizeof slice_;
    slice_.values = values_.data();
    end_.size = sizeof end_;
    parallax_job_info_t info = {};
    info.size = sizeof info;
    expect(parallax_query(job_, &info), "query");
    rank_ = info.rank;
    world_ = info.world;
  }
  ~Rank() { expect(parallax_close(job_), "close"); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  uint32_t rank() const { return rank_; }

  // The time at which the last rank but this one called, where one of two alone is late: exact as a
  // double. Else checks the sum and gives 0.
  int64_t step(bool late) {
    uint64_t step = 0;
    std::fill(values_.begin(), values_.end(), static_cast<double>(rank_ + 1));
    if (late) values_[0] = rank_ + 1 == world_ ? static_cast<double>(now_ns()) : 0;
    expect(parallax_step_begin(job_, &step), "step_begin");
    parallax_request_t* request = nullptr;
    expect(parallax_reduce(job_, step, &slice_, 1, &request), "reduce");
    finish(request);
    heard_ns_ = now_ns();
    const auto total = static_cast<double>(world_ * (world_ + 1) / 2);
    if ((!late && values_.front() != total) || values_.back() != total) fail("a wrong sum");
    const int64_t called_ns = late ? static_cast<int64_t>(values_.front()) : 0;
    expect(parallax_step_end(job_, step, &end_, &request), "step_end");
    finish(request);
    return called_ns;
  }
  // When the last step's sum was there.
  int64_t heard_ns() const { return heard_ns_; }

 private:
  static void finish(parallax_request_t* request) {
    expect(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT), "wait");
    expect(parallax_request_release(request), "release");
  }

  parallax_job_t* job_ = nullptr;
  std::vector<double> values_;
  parallax_slice_t slice_ = {};
  parallax_step_end_options_t end_ = {};
  uint32_t rank_ = 0, world_ = 0;
  int64_t heard_ns_ = 0;
};

Options options_of(int count, char** all) {
  if (count != 5) fail("BYTES STEPS PAUSE_MS burn|sleep|late; started by bench/waiting/run");
  Options options;
  options.bytes = std::strtoull(all[1], nullptr, 10);
  options.steps = std::atoi(all[2]);
  options.pause_ns = std::atoll(all[3]) * kNsPerMs;
  const std::string kind = all[4];
  if (kind != "burn" && kind != "sleep" && kind != "late") fail("the pause: burn, sleep or late");
  options.kind = kind == "burn" ? Pause::kBurn : kind == "sleep" ? Pause::kSleep : Pause::kLate;
  if (options.bytes < 2 * sizeof(double) || options.bytes % sizeof(double) != 0) {
    fail("BYTES: of whole doubles, two or more");
  }
  if (options.steps < 1 || options.pause_ns < 0 || options.pause_ns >= 1'000 * kNsPerMs) {
    fail("STEPS: at least 1; PAUSE_MS: 0 to 999");
  }
  return options;
}

double us_at(std::vector<int64_t>* times_ns, size_t hundredth) {
  std::sort(times_ns->begin(), times_ns->end());
  return static_cast<double>((*times_ns)[times_ns->size() * hundredth / 100]) / 1e3;
}

}  // namespace

int main(int count, char** all) {
  const Options options = options_of(count, all);
  const bool late = options.kind == Pause::kLate;
  Rank rank(options.bytes);
  for (int step = 0; step < kWarmUpSteps; ++step) rank.step(false);
  std::vector<int64_t> times_ns(static_cast<size_t>(options.steps)), late_ns(times_ns.size());
  int64_t calls_cpu_ns = 0;
  // The clock of a thread's CPU is a system call: none of it where steps follow one another.
  const bool counts_cpu = options.pause_ns > 0;
  const Usage before;
  const int64_t start_ns = now_ns();
  for (size_t i = 0; i < times_ns.size(); ++i) {
    pause(options, rank.rank());
    const int64_t cpu_ns = counts_cpu ? read_clock(CLOCK_THREAD_CPUTIME_ID) : 0;
    const int64_t begin_ns = now_ns();
    const int64_t called_ns = rank.step(late);
    times_ns[i] = now_ns() - begin_ns;
    late_ns[i] = late ? rank.heard_ns() - called_ns : 0;
    if (counts_cpu) calls_cpu_ns += read_clock(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
  }
  const int64_t wall_ns = now_ns() - start_ns;
  const Usage after;
  const double steps_us = options.steps * 1e3;
  std::printf("{\"rank\":%" PRIu32
              ",\"steps\":%d,\"step_us\":%.2f,\"step_p99_us\":%.2f,\"late_us\":%.2f,"
              "\"late_p99_us\":%.2f,\"wall_us\":%.2f,\"calls_cpu_us\":%.2f,"
              "\"threads_cpu_us\":%.2f,\"switches\":%.3f}\n",
              rank.rank(), options.steps, us_at(&times_ns, 50), us_at(&times_ns, 99),
              us_at(&late_ns, 50), us_at(&late_ns, 99), static_cast<double>(wall_ns) / steps_us,
              static_cast<double>(calls_cpu_ns) / steps_us,
              static_cast<double>(after.others_ns - before.others_ns) / steps_us,
              static_cast<double>(after.switches - before.switches) / options.steps);
  return 0;
}
