// SPDX-License-Identifier: Apache-2.0
// Dense reductions on real devices: right, and beside NCCL itself.
//
//   parallax_gpu_allreduce devices      a rank, a thread, for each device of the machine
//   parallax_gpu_allreduce shared N     N ranks, processes, on the first device: NCCL takes that
//                                       where each says that it is another host (NCCL_HOSTID)
//   ... --unbound                       sums alone; times are printed and not judged
//
// A reduction is timed from the call of parallax_reduce to the return of parallax_wait, on buffers
// that are there; NCCL from ncclAllReduce until its stream is done. Both in turns, medians. It
// fails where ours takes over 3% longer from 1 MB on, or over 3 us below. Then the same with
// variables that have a place, in windows of symmetric memory where NCCL takes them, beside NCCL on
// memory as any: what windows gain, reported and not judged. Of one rank NCCL sums nothing in
// place; there results go to another buffer, so that both have a copy to make, which is reported
// and not judged either. Status 77: NOT RUN, and why.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>

#include "gpu/raw_libraries.h"
#include "parallax/parallax.hpp"

namespace parallax::gpu_test {
namespace {

constexpr double kShareMost = 1.03, kMoreUsMost = 3.0;
constexpr size_t kBytesJudgedByShare = 1 << 20;
constexpr int kWarmUps = 10, kTurns = 50;
constexpr int kSharedTurns = 15;  // of tens of milliseconds each

double now_us() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Shape {
  uint32_t ranks = 1;
  bool bound = true;
  int turns = kTurns;
  bool judged = true;
  bool placed = false;  // one variable, in memory of the job's, at a place
  std::vector<size_t> bytes;
};

float given(uint32_t rank, size_t i) { return static_cast<float>((rank + 1) * (i % 251)); }

// One rank with a variable for each size.
class Rank {
 public:
  Rank(uint32_t rank, int device, const Shape& shape, const std::string& rendezvous)
      : rank_(rank), device_number_(device), shape_(shape), device_(device, shape.bytes.back()) {
    auto options = sized<parallax_options_t>();
    options.rank = rank;
    options.world = shape.ranks;
    options.rendezvous = shape.ranks > 1 ? rendezvous.c_str() : nullptr;
    check(parallax_open(&options, &job_));
    if (shape.placed) use_memory_of_job();
    for (const size_t bytes : shape.bytes) {
      const std::string name = "w" + std::to_string(bytes);
      auto variable = sized<parallax_variable_t>();
      variable.name = name.c_str();
      variable.rows = bytes / sizeof(float);
      variable.row_elements = 1;
      variable.memory = PARALLAX_MEMORY_CUDA;
      if (shape.placed) variable.place_values = device_.memory();
      uint32_t id = 0;
      check(parallax_register(job_, &variable, &id));
    }
    check(parallax_commit(job_));
    size_t size = 0;
    parallax_report(job_, PARALLAX_REPORT_PLAN, nullptr, &size);
    plan_.resize(size);
    check(parallax_report(job_, PARALLAX_REPORT_PLAN, plan_.data(), &size));
    if (plan_.find("among the devices, by NCCL") == std::string::npos) {
      failed("NCCL does not carry the variables: " + plan_);
    }
  }
  ~Rank() { check(parallax_close(job_)); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // One step, in which this variable alone is given; the time of its reduction.
  double reduce(size_t variable) {
    uint64_t step = 0;
    check(parallax_step_begin(job_, &step));
    auto slice = sized<parallax_slice_t>();
    slice.variable = static_cast<uint32_t>(variable);
    slice.values = device_.memory();
    slice.into = into();
    slice.memory = PARALLAX_MEMORY_CUDA;
    slice.device = static_cast<uint32_t>(device_number_);
    slice.stream = device_.stream;
    parallax_request_t* requests[2] = {};
    // Variables that are not given take part once the step has ended here.
    const bool alone = shape_.bytes.size() == 1;
    const double start = now_us();
    check(parallax_reduce(job_, step, &slice, 1, &requests[0]));
    if (!alone) check(parallax_step_end(job_, step, nullptr, &requests[1]));
    check(parallax_wait(requests, 1, PARALLAX_WAIT_DEFAULT));
    const double took = now_us() - start;
    if (alone) check(parallax_step_end(job_, step, nullptr, &requests[1]));
    check(parallax_wait(requests, 2, PARALLAX_WAIT_DEFAULT));
    for (parallax_request_t* request : requests) check(parallax_request_release(request));
    return took;
  }
  void expect_sums(size_t variable) {
    const size_t count = shape_.bytes[variable] / sizeof(float);
    std::vector<float> mine(count);
    for (size_t i = 0; i < count; ++i) mine[i] = given(rank_, i);
    device_.write(mine);
    reduce(variable);
    const std::vector<float> sum = device_.read(count, into());
    for (size_t i = 0; i < count; ++i) {
      float expected = 0;
      for (uint32_t rank = 0; rank < shape_.ranks; ++rank) expected += given(rank, i);
      if (sum[i] != expected) {
        failed("rank " + std::to_string(rank_) + ", " + std::to_string(shape_.bytes[variable]) +
               " bytes, element " + std::to_string(i) + ": " + std::to_string(sum[i]) +
               " where one process has " + std::to_string(expected));
      }
    }
    device_.write(std::vector<float>(count));  // zeros stay zeros, however often they are summed
  }
  RankDevice& device() { return device_; }
  // Where results go; null: in place.
  void* into() { return shape_.ranks == 1 && !shape_.placed ? device_.other() : nullptr; }
  bool in_windows() const {
    return plan_.find("in windows of symmetric memory") != std::string::npos;
  }

 private:
  void use_memory_of_job() {
    auto options = sized<parallax_buffer_options_t>();
    options.memory = PARALLAX_MEMORY_CUDA;
    options.device = static_cast<uint32_t>(device_number_);
    options.symmetric = 1;
    void* memory = nullptr;
    check(parallax_buffer_alloc(job_, shape_.bytes.back(), &options, &memory));
    device_.use(memory);
  }

  const uint32_t rank_;
  const int device_number_;
  const Shape& shape_;
  RankDevice device_;
  parallax_job_t* job_ = nullptr;
  std::string plan_;
};

// NCCL's own communicator of the same devices.
class Raw {
 public:
  Raw(uint32_t rank, uint32_t ranks, const ncclUniqueId& id, RankDevice& device)
      : nccl_(RawLibraries::get().nccl), device_(device) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (nccl_.ncclCommInitRankConfig(&communicator_, static_cast<int>(ranks), id,
                                     static_cast<int>(rank), &config) != ncclSuccess) {
      failed("ncclCommInitRankConfig");
    }
  }
  ~Raw() { nccl_.ncclCommDestroy(communicator_); }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;

