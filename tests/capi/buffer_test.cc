// SPDX-License-Identifier: Apache-2.0
// Memory of a job's own, and of the caller's that it is told of: used in every call, kept while
// borrowed, freed by any handle of the job, and gone with it.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/environment_variable.h"
#include "support/rank_threads.h"

namespace {

using parallax::Buffer;
using parallax::check;
using parallax::Error;
using parallax::Job;
using parallax::Request;
using parallax::sized;
using parallax::testkit::on_ranks;

constexpr uint64_t kElements = 3000;  // more than travels with a report

void expect_told(parallax_status_t status, parallax_status_t expected, const std::string& word) {
  EXPECT_EQ(status, expected) << parallax_last_error();
  EXPECT_NE(std::string(parallax_last_error()).find(word), std::string::npos)
      << "'" << word << "' in: " << parallax_last_error();
}

parallax_variable_t held_values(const char* name) {
  auto variable = sized<parallax_variable_t>();
  variable.name = name;
  variable.rows = kElements;
  variable.row_elements = 1;
  return variable;
}

nlohmann::json buffers_of(const Job& job) {
  return nlohmann::json::parse(job.report(PARALLAX_REPORT_STATS))["buffers"];
}

// Given initial values in a job's memory that no commit has taken yet, expect it to stay.
TEST(JobBuffer, InitialValuesAreBorrowedBeforeTheCommit) {
  auto options = sized<parallax_options_t>();
  Job job(options);
  parallax::Buffer buffer(job.get(), 8 * sizeof(float));
  for (uint32_t i = 0; i < 8; ++i) buffer.as<float>()[i] = static_cast<float>(i);
  auto variable = sized<parallax_variable_t>();
  variable.name = "given";
  variable.rows = 8;
  variable.row_elements = 1;
  variable.rule = PARALLAX_RULE_SGD;
  variable.init = PARALLAX_INIT_BUFFER;
  variable.initial = buffer.data();
  job.register_variable(variable);
  expect_told(parallax_buffer_free(job.get(), buffer.data()), PARALLAX_STATE, "variable 'given'");
  job.commit();
  buffer.free();
}

// Given buffers under a reduce and a collective that wait for the other rank, expect the frees to
// be refused with the call's name, and everything to end as without.
TEST(JobBuffer, IsUsedEverywhereAndStaysWhileBorrowed) {
  on_ranks(2, [](uint32_t rank, Job& job) {
    const uint32_t id = job.register_variable(held_values("v"));
    job.commit();
    Buffer gradient = job.buffer(kElements * sizeof(float));
    std::vector<float> own(kElements, 1.0f);
    job.register_buffer(own.data(), own.size() * sizeof(float));
    auto* const values = gradient.as<float>();
    EXPECT_EQ(values[kElements - 1], 0.0f);
    for (uint64_t i = 0; i < kElements; ++i) values[i] = static_cast<float>(rank + i);

    const uint64_t step = job.step_begin();
    uint32_t go = 0;
    if (rank == 1) job.broadcast(&go, sizeof go, 0).wait();
    auto slice = sized<parallax_slice_t>();
    slice.variable = id;
    slice.values = values;
    Request reduce = job.reduce(step, {slice});
    auto what = sized<parallax_collective_t>();
    what.kind = PARALLAX_ALLREDUCE;
    what.send = own.data();
    what.recv = own.data();
    what.count = kElements;
    Request sum = job.collective(what);
    if (rank == 0) {
      expect_told(parallax_buffer_free(job.get(), values), PARALLAX_STATE,
                  "pending reduce of step 1");
      auto info = sized<parallax_error_info_t>();
      check(parallax_last_error_info(&info));
      EXPECT_STREQ(info.field, "pointer");
      expect_told(parallax_buffer_unregister(job.get(), own.data()), PARALLAX_STATE,
                  "pending collective");
      job.broadcast(&go, sizeof go, 0).wait();
    }
    reduce.wait();
    sum.wait();
    for (uint64_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(values[i], static_cast<float>(2 * i + 1));
      ASSERT_EQ(own[i], 2.0f);
    }
    EXPECT_EQ(buffers_of(job)["allocated_bytes"], kElements * sizeof(float));
    EXPECT_EQ(buffers_of(job)["registered_bytes"], kElements * sizeof(float));
    gradient.free();
    job.unregister_buffer(own.data());
    EXPECT_EQ(buffers_of(job)["allocated"], 0);
    EXPECT_EQ(buffers_of(job)["registered"], 0);
    job.step_end(step, sized<parallax_step_end_options_t>()).wait();
    job.close();
  });
}

// Given a buffer that was allocated by one handle, expect every other handle of the job to know it,
// and a request of a part to borrow it like one of the whole.
TEST(JobBuffer, IsOfTheWholeJob) {
  on_ranks(2, [](uint32_t rank, Job& job) {
    job.commit();
    Job part = job.split({0, 1});
    part.commit();
    void* pointer = nullptr;
    check(parallax_buffer_alloc(part.get(), 64, nullptr, &pointer));
    auto* const word = static_cast<uint32_t*>(pointer);
    uint32_t go = 0;
    if (rank == 1) job.broadcast(&go, sizeof go, 0).wait();
    Request request = part.broadcast(word, sizeof *word, 1);
    if (rank == 0) {
      expect_told(parallax_buffer_free(job.get(), pointer), PARALLAX_STATE, "broadcast");
      expect_told(parallax_buffer_free(part.get(), pointer), PARALLAX_STATE, "broadcast");
      job.broadcast(&go, sizeof go, 0).wait();
    }
    request.wait();
    part.close();
    *word = 7;  // a part that closes leaves it
    EXPECT_EQ(buffers_of(job)["allocated"], 1);
    check(parallax_buffer_free(job.get(), pointer));
    job.close();
  });
}

// Given a job that has failed, expect its buffers to be there and to be freed as ever.
TEST(JobBuffer, OutlivesAFailure) {
  Job job(sized<parallax_options_t>());
  job.commit();
  Buffer kept = job.buffer(8);
  job.abort("on purpose");
  *kept.as<int>() = 1;
  kept.free();
  Buffer late = job.buffer(8);
  *late.as<int>() = 1;
}

// Given buffers that nobody frees, expect them to go with the job, after its last request.
TEST(JobBuffer, GoesWithTheJob) {
  parallax_job_t* job = nullptr;
  const auto options = sized<parallax_options_t>();
  check(parallax_open(&options, &job));
  check(parallax_commit(job));
  void* pointer = nullptr;
  check(parallax_buffer_alloc(job, 4096, nullptr, &pointer));
  parallax_request_t* request = nullptr;
  check(parallax_broadcast(job, pointer, 4096, 0, &request));
  check(parallax_close(job));
  static_cast<char*>(pointer)[4095] = 1;
  check(parallax_request_release(request));
}

TEST(JobBuffer, OptionsOfEverySizeAndBadOnes) {
  const parallax::testkit::EnvironmentVariable no_module("PARALLAX_MODULE_DIR", "/nonexistent");
  Job job(sized<parallax_options_t>());
  void* pointer = &job;
  auto options = sized<parallax_buffer_options_t>();
  options.memory = PARALLAX_MEMORY_CUDA;
  expect_told(parallax_buffer_alloc(job.get(), 8, &options, &pointer), PARALLAX_UNSUPPORTED,
              "memory");
  EXPECT_EQ(pointer, nullptr);
  options.huge_pages = 1;
  expect_told(parallax_buffer_alloc(job.get(), 8, &options, &pointer), PARALLAX_INVALID,
              "huge_pages");
  options = sized<parallax_buffer_options_t>();
  options.memory = 7;
  expect_told(parallax_buffer_alloc(job.get(), 8, &options, &pointer), PARALLAX_INVALID, "memory");
  options = sized<parallax_buffer_options_t>();
  options.device = 1;
  expect_told(parallax_buffer_alloc(job.get(), 8, &options, &pointer), PARALLAX_INVALID, "device");
  options = sized<parallax_buffer_options_t>();
  options.huge_pages = 1;
  options.numa_node = PARALLAX_NUMA_NODE(0);
  const Buffer all = job.buffer(8, options);
  options.size = offsetof(parallax_buffer_options_t, huge_pages) + sizeof options.huge_pages;
  const Buffer shorter = job.buffer(8, options);
  options.size = 12;
  EXPECT_THROW(job.buffer(8, options), Error);
  expect_told(parallax_buffer_alloc(job.get(), SIZE_MAX, nullptr, &pointer), PARALLAX_LIMIT,
              std::to_string(SIZE_MAX) + " bytes");
  EXPECT_EQ(pointer, nullptr);
}

// Given buffers that move, expect each freed once.
TEST(JobBuffer, MovesInCxx) {
  Job job(sized<parallax_options_t>());
  Buffer a = job.buffer(16);
  Buffer b = std::move(a);
  EXPECT_EQ(b.size(), 16u);
  a = job.buffer(32);
  a = std::move(b);
  EXPECT_EQ(a.size(), 16u);
  EXPECT_EQ(buffers_of(job)["allocated"], 1);
  Buffer none;
  none.free();
}

// Given threads that allocate, register and free beside steps, expect neither to mind the other.
TEST(JobBuffer, OfManyThreadsBesideSteps) {
  constexpr int kRounds = 20;
  Job job(sized<parallax_options_t>());
  const uint32_t id = job.register_variable(held_values("v"));
  job.commit();
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&job] {
      std::array<char, 256> own = {};
      for (int round = 0; round < kRounds; ++round) {
        Buffer mine = job.buffer(8192);
        job.register_buffer(own.data(), own.size());
        EXPECT_GE(buffers_of(job)["allocated"], 1);
        job.unregister_buffer(own.data());
        mine.free();
      }
    });
  }
  Buffer gradient = job.buffer(kElements * sizeof(float));
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t step = job.step_begin();
    auto slice = sized<parallax_slice_t>();
    slice.variable = id;
    slice.values = gradient.data();
    job.reduce(step, {slice}).wait();
    job.step_end(step, sized<parallax_step_end_options_t>()).wait();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
