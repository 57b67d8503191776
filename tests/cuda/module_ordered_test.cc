// SPDX-License-Identifier: Apache-2.0
// Jobs under `deterministic` whose devices sum among themselves: the bits of the same gradients
// summed in host memory, whatever the hosts, the dtype and the size; and what is told where devices
// cannot. NCCL gathers, and kernels sum.
#include <nccl.h>

#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <random>

#include "cuda/module_ranks.h"

namespace cuda_double_test {
namespace {

using Bytes = std::vector<std::byte>;

// Of a dtype, by its number; integers have no mantissa.
struct Format {
  const char* name;
  size_t bytes;
  uint32_t mantissa = 0;
  uint64_t bias = 0;
};
constexpr Format kFormats[] = {{"f32", 4, 23, 127}, {"f64", 8, 52, 1023}, {"f16", 2, 10, 15},
                               {"bf16", 2, 7, 127}, {"i32", 4},           {"i64", 8}};

struct Case {
  uint32_t dtype = PARALLAX_F32;
  uint32_t reduction = PARALLAX_SUM;
  uint64_t count = kCount;
};

// Every dtype, as a sum and as a mean, of sizes that go together and of one that goes alone.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (uint32_t dtype = 0; dtype < std::size(kFormats); ++dtype) {
    all.push_back({dtype, PARALLAX_SUM, 37 + dtype});
    if (kFormats[dtype].mantissa > 0) all.push_back({dtype, PARALLAX_MEAN_WORLD, 300});
  }
  all.push_back({PARALLAX_F32, PARALLAX_MEAN_WORLD, 20000});
  return all;
}

// What a rank gives: any integers; floats of many sizes, so that each order of adding has its own
// bits, and -0.
Bytes gradient(const Case& of, uint32_t rank, uint64_t step) {
  std::mt19937_64 random(of.dtype * 1000 + of.count + rank * 77 + step);
  const Format& format = kFormats[of.dtype];
  Bytes bytes(of.count * format.bytes);
  for (uint64_t i = 0; i < of.count; ++i) {
    uint64_t bits = random();
    if (format.mantissa > 0) {
      const uint64_t fraction = bits & ((uint64_t{1} << format.mantissa) - 1);
      const uint64_t size = format.bias - 6 + random() % 12;
      const uint64_t sign = random() % 2;
      bits = random() % 8 == 0 ? 0 : size << format.mantissa | fraction;
      bits |= sign << (format.bytes * 8 - 1);
    }
    std::memcpy(&bytes[i * format.bytes], &bits, format.bytes);
  }
  return bytes;
}

uint32_t add(const DeviceRank& own, const std::string& name, const Case& of, bool on_device) {
  auto variable = sized<parallax_variable_t>();
  variable.name = name.c_str();
  variable.rows = of.count;
  variable.row_elements = 1;
  variable.dtype = of.dtype;
  variable.reduction = of.reduction;
  variable.memory = on_device ? PARALLAX_MEMORY_CUDA : PARALLAX_MEMORY_HOST;
  uint32_t id = 0;
  check(parallax_register(own.job, &variable, &id));
  return id;
}

class ModuleOrdered : public NcclJobs {
 protected:
  void SetUp() override {
    NcclJobs::SetUp();
    copies_ = cuda_double_calls("cuMemcpyDtoHAsync_v2");
    gathers_ = cuda_double_calls("ncclAllGather");
  }
  uint64_t gathers() const { return cuda_double_calls("ncclAllGather") - gathers_; }
  uint64_t copies() const { return cuda_double_calls("cuMemcpyDtoHAsync_v2") - copies_; }

  // Two steps of each case on devices, beside host memory: the same bits. Rank i is on host
  // hosts[i]; one gives nothing in the second step.
  static void expect_same(const std::string& hosts, const std::vector<Case>& all,
                          uint32_t absent_rank = UINT32_MAX) {
    SCOPED_TRACE(hosts);
    std::vector<std::string> names;
    for (const char host : hosts) names.push_back(std::string("host") + host);
    run(
        static_cast<uint32_t>(hosts.size()),
        [&](DeviceRank& own) {
          for (size_t i = 0; i < all.size(); ++i) {
            add(own, "d" + std::to_string(i), all[i], true);
            add(own, "h" + std::to_string(i), all[i], false);
          }
        },
        [&](DeviceRank& own) {
          EXPECT_NE(own.report(PARALLAX_REPORT_PLAN).find("among the devices, by NCCL"),
                    std::string::npos);
          for (uint64_t t = 0; t < 2; ++t) step(own, all, t, t == 1 && own.rank == absent_rank);
        },
        [&](parallax_options_t* options) {
          options->deterministic = 1;
          options->host = names[options->rank].c_str();
        });
  }

 private:
  static void step(const DeviceRank& own, const std::vector<Case>& all, uint64_t t, bool absent) {
    const uint64_t step = own.begin();
    std::vector<Bytes> host;
    std::vector<std::unique_ptr<DeviceNumbers<std::byte>>> device;
    std::vector<parallax_request_t*> requests;
    host.reserve(all.size());
    for (uint32_t i = 0; i < all.size() && !absent; ++i) {
      host.push_back(gradient(all[i], own.rank, t));
      device.push_back(std::make_unique<DeviceNumbers<std::byte>>(host.back()));
      requests.push_back(own.reduce(step, own.slice(2 * i, device[i]->address())));
      auto slice = sized<parallax_slice_t>();
      slice.variable = 2 * i + 1;
      slice.values = host[i].data();
      requests.push_back(own.reduce(step, slice));
    }
    requests.push_back(own.end(step, absent ? 1 : 0));
    DeviceRank::finish(requests);
    for (size_t i = 0; i < host.size(); ++i) {
      EXPECT_EQ(device[i]->values(), host[i])
          << "case " << i << ", " << kFormats[all[i].dtype].name << ", step " << t;
    }
  }

