// SPDX-License-Identifier: Apache-2.0
// Jobs whose devices sum among themselves: libparallax.so, the module, and the doubles of the
// driver and of NCCL, which execute a reduction when its streams come to it and tell of launches
// that differ. Ranks are threads, a device each.
#include <map>
#include <memory>

#include "cuda/module_ranks.h"

namespace cuda_double_test {
namespace {

class ModuleNccl : public NcclJobs {
 protected:
  static constexpr const char* kCounted[] = {"cuMemcpyDtoHAsync_v2", "ncclGroupEnd",
                                             "ncclGetUniqueId"};
  void SetUp() override {
    NcclJobs::SetUp();
    for (const char* function : kCounted) before_[function] = cuda_double_calls(function);
  }
  uint64_t calls_since(const std::string& function) {
    return cuda_double_calls(function.c_str()) - before_.at(function);
  }

 private:
  std::map<std::string, uint64_t> before_;
};

// Steps in which the gradient is written by work on the rank's stream, which takes its time, before
// the call; what is put on the stream after the wait reads the result.
void run_steps(const DeviceRank& own) {
  const Stream stream;
  const std::vector<float> zeros(kCount);
  const DeviceNumbers<float> source(zeros), values(zeros), into(zeros), seen(zeros);
  for (uint32_t t = 1; t <= 5; ++t) {
    const uint64_t step = own.begin();
    for (uint64_t i = 0; i < kCount; ++i) {
      source.host()[i] = static_cast<float>(t * (own.rank + 1) + i);
    }
    enqueue_copy(values, source, stream.get());
    parallax_slice_t slice = own.slice(0, values.address(), stream.get());
    slice.into = into.address();
    DeviceRank::finish({own.reduce(step, slice)});
    enqueue_copy(seen, into, stream.get());
    DeviceRank::finish({own.end(step)});
    while (cuStreamQuery(stream.get()) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
    for (uint64_t i = 0; i < kCount; ++i) {
      const uint64_t ranks = own.world;
      EXPECT_EQ(seen.host()[i], static_cast<float>(t * ranks * (ranks + 1) / 2 + ranks * i));
      EXPECT_EQ(values.host()[i], source.host()[i]) << "the gradient stays";
    }
  }
}

TEST_F(ModuleNccl, DevicesSumAmongThemselvesBehindTheCallersStreams) {
  for (uint32_t world = 1; world <= 4; ++world) {
    for (const uint64_t seed : {1, 2}) {
      cuda_double_set_delay(seed * world, 300);
      run(
          world, [](DeviceRank& own) { own.add("w"); }, run_steps);
      cuda_double_set_delay(0, 0);
    }
  }
  EXPECT_EQ(launched(), 2u * 5 * (1 + 2 + 3 + 4)) << "a launch a rank and step";
  EXPECT_EQ(calls_since("cuMemcpyDtoHAsync_v2"), 0u) << "nothing comes to the host";
}

// Given a rank whose stream is held, expect that its reduction and nothing else waits for it.
TEST_F(ModuleNccl, AHeldStreamHoldsTheReductionAndNotTheCall) {
  run(
      1, [](DeviceRank& own) { own.add("w"); },
      [](DeviceRank& own) {
        const Stream stream;
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1)),
            later(std::vector<float>(kCount, 5));
        cuda_double_hold(stream.get(), 1);
        enqueue_copy(values, later, stream.get());
        const uint64_t step = own.begin();
        parallax_request_t* request =
            own.reduce(step, own.slice(0, values.address(), stream.get()));
        EXPECT_EQ(DeviceRank::wait(request, 30), PARALLAX_TIMEOUT);
        EXPECT_NE(std::string(parallax_last_error()).find("'w' among the devices"),
                  std::string::npos)
            << parallax_last_error();
        cuda_double_hold(stream.get(), 0);
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_OK) << parallax_last_error();
        EXPECT_EQ(values.values(), std::vector<float>(kCount, 5));
        check(parallax_request_release(request));
        DeviceRank::finish({own.end(step)});
      });
}