  double reduce(size_t bytes, void* into) {
    const double start = now_us();
    if (nccl_.ncclAllReduce(device_.memory(), into == nullptr ? device_.memory() : into,
                            bytes / sizeof(float), ncclFloat32, ncclSum, communicator_,
                            device_.stream) != ncclSuccess) {
      failed("ncclAllReduce");
    }
    device_.wait();
    return now_us() - start;
  }

 private:
  const NcclApi& nccl_;
  RankDevice& device_;
  ncclComm_t communicator_ = nullptr;
};

// What ranks have in common, threads and processes alike: made before there are any.
class Meeting {
 public:
  static constexpr size_t kIdsMost = 16;

  static Meeting& of(uint32_t ranks) {
    void* const memory =
        mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) failed("mmap");
    return *new (memory) Meeting(ranks);
  }
  void wait() { pthread_barrier_wait(&barrier_); }
  // Rank 0's, which has to live as long as communicators form.
  const ncclUniqueId& id(uint32_t rank, size_t which) {
    if (rank == 0 && RawLibraries::get().nccl.ncclGetUniqueId(&ids_[which]) != ncclSuccess) {
      failed("ncclGetUniqueId");
    }
    wait();
    return ids_[which];
  }

 private:
  explicit Meeting(uint32_t ranks) {
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&barrier_, &shared, ranks);
    pthread_barrierattr_destroy(&shared);
  }

  pthread_barrier_t barrier_;
  ncclUniqueId ids_[kIdsMost] = {};
};

// Of one size, ours and NCCL in turns; whether ours is beyond its bound.
bool measure(uint32_t rank, int device, const Shape& shape, const std::string& rendezvous,
             size_t which, Meeting& meeting) {
  Rank own(rank, device, shape, rendezvous);
  own.expect_sums(0);
  Raw raw(rank, shape.ranks, meeting.id(rank, which), own.device());
  std::vector<double> ours, theirs;
  for (int turn = 0; turn < (shape.bound ? kWarmUps + shape.turns : 2); ++turn) {
    meeting.wait();
    const double one = own.reduce(0);
    meeting.wait();
    const double other = raw.reduce(shape.bytes[0], own.into());
    if (turn >= kWarmUps || !shape.bound) ours.push_back(one), theirs.push_back(other);
  }
  if (rank != 0) return false;
  const double mine = median(ours), nccls = median(theirs);
  const bool large = shape.bytes[0] >= kBytesJudgedByShare;
  const bool late = large ? mine > nccls * kShareMost : mine > nccls + kMoreUsMost;
  std::printf("report: %u ranks, %zu bytes%s: parallax %.1f us, NCCL %.1f us%s\n", shape.ranks,
              shape.bytes[0],
              !shape.placed      ? ""
              : own.in_windows() ? ", in windows"
                                 : ", at a place in no window",
              mine, nccls,
              !shape.judged ? ", not judged"
              : late        ? ", BEYOND ITS BOUND"
                            : "");
  std::fflush(stdout);
  return shape.judged && late;
}

