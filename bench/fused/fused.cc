// SPDX-License-Identifier: Apache-2.0
// One call of many variables beside one buffer of as many bytes: 100 dense variables of 1 KB to
// 1 MB, evenly on a logarithmic scale, 14.7 MB in all, reduced by one call, by a call each, and as
// one variable. The three take turns, so that what the machine does besides hits all alike; every
// value of the first and the last turn is checked. Times are rank 0's, of a whole step. Start it by
// `parallax run`:
//
//   parallax run -n 2 parallax_fused [alloc|private] [turns] [alignment]
//
// Each variable begins at a multiple of `alignment` bytes, a power of two; 4: right behind the one
// before it.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../calls.h"
#include "parallax/parallax.h"

namespace parallax::fused {
namespace {

constexpr uint32_t kVariables = 100;
constexpr uint32_t kWarmups = 20;
constexpr std::array<const char*, 3> kWays = {"one call", "a call each", "one buffer"};

using bench::expect;
using bench::fail;

class Fused {
 public:
  Fused(bool alloc, uint64_t alignment) {
    parallax_options_t options = {};
    options.size = sizeof options;
    options.rendezvous = "env";
    expect(parallax_open(&options, &job_), "open");
    for (uint32_t i = 0; i < kVariables; ++i) {
      const double bytes = 1024 * std::pow(1024, static_cast<double>(i) / (kVariables - 1));
      elements_.push_back(static_cast<uint64_t>(bytes) / sizeof(float));
      total_ += elements_.back();
    }
    for (uint32_t i = 0; i <= kVariables; ++i) {
      const std::string name = "variable" + std::to_string(1000 + i);
      parallax_variable_t variable = {};
      variable.size = sizeof variable;
      variable.name = name.c_str();
      variable.rows = i < kVariables ? elements_[i] : total_;
      variable.row_elements = 1;
      variable.dtype = PARALLAX_F32;
      variable.tag = PARALLAX_DENSE;
      variable.reduction = PARALLAX_SUM;
      uint32_t id = 0;
      expect(parallax_register(job_, &variable, &id), "register");
    }
    expect(parallax_commit(job_), "commit");
    parallax_job_info_t info = {};
    info.size = offsetof(parallax_job_info_t, hosts) + sizeof info.hosts;
    expect(parallax_query(job_, &info), "query");
    rank_ = info.rank;
    world_ = info.world;
    const uint64_t unit = alignment / sizeof(float);
    for (const uint64_t each : elements_) {
      begins_.push_back((room_ + unit - 1) / unit * unit);
      room_ = begins_.back() + each;
    }
    const size_t bytes = room_ * sizeof(float);
    void* memory = nullptr;
    if (alloc) {
      expect(parallax_buffer_alloc(job_, bytes, nullptr, &memory), "buffer_alloc");
    } else if (posix_memalign(&memory, 4096, bytes) != 0) {
      fail("no memory");
    }
    values_ = static_cast<float*>(memory);
    begins_.push_back(0);
    elements_.push_back(total_);
    for (uint32_t i = 0; i <= kVariables; ++i) {
      parallax_slice_t& slice = slices_.emplace_back();
      slice = {};
      slice.size = sizeof slice;
      slice.variable = i;
      slice.form = PARALLAX_FORM_DENSE;
      slice.values = values_ + begins_[i];
    }
  }

  // A step; us.
  double step(size_t way, bool check) {
    for (uint64_t i = 0; i < room_; ++i) values_[i] = value_of(rank_, i);
    parallax_request_t* barrier = nullptr;
    expect(parallax_barrier(job_, &barrier), "barrier");
    expect(parallax_wait(&barrier, 1, PARALLAX_WAIT_DEFAULT), "wait");
    expect(parallax_request_release(barrier), "release");
    const auto start = std::chrono::steady_clock::now();
    uint64_t number = 0;
    expect(parallax_step_begin(job_, &number), "step_begin");
    std::vector<parallax_request_t*> requests;
    const auto reduce = [&](const parallax_slice_t* slices, size_t count) {
      requests.emplace_back();
      expect(parallax_reduce(job_, number, slices, count, &requests.back()), "reduce");
    };
    if (way == 0) reduce(slices_.data(), kVariables);
    for (uint32_t i = 0; way == 1 && i < kVariables; ++i) reduce(&slices_[i], 1);
    if (way == 2) reduce(&slices_[kVariables], 1);
    parallax_step_end_options_t options = {};
    options.size = sizeof options;
    requests.emplace_back();
    expect(parallax_step_end(job_, number, &options, &requests.back()), "step_end");
    expect(parallax_wait(requests.data(), requests.size(), PARALLAX_WAIT_DEFAULT), "wait");
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    for (parallax_request_t* each : requests) expect(parallax_request_release(each), "release");
    if (check && way == 2) check_sums(kVariables);
    for (uint32_t i = 0; check && way != 2 && i < kVariables; ++i) check_sums(i);
    return took.count();
  }

  uint32_t rank() const { return rank_; }
  uint64_t bytes() const { return total_ * sizeof(float); }
  void close() { expect(parallax_close(job_), "close"); }

 private:
  void check_sums(uint32_t variable) const {
    for (uint64_t i = begins_[variable]; i < begins_[variable] + elements_[variable]; ++i) {
      float sum = 0;
      for (uint32_t rank = 0; rank < world_; ++rank) sum += value_of(rank, i);
      if (values_[i] != sum) fail("element " + std::to_string(i) + " is wrong");
    }
  }
  static float value_of(uint32_t rank, uint64_t element) {
    return static_cast<float>((element * 7 + rank * 3) % 1024);
  }

  parallax_job_t* job_ = nullptr;
  std::vector<uint64_t> elements_, begins_;  // of the variables, and of all as one
  uint64_t total_ = 0, room_ = 0;            // elements, without gaps and with them
  uint32_t rank_ = 0, world_ = 1;
  float* values_ = nullptr;
  std::vector<parallax_slice_t> slices_;
};

double quantile(std::vector<double> times, double at) {
  std::sort(times.begin(), times.end());
  return times[static_cast<size_t>(at * static_cast<double>(times.size() - 1))];
}

int run(int argc, char** argv) {
  const std::string memory = argc > 1 ? argv[1] : "alloc";
  const auto turns = static_cast<uint32_t>(argc > 2 ? std::atoi(argv[2]) : 200);
  const uint64_t alignment = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : sizeof(float);
  if (alignment < sizeof(float) || (alignment & (alignment - 1)) != 0) {
    fail("alignment: a power of two, 4 or more");
  }
  Fused fused(memory == "alloc", alignment);
  std::array<std::vector<double>, kWays.size()> times;
  for (uint32_t turn = 0; turn < kWarmups + turns; ++turn) {
    for (size_t way = 0; way < kWays.size(); ++way) {
      const double us = fused.step(way, turn == 0 || turn + 1 == kWarmups + turns);
      if (turn >= kWarmups) times[way].push_back(us);
    }
  }
  for (size_t way = 0; fused.rank() == 0 && way < kWays.size(); ++way) {
    std::printf("%s memory, %llu bytes, %-11s  p50 %9.1f us  p99 %9.1f us  %.2f of one buffer\n",
                memory.c_str(), static_cast<unsigned long long>(fused.bytes()), kWays[way],
                quantile(times[way], 0.5), quantile(times[way], 0.99),
                quantile(times[way], 0.5) / quantile(times[2], 0.5));
  }
  fused.close();
  return 0;
}

}  // namespace
}  // namespace parallax::fused

int main(int argc, char** argv) { return parallax::fused::run(argc, argv); }
