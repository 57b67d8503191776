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
// memory as any: what windows gain, reported and not judged. Status 77: NOT RUN, and why.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <memory>

#include "gpu/raw_libraries.h"
#include "parallax/parallax.hpp"

namespace parallax::gpu_test {
namespace {

constexpr double kShareMost = 1.03, kMoreUsMost = 3.0;
constexpr size_t kBytesJudgedByShare = 1 << 20;
constexpr int kWarmUps = 10, kTurns = 50;

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
    const std::vector<float> sum = device_.read(count);
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

  double reduce(size_t bytes) {
    const double start = now_us();
    if (nccl_.ncclAllReduce(device_.memory(), device_.memory(), bytes / sizeof(float), ncclFloat32,
                            ncclSum, communicator_, device_.stream) != ncclSuccess) {
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

// A job of one variable, so that its launches wait for no other's.
void be_one(uint32_t rank, const Shape& all, const std::vector<ncclUniqueId>& ids,
            std::barrier<>& meet, bool* slow) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool placed = i >= all.bytes.size();
    const Shape shape = {.ranks = all.ranks,
                         .bound = all.bound,
                         .placed = placed,
                         .bytes = {all.bytes[i % all.bytes.size()]}};
    Rank own(rank, static_cast<int>(rank), shape, "inproc:gpu_allreduce" + std::to_string(i));
    own.expect_sums(0);
    Raw raw(rank, shape.ranks, ids[i], own.device());
    std::vector<double> ours, theirs;
    for (int turn = 0; turn < (shape.bound ? kWarmUps + kTurns : 2); ++turn) {
      meet.arrive_and_wait();
      const double one = own.reduce(0);
      meet.arrive_and_wait();
      const double other = raw.reduce(shape.bytes[0]);
      if (turn >= kWarmUps || !shape.bound) ours.push_back(one), theirs.push_back(other);
    }
    if (rank != 0) continue;
    const double mine = median(ours), nccls = median(theirs);
    const bool large = shape.bytes[0] >= kBytesJudgedByShare;
    const bool judged = shape.bound && !placed;
    const bool late = large ? mine > nccls * kShareMost : mine > nccls + kMoreUsMost;
    std::printf("report: %u ranks, %zu bytes%s: parallax %.1f us, NCCL %.1f us%s\n", shape.ranks,
                shape.bytes[0],
                !placed            ? ""
                : own.in_windows() ? ", in windows"
                                   : ", at a place in no window",
                mine, nccls,
                !judged ? ", not judged"
                : late  ? ", BEYOND ITS BOUND"
                        : "");
    *slow = *slow || (judged && late);
  }
}

int run_on_devices(Shape shape) {
  shape.ranks = static_cast<uint32_t>(RawLibraries::get().devices);
  std::vector<ncclUniqueId> ids(2 * shape.bytes.size());  // the second half: at a place
  for (ncclUniqueId& id : ids) {
    if (RawLibraries::get().nccl.ncclGetUniqueId(&id) != ncclSuccess) failed("ncclGetUniqueId");
  }
  std::barrier<> meet(shape.ranks);
  std::vector<std::thread> threads;
  bool slow = false;  // of rank 0
  for (uint32_t rank = 0; rank < shape.ranks; ++rank) {
    threads.emplace_back([&, rank] { be_one(rank, shape, ids, meet, &slow); });
  }
  for (std::thread& each : threads) each.join();
  return slow ? 1 : 0;
}

// Forks before anything has to do with a driver: such a process could not.
int run_on_one(Shape shape, uint32_t ranks) {
  shape.ranks = ranks;
  char folder[] = "/tmp/parallax_gpu_XXXXXX";
  if (mkdtemp(folder) == nullptr) failed("mkdtemp");
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) failed("fork");
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    setenv("NCCL_HOSTID", ("parallax" + std::to_string(rank)).c_str(), 1);
    static_cast<void>(RawLibraries::get());
    {
      Rank own(rank, 0, shape, std::string("file:") + folder);
      for (size_t i = 0; i < shape.bytes.size(); ++i) own.expect_sums(i);
    }
    std::_Exit(0);
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  rmdir(folder);
  if (worst == 0) std::printf("report: %u ranks on one device sum as one process does\n", ranks);
  if (worst == kNotRun) not_run("no driver, no NCCL or no device");
  return worst;
}

int run(const std::vector<std::string>& words) {
  Shape shape;
  shape.bound = std::find(words.begin(), words.end(), "--unbound") == words.end();
  shape.bytes = {4, 4096, 65536, 1 << 20};
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
