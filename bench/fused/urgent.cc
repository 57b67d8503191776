// SPDX-License-Identifier: Apache-2.0
// A small variable that is given while a large one is under way: how long its reduce takes, and the
// whole step, without priority and with. Both take turns, as variables of one job; every value of
// the first and the last turn is checked. Times are rank 0's. Start it by `parallax run`, or a rank
// in each of some network namespaces:
//
//   parallax run -n 2 parallax_urgent [MiB] [turns] [ms between both calls] [priority]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "../calls.h"
#include "parallax/parallax.h"

namespace parallax::urgent {
namespace {

constexpr uint64_t kSmallElements = 1024;
constexpr uint32_t kWarmups = 2;
constexpr std::array<const char*, 2> kWays = {"as given", "urgent"};
using Clock = std::chrono::steady_clock;

using bench::expect;
using bench::fail;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Times {
  double small_ms = 0, step_ms = 0;
};

class Urgent {
 public:
  Urgent(uint64_t large_elements, int32_t priority) {
    parallax_options_t options = {};
    options.size = sizeof options;
    options.rendezvous = "env";
    expect(parallax_open(&options, &job_), "open");
    add("large", large_elements, 0);
    for (size_t way = 0; way < kWays.size(); ++way) {
      add(kWays[way], kSmallElements, way == 0 ? 0 : priority);
    }
    expect(parallax_commit(job_), "commit");
    parallax_job_info_t info = {};
    info.size = offsetof(parallax_job_info_t, hosts) + sizeof info.hosts;
    expect(parallax_query(job_, &info), "query");
    rank_ = info.rank;
    world_ = info.world;
  }

  Times step(size_t way, std::chrono::milliseconds between, bool check) {
    const auto small = static_cast<uint32_t>(1 + way);
    for (const uint32_t variable : {0u, small}) {
      std::vector<float>& values = values_[variable];
      for (uint64_t i = 0; i < values.size(); ++i) values[i] = value_of(rank_, i);
    }
    std::array<parallax_request_t*, 4> requests = {};
    expect(parallax_barrier(job_, &requests[0]), "barrier");
    expect(parallax_wait(requests.data(), 1, PARALLAX_WAIT_DEFAULT), "wait");
    const auto start = Clock::now();
    uint64_t number = 0;
    expect(parallax_step_begin(job_, &number), "step_begin");
    reduce(number, 0, &requests[1]);
    std::this_thread::sleep_for(between);
    const auto given = Clock::now();
    Times times;
    reduce(number, small, &requests[2]);
    expect(parallax_wait(&requests[2], 1, PARALLAX_WAIT_DEFAULT), "wait");
    times.small_ms = ms_since(given);
    parallax_step_end_options_t end = {};
    end.size = sizeof end;
    expect(parallax_step_end(job_, number, &end, &requests[3]), "step_end");
    expect(parallax_wait(requests.data(), requests.size(), PARALLAX_WAIT_DEFAULT), "wait");
    times.step_ms = ms_since(start);
    for (parallax_request_t* each : requests) expect(parallax_request_release(each), "release");
    for (const uint32_t variable : {0u, small}) {
      for (uint64_t i = 0; check && i < values_[variable].size(); ++i) {
        float sum = 0;
        for (uint32_t rank = 0; rank < world_; ++rank) sum += value_of(rank, i);
        if (values_[variable][i] != sum) fail("element " + std::to_string(i) + " is wrong");
      }
    }
    return times;
  }

  uint32_t rank() const { return rank_; }
  void close() { expect(parallax_close(job_), "close"); }

 private:
  static float value_of(uint32_t rank, uint64_t element) {
    return static_cast<float>((element * 7 + rank * 3) % 1024);
  }
  void add(const char* name, uint64_t elements, int32_t priority) {
    parallax_variable_t variable = {};
    variable.size = sizeof variable;
    variable.name = name;
    variable.rows = elements;
    variable.row_elements = 1;
    variable.dtype = PARALLAX_F32;
    variable.tag = PARALLAX_DENSE;
    variable.priority = priority;
    uint32_t id = 0;
    expect(parallax_register(job_, &variable, &id), "register");
    values_.emplace_back(elements);
  }
  void reduce(uint64_t number, uint32_t variable, parallax_request_t** request) {
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.variable = variable;
    slice.form = PARALLAX_FORM_DENSE;
    slice.values = values_[variable].data();
    expect(parallax_reduce(job_, number, &slice, 1, request), "reduce");
  }

  parallax_job_t* job_ = nullptr;
  uint32_t rank_ = 0, world_ = 1;
  std::vector<std::vector<float>> values_;  // by variable
};

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

int run(int argc, char** argv) {
  const auto mib = static_cast<uint64_t>(argc > 1 ? std::atoi(argv[1]) : 64);
  const auto turns = static_cast<uint32_t>(argc > 2 ? std::atoi(argv[2]) : 9);
  const std::chrono::milliseconds between(argc > 3 ? std::atoi(argv[3]) : 20);
  Urgent urgent((mib << 20) / sizeof(float), argc > 4 ? std::atoi(argv[4]) : 1);
  std::array<std::vector<double>, kWays.size()> small_ms, step_ms;
  for (uint32_t turn = 0; turn < kWarmups + turns; ++turn) {
    for (size_t way = 0; way < kWays.size(); ++way) {
      const Times times = urgent.step(way, between, turn == 0 || turn + 1 == kWarmups + turns);
      if (turn < kWarmups) continue;
      small_ms[way].push_back(times.small_ms);
      step_ms[way].push_back(times.step_ms);
    }
  }
  for (size_t way = 0; urgent.rank() == 0 && way < kWays.size(); ++way) {
    std::printf("%llu MiB and 4 KiB, %-8s  the small one %9.3f ms  the step %9.3f ms\n",
                static_cast<unsigned long long>(mib), kWays[way], median(small_ms[way]),
                median(step_ms[way]));
  }
  urgent.close();
  return 0;
}

}  // namespace
}  // namespace parallax::urgent

int main(int argc, char** argv) { return parallax::urgent::run(argc, argv); }