// Every dtype, as sum and as mean, with the values that host memory gives.
template <typename T>
void sum_one(const DeviceRank& own, uint32_t variable, const std::vector<T>& mine,
             const std::vector<T>& expected) {
  const uint64_t step = own.begin();
  const DeviceNumbers<T> values(mine);
  DeviceRank::finish({own.reduce(step, own.slice(variable, values.address())), own.end(step)});
  EXPECT_EQ(values.values(), expected) << "variable " << variable;
}

TEST_F(ModuleNccl, EveryDtypeAsSumAndMean) {
  run(
      2,
      [](DeviceRank& own) {
        own.add("f32 mean", PARALLAX_F32, PARALLAX_MEAN_WORLD);
        own.add("f64", PARALLAX_F64);
        own.add("f16", PARALLAX_F16);
        own.add("bf16 mean", PARALLAX_BF16, PARALLAX_MEAN_WORLD);
        own.add("i32", PARALLAX_I32);
        own.add("i64", PARALLAX_I64);
      },
      [](DeviceRank& own) {
        const bool second = own.rank == 1;
        const auto all = [](auto value) { return std::vector<decltype(value)>(kCount, value); };
        sum_one(own, 0, all(second ? 4.0f : 1.0f), all(2.5f));
        sum_one(own, 1, all(second ? 0.25 : 0.5), all(0.75));
        sum_one(own, 2, all(uint16_t{0x3c00}), all(uint16_t{0x4000}));
        sum_one(own, 3, all(uint16_t(second ? 0x4080 : 0x4000)), all(uint16_t{0x4040}));
        sum_one(own, 4, all(second ? INT32_MAX : 1), all(INT32_MIN));
        sum_one(own, 5, all(int64_t{1} << 40), all(int64_t{1} << 41));
      });
}

