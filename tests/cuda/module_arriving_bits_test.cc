// SPDX-License-Identifier: Apache-2.0
// Rows that are summed, and sent, while they come from their devices: the bits of slices in host
// memory, on whatever way they go.
#include <cstring>
#include <memory>
#include <string>

#include "base/number.h"
#include "cuda/module_arriving_rows.h"

namespace cuda_double_test::arriving {
namespace {

// What the ranks of the tests below give in a step.
struct Kind {
  bool managed = true;
  uint32_t calls = 1;
  uint32_t plan = PARALLAX_PLAN_AUTO;
  bool half = false;
  bool narrow = false;
  bool every_row = false;  // beside it a dense slice of the same size, of a variable with ids too
  uint32_t deterministic = 1;
  uint32_t world = 3;
  const char* least_coalesced = "1G";
  uint32_t steps = 1;
};

class ArrivingRowBits : public ModuleArriving {
 protected:
  // A slice of a rank, on its device or not.
  struct Slice {
    Slice(const DeviceRank& own, const Kind& kind, uint32_t seed, bool on_device) {
      std::vector<float> numbers = values_of(seed);
      // Whatever their order the sums of whole numbers are the same.
      for (float& each : numbers) {
        if (kind.deterministic == 0) each = static_cast<float>(static_cast<int>(each));
      }
      for (const float each : numbers) halves.push_back(parallax::to_half(each).bits);
      ids = ids_of(seed);
      narrow.assign(ids.begin(), ids.end());
      floats = numbers;
      slice = own.slice(0, kind.half ? static_cast<void*>(halves.data()) : floats.data());
      slice.form = PARALLAX_FORM_ROWS;
      slice.row_count = kTokens;
      slice.as_dtype = PARALLAX_AS(kind.half ? PARALLAX_F16 : PARALLAX_F32);
      slice.ids = kind.narrow ? nullptr : ids.data();
      slice.ids_i32 = kind.narrow ? narrow.data() : nullptr;
      if (!on_device) {
        slice.memory = PARALLAX_MEMORY_HOST;
        slice.device = 0;
        return;
      }
      if (kind.half) {
        halves_there = std::make_unique<DeviceNumbers<uint16_t>>(halves);
        slice.values = halves_there->address();
      } else {
        floats_there = std::make_unique<DeviceNumbers<float>>(floats);
        slice.values = floats_there->address();
      }
      ids_there = std::make_unique<DeviceNumbers<int64_t>>(ids);
      narrow_there = std::make_unique<DeviceNumbers<int32_t>>(narrow);
      if (kind.narrow) {
        slice.ids_i32 = static_cast<const int32_t*>(narrow_there->address());
      } else {
        slice.ids = static_cast<const int64_t*>(ids_there->address());
      }
    }
    std::vector<float> floats;
    std::vector<uint16_t> halves;
    std::vector<int64_t> ids;
    std::vector<int32_t> narrow;
    std::unique_ptr<DeviceNumbers<float>> floats_there;
    std::unique_ptr<DeviceNumbers<uint16_t>> halves_there;
    std::unique_ptr<DeviceNumbers<int64_t>> ids_there;
    std::unique_ptr<DeviceNumbers<int32_t>> narrow_there;
    parallax_slice_t slice = {};
  };

  static void register_all(const DeviceRank& own, const Kind& kind) {
    auto variable = sized<parallax_variable_t>();
    variable.rows = kRows;
    variable.row_elements = kWidth;
    variable.rows_max = kTokens;
    variable.tag = PARALLAX_SPARSE;
    variable.accumulate = kind.calls > 1 ? 1 : 0;
    if (kind.managed) variable.rule = PARALLAX_RULE_SGD;
    uint32_t id = 0;
    variable.name = "first";
    check(parallax_register(own.job, &variable, &id));
    if (!kind.every_row) return;
    variable.name = "second";
    check(parallax_register(own.job, &variable, &id));
  }

