// SPDX-License-Identifier: Apache-2.0
// Jobs with nccl = host: the devices of a host sum among themselves, and hosts by messages. Ranks
// are threads with a device each, and hosts are names, of one rank and of several.
#include <cmath>
#include <memory>

#include "cuda/module_ranks.h"
#include "support/environment_variable.h"

namespace cuda_double_test::by_host {
namespace {

using parallax::testkit::EnvironmentVariable;

class ModuleByHost : public NcclJobs {
 protected:
  // Of each rank, which host it is on.
  using Hosts = std::vector<uint32_t>;
  static std::function<void(parallax_options_t*)> on(const Hosts& hosts) {
    return [hosts](parallax_options_t* options) {
      static const char* const kNames[] = {"alpha", "beta", "gamma", "delta"};
      options->host = kNames[hosts[options->rank]];
    };
  }
  void run_on(const Hosts& hosts, const Body& variables, const Body& body, bool closes = true) {
    run(static_cast<uint32_t>(hosts.size()), variables, body, on(hosts), closes);
  }

 private:
  EnvironmentVariable by_host_{"PARALLAX_NCCL", "host"};
};

// Of rank r, element i and step t: sums of them are exact.
float number(uint64_t rank, uint64_t i, uint64_t step) {
  return static_cast<float>((rank + 1) * step + i % 97);
}
float total(uint64_t ranks, uint64_t i, uint64_t step) {
  float sum = 0;
  for (uint64_t rank = 0; rank < ranks; ++rank) sum += number(rank, i, step);
  return sum;
}

// Sizes that shares divide and do not: none for some, one number, much more than a message.
const std::vector<uint64_t> kSizes = {1, 3, 1000, 40001};

void add_all(DeviceRank& own) {
  for (const uint64_t size : kSizes) {
    own.add(("w" + std::to_string(size)).c_str(), PARALLAX_F32, PARALLAX_SUM, size);
  }
}

// Steps with variables in another order on every other rank, each gradient written by work on the
// stream that takes its time, results elsewhere and in place.
void run_steps(const DeviceRank& own) {
  const Stream stream;
  using Numbers = std::vector<std::unique_ptr<DeviceNumbers<float>>>;
  Numbers source, values, into;
  for (const uint64_t size : kSizes) {
    const std::vector<float> zeros(size);
    for (Numbers* each : {&source, &values, &into}) {
      each->push_back(std::make_unique<DeviceNumbers<float>>(zeros));
    }
  }
  for (uint64_t t = 1; t <= 4; ++t) {
    const uint64_t step = own.begin();
    std::vector<parallax_request_t*> requests;
    for (size_t k = 0; k < kSizes.size(); ++k) {
      const size_t v = own.rank % 2 == 0 ? k : kSizes.size() - 1 - k;
      for (uint64_t i = 0; i < kSizes[v]; ++i) source[v]->host()[i] = number(own.rank, i, t);
      EXPECT_EQ(cuMemcpyDtoDAsync(values[v]->pointer(), source[v]->pointer(),
                                  kSizes[v] * sizeof(float), stream.get()),
                CUDA_SUCCESS);
      parallax_slice_t slice =
          own.slice(static_cast<uint32_t>(v), values[v]->address(), stream.get());
      if (t % 2 == 0) slice.into = into[v]->address();
      requests.push_back(own.reduce(step, slice));
    }
    requests.push_back(own.end(step));
    DeviceRank::finish(requests);
    for (size_t v = 0; v < kSizes.size(); ++v) {
      const float* result = t % 2 == 0 ? into[v]->host() : values[v]->host();
      for (uint64_t i = 0; i < kSizes[v]; ++i) {
        ASSERT_EQ(result[i], total(own.world, i, t)) << "variable " << v << ", element " << i;
        if (t % 2 == 0) {
          ASSERT_EQ(values[v]->host()[i], source[v]->host()[i]) << "kept";
        }
      }
    }
  }
}

TEST_F(ModuleByHost, EveryLayoutOfHostsSumsLikeOneProcess) {
  const Hosts layouts[] = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {0, 1, 1, 2}};
  for (const Hosts& layout : layouts) {
    for (const uint64_t seed : {0, 7}) {
      cuda_double_set_delay(seed, seed == 0 ? 0 : 200);
      run_on(layout, add_all, run_steps);
      cuda_double_set_delay(0, 0);
    }
  }
}

TEST_F(ModuleByHost, WhatIsInProgressIsSettledBeforeSharesAreCopied) {
  nccl_double_set_launch_in_progress(3);
  run_on({0, 0, 1, 1}, add_all, run_steps);
  EXPECT_FALSE(log_has("whose last operation is in progress")) << log();
}

// Each device sends its share of the sum to the host and gets the total of it, and no more.
TEST_F(ModuleByHost, SharesAloneComeToTheHost) {
  const uint64_t copies = cuda_double_calls("cuMemcpyDtoHAsync_v2");
  run_on(
      {0, 0, 1, 1}, [](DeviceRank& own) { own.add("w", PARALLAX_F32, PARALLAX_SUM, 4096); },
      [](DeviceRank& own) {
        const DeviceNumbers<float> values(std::vector<float>(4096, 1));
        const uint64_t step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(0, values.address())), own.end(step)});
        EXPECT_EQ(values.host()[4095], 4.f);
        const std::string stats = own.report(PARALLAX_REPORT_STATS);
        EXPECT_EQ(stats.find("\"sent_bytes\":0,"), std::string::npos) << stats;
      });
  EXPECT_EQ(cuda_double_calls("cuMemcpyDtoHAsync_v2") - copies, 4u) << "a share of each rank";
  EXPECT_EQ(launched(), 4u * 2) << "a reduce-scatter and an allgather";
}