  uint64_t copies_ = 0, gathers_ = 0;
};

TEST_F(ModuleOrdered, HasTheBitsOfHostMemory) {
  uint64_t seed = 0;
  for (const char* hosts : {"a", "aa", "ab", "aabb", "abab", "abaa", "abcc"}) {
    cuda_double_set_delay(++seed, 100);
    expect_same(hosts, cases());
    cuda_double_set_delay(0, 0);
  }
  EXPECT_GT(gathers(), 0u);
  EXPECT_EQ(copies(), 0u) << "nothing comes to the host";
}

TEST_F(ModuleOrdered, WhatNcclHasInProgressIsSummedOnceItIsThere) {
  nccl_double_set_launch_in_progress(2);
  cuda_double_set_delay(3, 100);
  expect_same("abb", cases());
  cuda_double_set_delay(0, 0);
}

// More than the scratch memory holds: several parts, with others before and behind.
TEST_F(ModuleOrdered, WhatDoesNotFitGoesInParts) {
  const Case small = {PARALLAX_F32, PARALLAX_MEAN_WORLD, 100},
             large = {PARALLAX_F64, PARALLAX_SUM, 1100001};
  for (const int answers : {0, 1}) {
    nccl_double_set_launch_in_progress(answers);
    const uint64_t before = gathers();
    expect_same("aba", {small, large, small});
    EXPECT_EQ(gathers() - before, 2u * 3 * (1 + 2 + 1)) << "5.3 MiB of each rank at a time";
  }
}

TEST_F(ModuleOrdered, AnAbsentRankAddsNothing) { expect_same("aba", cases(), 1); }

// A driver that is older than the image's kernels, as far as the rank can tell before it has a
// context.
TEST_F(ModuleOrdered, ADeviceWithoutKernelsLeavesItToTheHost) {
  cuda_double_set_attribute(1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 7);
  run(
      2, [](DeviceRank& own) { own.add("w"); },
      [](DeviceRank& own) {
        const std::string plan = own.report(PARALLAX_REPORT_PLAN);
        for (const char* words : {"go by host memory: rank 0", "deterministic is 1",
                                  "device 1 is of compute capability 7.0"}) {
          EXPECT_NE(plan.find(words), std::string::npos) << plan;
        }
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
        const uint64_t step = own.begin();
        DeviceRank::finish({own.reduce(step, own.slice(0, values.address())), own.end(step)});
        EXPECT_EQ(values.host()[0], 2.f);
      },
      [](parallax_options_t* options) { options->deterministic = 1; });
  EXPECT_EQ(launched(), 0u);
}

// What fails, and words of what the job then says.
struct Fault {
  const char* function;
  int code;
  const char* words;
};

TEST_F(ModuleOrdered, WhatFailsOnTheWayFailsTheJobWithItsName) {
  for (const Fault& fault :
       {Fault{"cuModuleLoadData", CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernels"},
        Fault{"cuModuleGetFunction", CUDA_ERROR_NOT_FOUND, "cuModuleGetFunction"},
        Fault{"cuLaunchKernel", CUDA_ERROR_LAUNCH_FAILED, "cuLaunchKernel"},
        Fault{"ncclAllGather", ncclInternalError, "ncclAllGather"}}) {
    SCOPED_TRACE(fault.function);
    run(
        1, [](DeviceRank& own) { own.add("w"); },
        [&](DeviceRank& own) {
          const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
          cuda_double_fail_always(fault.function, fault.code);
          const uint64_t step = own.begin();
          parallax_request_t* request = own.reduce(step, own.slice(0, values.address()));
          EXPECT_NE(DeviceRank::wait(request), PARALLAX_OK);
          EXPECT_NE(std::string(parallax_last_error()).find(fault.words), std::string::npos)
              << parallax_last_error();
          check(parallax_request_release(request));
          cuda_double_clear_failures();
        },
        [](parallax_options_t* options) { options->deterministic = 1; }, false);
  }
}

// Given no memory for what is gathered, expect the job to say how it failed, and to leave nothing.
TEST_F(ModuleOrdered, NoMemoryForTheScratch) {
  run(
      1, [](DeviceRank& own) { own.add("w"); },
      [](DeviceRank& own) {
        const DeviceNumbers<float> values(std::vector<float>(kCount, 1));
        cuda_double_set_memory(0, 1 << 20);
        const uint64_t step = own.begin();
        parallax_request_t* request = own.reduce(step, own.slice(0, values.address()));
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_IO);
        EXPECT_NE(std::string(parallax_last_error()).find("to sum it in order"), std::string::npos)
            << parallax_last_error();
        check(parallax_request_release(request));
      },
      [](parallax_options_t* options) { options->deterministic = 1; }, false);
}

}  // namespace
}  // namespace cuda_double_test