  // One step; what the rank sees of it.
  static std::vector<float> step(const DeviceRank& own, const Kind& kind, uint32_t number,
                                 bool on_device) {
    std::vector<std::unique_ptr<Slice>> given;
    std::vector<parallax_request_t*> requests;
    std::vector<float> every(kRows * kWidth);
    for (uint64_t i = 0; i < every.size(); ++i) {
      every[i] = static_cast<float>((i * 40503u + own.rank) % 8191);
    }
    const DeviceNumbers<float> every_there(every);
    const uint64_t step = own.begin();
    for (uint32_t call = 0; call < kind.calls; ++call) {
      const uint32_t seed = own.rank + 10 * call + 100 * number;
      given.push_back(std::make_unique<Slice>(own, kind, seed, on_device));
      given.back()->slice.more = call + 1 < kind.calls ? 1 : 0;
      parallax_slice_t slices[] = {given.back()->slice, own.slice(1, every_there.address())};
      if (!on_device) {
        slices[1].memory = PARALLAX_MEMORY_HOST;
        slices[1].device = 0;
        slices[1].values = every.data();
      }
      requests.push_back(nullptr);
      check((kind.managed ? parallax_push : parallax_reduce)(
          own.job, step, slices, kind.every_row ? 2 : 1, &requests.back()));
    }
    requests.push_back(end(own, step));
    check(parallax_wait(requests.data(), requests.size(), PARALLAX_WAIT_DEFAULT));
    std::vector<float> seen;
    if (!kind.managed) seen = rows_of(requests[kind.calls - 1]);
    DeviceRank::finish(requests);
    if (kind.managed) seen = pull_all(own);
    if (!kind.every_row) return seen;
    const std::vector<float> second = kind.managed ? pull_all(own, 1)
                                      : on_device  ? every_there.values()
                                                   : every;
    seen.insert(seen.end(), second.begin(), second.end());
    return seen;
  }

  static void expect_same(const Kind& kind) {
    SCOPED_TRACE("managed " + std::to_string(kind.managed) + ", calls " +
                 std::to_string(kind.calls) + ", plan " + std::to_string(kind.plan) + ", half " +
                 std::to_string(kind.half) + ", narrow " + std::to_string(kind.narrow) +
                 ", world " + std::to_string(kind.world) + ", deterministic " +
                 std::to_string(kind.deterministic) + ", coalesced from " + kind.least_coalesced);
    const EnvironmentVariable least("PARALLAX_DEVICE_COALESCE_MIN_BYTES", kind.least_coalesced);
    std::vector<std::vector<float>> seen[2];
    for (const bool on_device : {false, true}) {
      seen[on_device ? 1 : 0].resize(kind.world);
      run(
          kind.world, [&](DeviceRank& own) { register_all(own, kind); },
          [&](DeviceRank& own) {
            std::vector<float>& all = seen[on_device ? 1 : 0][own.rank];
            for (uint32_t i = 0; i < kind.steps; ++i) {
              const std::vector<float> more = step(own, kind, i, on_device);
              all.insert(all.end(), more.begin(), more.end());
            }
          },
          [&](parallax_options_t* options) {
            static const char* const kHosts[] = {"one", "two", "two"};
            options->host = kHosts[options->rank];
            options->plan_mode = kind.plan;
            options->deterministic = kind.deterministic;
          });
    }
    for (uint32_t rank = 0; rank < kind.world; ++rank) {
      const std::vector<float>&host = seen[0][rank], &device = seen[1][rank];
      ASSERT_EQ(host.size(), device.size());
      EXPECT_EQ(std::memcmp(host.data(), device.data(), host.size() * sizeof(float)), 0) << rank;
    }
  }
};

// Rows of slices with duplicates and padding, that a rank sums while they come and a leader of two
// hosts sends on: the bits of slices in host memory.
TEST_F(ArrivingRowBits, OfPushesAreThoseOfTheHost) {
  cuda_double_set_delay(5, 60);
  expect_same({.plan = PARALLAX_PLAN_PS, .steps = 2});
  expect_same({.plan = PARALLAX_PLAN_PS, .least_coalesced = "0"});
  expect_same({.plan = PARALLAX_PLAN_AR, .narrow = true, .world = 2});
}

TEST_F(ArrivingRowBits, OfReducesAreThoseOfTheHost) {
  cuda_double_set_delay(6, 60);
  expect_same({.managed = false, .least_coalesced = "0", .steps = 2});
  expect_same({.managed = false, .narrow = true, .world = 2});
}

TEST_F(ArrivingRowBits, OfHalvesAndAtAnyOrder) {
  expect_same({.half = true, .world = 2});
  expect_same({.deterministic = 0, .world = 2});
  expect_same({.world = 1});
}

// What goes into a rank's sum of the step first is there as a whole before it is taken.
TEST_F(ArrivingRowBits, OfSeveralCallsOfAStep) {
  expect_same({.calls = 2, .world = 2});
  expect_same({.managed = false, .calls = 2, .world = 2});
}

// Every row of a variable, in one call with rows of another.
TEST_F(ArrivingRowBits, OfEveryRow) {
  expect_same({.every_row = true, .world = 2});
  expect_same({.managed = false, .every_row = true, .world = 2});
}

}  // namespace
}  // namespace cuda_double_test::arriving