TEST_F(ModuleByHost, OneHostSumsAsAWorldDoes) {
  run_on({0, 0, 0}, add_all, run_steps);
  EXPECT_EQ(launched(), 3u * 4 * kSizes.size()) << "one launch for each variable";
}

template <typename T>
void sum_one(const DeviceRank& own, uint32_t variable, const std::vector<T>& mine,
             const std::vector<T>& expected) {
  const uint64_t step = own.begin();
  const DeviceNumbers<T> values(mine);
  DeviceRank::finish({own.reduce(step, own.slice(variable, values.address())), own.end(step)});
  EXPECT_EQ(values.values(), expected) << "variable " << variable << ", rank " << own.rank;
}

// What half precision is documented to do: a host's sum in the dtype, the total in float, rounded
// once. 2048 + 1 is 2048 in f16; 2048 + 1 on one host and 1 + 1 on the other are 2050 in float.
TEST_F(ModuleByHost, EveryDtypeAsSumAndMean) {
  run_on(
      {0, 0, 1, 1},
      [](DeviceRank& own) {
        own.add("f32 mean", PARALLAX_F32, PARALLAX_MEAN_WORLD);
        own.add("f64 mean", PARALLAX_F64, PARALLAX_MEAN_WORLD);
        own.add("f16", PARALLAX_F16);
        own.add("bf16 mean", PARALLAX_BF16, PARALLAX_MEAN_WORLD);
        own.add("i32", PARALLAX_I32);
        own.add("i64", PARALLAX_I64);
        own.add("f16 mean", PARALLAX_F16, PARALLAX_MEAN_WORLD);
      },
      [](DeviceRank& own) {
        const auto all = [](auto value) { return std::vector<decltype(value)>(kCount, value); };
        sum_one(own, 0, all(own.rank == 3 ? 4.0f : 2.0f), all(2.5f));
        sum_one(own, 1, all(own.rank == 3 ? 4.0 : 2.0), all(2.5));
        sum_one(own, 2, all(uint16_t(own.rank == 0 ? 0x6800 : 0x3c00)), all(uint16_t{0x6801}));
        sum_one(own, 3, all(uint16_t(own.rank == 0 ? 0x4080 : 0x4000)), all(uint16_t{0x4020}));
        sum_one(own, 4, all(own.rank == 1 ? INT32_MAX : own.rank == 0 ? 1 : 0), all(INT32_MIN));
        sum_one(own, 5, all(int64_t{1} << 40), all(int64_t{1} << 42));
        // 4 x 16384 is more than f16 has; its mean is not.
        sum_one(own, 6, all(uint16_t(own.rank % 2 == 0 ? 0x7400 : 0x7400)), all(uint16_t{0x7400}));
      });
}