// Given bf16 gradients of an f32 variable, and f32 ones of an f16 variable, written by work on a
// stream that takes its time, expect devices to convert them, in place and into another buffer, and
// what is behind a stream's wait to read the result. Nothing comes to the host.
TEST_F(ModuleNccl, SlicesOfAnotherDtypeAreConvertedOnTheirDevice) {
  for (const uint64_t seed : {0, 3}) {
    cuda_double_set_delay(seed, seed == 0 ? 0 : 300);
    run(
        2,
        [](DeviceRank& own) {
          own.add("w");
          own.add("half", PARALLAX_F16);
        },
        [](DeviceRank& own) {
          const Stream stream, reader;
          const std::vector<uint16_t> threes(kCount, 0x4040), none(kCount, 0);  // 3 in bf16
          const DeviceNumbers<uint16_t> source(threes), values(none), into(none), seen(none);
          const DeviceNumbers<float> floats(std::vector<float>(kCount, 1.5f));
          for (int t = 0; t < 3; ++t) {
            EXPECT_EQ(
                cuMemcpyDtoDAsync(values.pointer(), source.pointer(), 2 * kCount, stream.get()),
                CUDA_SUCCESS);
            const uint64_t step = own.begin();
            parallax_slice_t slice = own.slice(0, values.address(), stream.get());
            slice.as_dtype = PARALLAX_AS(PARALLAX_BF16);
            slice.into = into.address();
            parallax_slice_t second = own.slice(1, floats.address());
            second.as_dtype = PARALLAX_AS(PARALLAX_F32);
            parallax_request_t* requests[] = {own.reduce(step, slice), own.reduce(step, second)};
            EXPECT_EQ(parallax_stream_wait(requests, 2, own.device(), reader.get(), 5000),
                      PARALLAX_OK)
                << parallax_last_error();
            EXPECT_EQ(cuMemcpyDtoDAsync(seen.pointer(), into.pointer(), 2 * kCount, reader.get()),
                      CUDA_SUCCESS);
            DeviceRank::finish({requests[0], requests[1], own.end(step)});
            while (cuStreamQuery(reader.get()) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
            EXPECT_EQ(seen.values(), std::vector<uint16_t>(kCount, 0x40c0)) << "6 in bf16";
            EXPECT_EQ(values.values(), threes) << "the gradient stays";
            EXPECT_EQ(floats.values(), std::vector<float>(kCount, 1.5f * float(2 << t)));
          }
        });
    cuda_double_set_delay(0, 0);
  }
  EXPECT_EQ(calls_since("cuMemcpyDtoHAsync_v2"), 0u) << "nothing comes to the host";
}

// Calls in opposite orders, small variables beside large ones: one order of launches, and those
// that are small together.
TEST_F(ModuleNccl, LaunchesHaveOneOrderWhateverOrderCallsHave) {
  const uint64_t large = 40000;  // 160 KB: by itself
  run(
      3,
      [&](DeviceRank& own) {
        own.add("a");
        own.add("b");
        own.add("c", PARALLAX_F32, PARALLAX_SUM, large);
        own.add("d");
        own.add("e");
      },
      [&](DeviceRank& own) {
        std::vector<std::unique_ptr<DeviceNumbers<float>>> numbers;
        for (int i = 0; i < 5; ++i) {
          numbers.push_back(std::make_unique<DeviceNumbers<float>>(
              std::vector<float>(i == 2 ? large : kCount, static_cast<float>(i + 1))));
        }
        const uint64_t step = own.begin();
        std::vector<parallax_request_t*> requests;
        for (uint32_t k = 0; k < 5; ++k) {
          const uint32_t variable = (own.rank % 2 == 0 ? k : 4 - k);
          requests.push_back(own.reduce(step, own.slice(variable, numbers[variable]->address())));
        }
        requests.push_back(own.end(step));
        DeviceRank::finish(requests);
        for (int i = 0; i < 5; ++i) {
          EXPECT_EQ(numbers[i]->host()[kCount - 1], static_cast<float>(3 * (i + 1))) << i;
        }
      });
  EXPECT_EQ(launched(), 3u * 5);
  EXPECT_EQ(calls_since("ncclGroupEnd"), 3u * 2) << "a and b, d and e";
}

TEST_F(ModuleNccl, WhoGivesNothingTakesPartWithZeros) {
  run(
      3,
      [](DeviceRank& own) {
        own.add("w");
        own.add("v");
      },
      [](DeviceRank& own) {
        const uint64_t first = own.begin();
        const DeviceNumbers<float> values(std::vector<float>(kCount, own.rank == 1 ? 7.f : 9.f));
        std::vector<parallax_request_t*> requests;
        if (own.rank == 1) requests.push_back(own.reduce(first, own.slice(1, values.address())));
        requests.push_back(own.end(first, own.rank == 1 ? 0 : 1));
        DeviceRank::finish(requests);
        EXPECT_EQ(values.host()[0], own.rank == 1 ? 7.f : 9.f);
        const uint64_t second = own.begin();
        DeviceRank::finish({own.reduce(second, own.slice(0, values.address())), own.end(second)});
        EXPECT_EQ(values.host()[0], 25.f);
      });
}

TEST_F(ModuleNccl, LateVariablesJoinTheOrder) {
  run(
      2, [](DeviceRank& own) { own.add("w"); },
      [](DeviceRank& own) {
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1)),
            late(std::vector<float>(kCount, 2));
        uint64_t step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(0, values.address())), own.end(step)});
        const uint32_t id = own.add("late");
        check(parallax_commit(own.job));
        step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(id, late.address())),
                            own.reduce(step, own.slice(0, values.address())), own.end(step)});
        EXPECT_EQ(values.host()[0], 4.f);
        EXPECT_EQ(late.host()[0], 4.f);
      });
  EXPECT_EQ(calls_since("ncclGetUniqueId"), 1u);
}

TEST_F(ModuleNccl, ThePlanSaysWhatCarriesAndWhyNot) {
  run(
      1,
      [](DeviceRank& own) {
        own.add("w");
        own.add("counted", PARALLAX_F32, PARALLAX_MEAN_CONTRIBUTORS);
      },
      [](DeviceRank& own) {
        const std::string plan = own.report(PARALLAX_REPORT_PLAN);
        EXPECT_NE(plan.find("among the devices, by NCCL 2."), std::string::npos) << plan;
        EXPECT_NE(plan.find("its mean is over the ranks that contribute"), std::string::npos)
            << plan;
      });
}

}  // namespace
}  // namespace cuda_double_test