// A job of one variable for each size, so that its launches wait for no other's; then the same at a
// place. Returns whether one was beyond its bound.
bool measure_all(uint32_t rank, int device, const Shape& all, const std::string& rendezvous,
                 Meeting& meeting) {
  bool slow = false;
  for (size_t i = 0; i < 2 * all.bytes.size(); ++i) {
    const bool placed = i >= all.bytes.size();
    const Shape shape = {.ranks = all.ranks,
                         .bound = all.bound,
                         .turns = all.turns,
                         .judged = all.judged && all.ranks > 1 && !placed,
                         .placed = placed,
                         .bytes = {all.bytes[i % all.bytes.size()]}};
    slow |= measure(rank, device, shape, rendezvous + std::to_string(i), i, meeting);
  }
  return slow;
}

int run_on_devices(Shape shape) {
  shape.ranks = static_cast<uint32_t>(RawLibraries::get().devices);
  Meeting& meeting = Meeting::of(shape.ranks);
  std::vector<std::thread> threads;
  bool slow = false;  // of rank 0
  for (uint32_t rank = 0; rank < shape.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const bool late =
          measure_all(rank, static_cast<int>(rank), shape, "inproc:gpu_allreduce", meeting);
      if (rank == 0) slow = late;
    });
  }
  for (std::thread& each : threads) each.join();
  return slow ? 1 : 0;
}

[[noreturn]] void be_process(uint32_t rank, const Shape& shape, const std::string& folder,
                             Meeting& meeting) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("NCCL_HOSTID", ("parallax" + std::to_string(rank)).c_str(), 1);
  static_cast<void>(RawLibraries::get());
  {
    Rank own(rank, 0, shape, "file:" + folder + "/all");
    for (size_t i = 0; i < shape.bytes.size(); ++i) own.expect_sums(i);
  }
  measure_all(rank, 0, shape, "file:" + folder + "/", meeting);
  std::fflush(nullptr);
  std::_Exit(0);
}

// Forks before anything has to do with a driver: such a process could not. The first that fails
// ends the others, which would wait for it.
int run_on_one(Shape shape, uint32_t ranks) {
  shape.ranks = ranks;
  shape.judged = false;  // the device runs one process after the other
  shape.turns = kSharedTurns;
  const std::string folder = std::filesystem::temp_directory_path() / "parallax_gpu_XXXXXX";
  std::string made = folder;
  if (mkdtemp(made.data()) == nullptr) failed("mkdtemp");
  std::filesystem::create_directory(made + "/all");
  for (size_t i = 0; i < 2 * shape.bytes.size(); ++i) {
    std::filesystem::create_directory(made + "/" + std::to_string(i));
  }
  Meeting& meeting = Meeting::of(ranks);
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) be_process(rank, shape, made, meeting);
    if (child < 0) failed("fork");  // those that are there end with this process
    children.push_back(child);
  }
  int worst = 0;
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    std::erase(children, wait(&status));
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    if (code != 0 && worst == 0) {
      worst = code;
      for (const pid_t other : children) kill(other, SIGKILL);
    }
  }
  std::filesystem::remove_all(made);
  if (worst == 0) std::printf("report: %u ranks on one device sum as one process does\n", ranks);
  if (worst == kNotRun) not_run("no driver, no NCCL or no device");
  return worst;
}

int run(const std::vector<std::string>& words) {
  Shape shape;
  shape.bound = std::find(words.begin(), words.end(), "--unbound") == words.end();
  shape.bytes = {4, 4096, 65536, 1 << 20};
  shape.judged = shape.bound;
  if (shape.bound) shape.bytes.insert(shape.bytes.end(), {16 << 20, 128 << 20});
  if (!words.empty() && words[0] == "devices") return run_on_devices(shape);
  if (words.size() >= 2 && words[0] == "shared") {
    return run_on_one(shape, static_cast<uint32_t>(std::stoul(words[1])));
  }
  std::fprintf(stderr, "usage: parallax_gpu_allreduce devices|shared N [--unbound]\n");
  return 2;
}

}  // namespace
}  // namespace parallax::gpu_test

int main(int count, char** words) {
  try {
    return parallax::gpu_test::run({words + 1, words + count});
  } catch (const std::exception& error) {
    parallax::gpu_test::failed(error.what());
  }
}