// In the first step all ranks do, which settles their devices.
bool takes_part(uint64_t rank, uint64_t step) { return step == 1 || (rank + step) % 3 != 0; }

// Ranks that give nothing in a step take part with zeros, whose memory the next launch uses.
TEST_F(ModuleByHost, ARankThatGivesNothingTakesPartWithZeros) {
  for (const uint64_t seed : {0, 3}) {
    cuda_double_set_delay(seed, seed == 0 ? 0 : 300);
    run_on({0, 0, 1, 1}, add_all, [](DeviceRank& own) {
      for (uint64_t t = 1; t <= 4; ++t) {
        const uint64_t step = own.begin();
        std::vector<parallax_request_t*> requests;
        std::vector<std::unique_ptr<DeviceNumbers<float>>> values;
        const bool gives = takes_part(own.rank, t);
        for (size_t v = 0; v < kSizes.size() && gives; ++v) {
          std::vector<float> mine(kSizes[v]);
          for (uint64_t i = 0; i < kSizes[v]; ++i) mine[i] = number(own.rank, i, t);
          values.push_back(std::make_unique<DeviceNumbers<float>>(mine));
          requests.push_back(
              own.reduce(step, own.slice(static_cast<uint32_t>(v), values[v]->address())));
        }
        requests.push_back(own.end(step));
        DeviceRank::finish(requests);
        for (size_t v = 0; v < values.size(); ++v) {
          for (uint64_t i = 0; i < kSizes[v]; ++i) {
            float expected = 0;
            for (uint64_t rank = 0; rank < own.world; ++rank) {
              if (takes_part(rank, t)) expected += number(rank, i, t);
            }
            ASSERT_EQ(values[v]->host()[i], expected) << "step " << t << ", variable " << v;
          }
        }
      }
    });
    cuda_double_set_delay(0, 0);
  }
}

// A program that waits for each variable before it gives the next one, and has a step open ahead.
TEST_F(ModuleByHost, CallsThatAreWaitedForOneByOneAndTwoOpenSteps) {
  run_on({0, 0, 1}, add_all, [](DeviceRank& own) {
    std::vector<std::unique_ptr<DeviceNumbers<float>>> values;
    for (const uint64_t size : kSizes) {
      values.push_back(std::make_unique<DeviceNumbers<float>>(std::vector<float>(size, 1)));
    }
    const uint64_t first = own.begin();
    // Variables of up to 64 KiB go together; the last one is larger.
    std::vector<parallax_request_t*> small;
    for (uint32_t v = 0; v < 3; ++v) {
      small.push_back(own.reduce(first, own.slice(v, values[v]->address())));
    }
    DeviceRank::finish(small);
    DeviceRank::finish({own.reduce(first, own.slice(3, values[3]->address()))});
    parallax_request_t* ended = own.end(first);
    const uint64_t second = own.begin();
    std::vector<parallax_request_t*> requests = {ended};
    for (uint32_t v = 0; v < 4; ++v) {
      requests.push_back(own.reduce(second, own.slice(v, values[v]->address())));
    }
    requests.push_back(own.end(second));
    DeviceRank::finish(requests);
    for (const auto& each : values) EXPECT_EQ(each->host()[0], 9.f);
  });
}

TEST_F(ModuleByHost, VariablesOfALaterCommit) {
  run_on(
      {0, 0, 1, 1}, [](DeviceRank& own) { own.add("first"); },
      [](DeviceRank& own) {
        const DeviceNumbers<float> first(std::vector<float>(kCount, 1)),
            late(std::vector<float>(kCount, 2));
        uint64_t step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(0, first.address())), own.end(step)});
        own.add("late");
        check(parallax_commit(own.job));
        step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(1, late.address())),
                            own.reduce(step, own.slice(0, first.address())), own.end(step)});
        EXPECT_EQ(first.host()[0], 16.f);
        EXPECT_EQ(late.host()[0], 8.f);
      });
}

// A part has hosts of its own: here ranks 0, 1 and 3, of which two share a host.
TEST_F(ModuleByHost, APartOfTheJobHasItsOwnHosts) {
  run_on(
      {0, 0, 1, 1}, [](DeviceRank& own) { own.add("w"); },
      [](DeviceRank& own) {
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
        if (own.rank != 2) {
          const uint32_t ranks[] = {0, 1, 3};
          DeviceRank part = own;
          check(parallax_split(own.job, ranks, 3, &part.job));
          part.add("in part");
          check(parallax_commit(part.job));
          const uint64_t step = part.begin();
          DeviceRank::finish({part.reduce(step, part.slice(0, values.address())), part.end(step)});
          EXPECT_EQ(values.host()[0], 3.f);
          EXPECT_NE(part.report(PARALLAX_REPORT_PLAN).find("within hosts, and messages"),
                    std::string::npos);
          check(parallax_close(part.job));
        }
        const DeviceNumbers<float> whole(std::vector<float>(kCount, 1));
        const uint64_t step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(0, whole.address())), own.end(step)});
        EXPECT_EQ(whole.host()[0], 4.f);
      });
}

// ---- what leaves it to the host's memory, in the plan's words

class ModuleNotByHost : public ModuleByHost {
 protected:
  void expect_host_memory(const Hosts& hosts, const char* words,
                          const std::function<void(parallax_options_t*)>& adjust = {}) {
    const uint64_t before = nccl_double_launched();
    run(
        static_cast<uint32_t>(hosts.size()), [](DeviceRank& own) { own.add("w"); },
        [&](DeviceRank& own) {
          const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
          const uint64_t step = own.begin();
          DeviceRank::finish({own.reduce(step, own.slice(0, values.address())), own.end(step)});
          EXPECT_EQ(values.host()[0], static_cast<float>(own.world));
          const std::string plan = own.report(PARALLAX_REPORT_PLAN);
          EXPECT_NE(plan.find(words), std::string::npos) << plan;
        },
        [&](parallax_options_t* options) {
          on(hosts)(options);
          if (adjust) adjust(options);
        });
    EXPECT_EQ(nccl_double_launched(), before);
  }
};

TEST_F(ModuleNotByHost, HostsOfOneRankEach) {
  expect_host_memory({0, 1, 2}, "the setting nccl is host, and every host has one rank");
}

TEST_F(ModuleNotByHost, Deterministic) {
  expect_host_memory({0, 0, 1}, "the setting nccl is host, and deterministic is 1",
                     [](parallax_options_t* options) { options->deterministic = 1; });
}

TEST_F(ModuleNotByHost, PinnedMemoryThatIsNotAllowed) {
  const EnvironmentVariable little("PARALLAX_PINNED_MAX_BYTES", "65536");
  run_on(
      {0, 0, 1},
      [](DeviceRank& own) {
        own.add("w");
        own.add("v");
      },
      [](DeviceRank& own) {
        const std::string plan = own.report(PARALLAX_REPORT_PLAN);
        EXPECT_NE(plan.find("131072 bytes of pinned memory here"), std::string::npos) << plan;
      });
}

TEST_F(ModuleNotByHost, AnIdThatAHostCannotMake) {
  cuda_double_fail("ncclGetUniqueId", 2, 2, 0);
  expect_host_memory({0, 0, 1, 1}, "ncclGetUniqueId");
}

}  // namespace
}  // namespace cuda_double_test::by_host
