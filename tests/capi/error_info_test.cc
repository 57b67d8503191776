// SPDX-License-Identifier: Apache-2.0
// Failures as data: what a sentence names is there without reading it, for the thread's last call
// and for a request, on the rank that failed and on the others.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

namespace {

using parallax::check;
using parallax::Error;
using parallax::Job;
using parallax::sized;
using parallax::testkit::left_or_right;
using parallax::testkit::on_rank_threads;
using parallax::testkit::on_ranks;

constexpr uint32_t kTableRows = 8;

parallax_variable_t small_table(const char* name) {
  auto variable = sized<parallax_variable_t>();
  variable.name = name;
  variable.rows = kTableRows;
  variable.row_elements = 1;
  variable.tag = PARALLAX_SPARSE;
  variable.rows_max = 4;
  variable.rule = PARALLAX_RULE_SGD;
  return variable;
}

parallax_error_info_t last_info() {
  auto info = sized<parallax_error_info_t>();
  EXPECT_EQ(parallax_last_error_info(&info), PARALLAX_OK);
  return info;
}

void on_two_hosts(const std::function<void(uint32_t, Job&)>& body) {
  on_ranks(2, body,
           [](uint32_t rank, parallax_options_t& options) { options.host = left_or_right(rank); });
}

TEST(ErrorInfo, NamesTheFieldOfAnArgument) {
  auto options = sized<parallax_options_t>();
  options.lease_ms = 1;
  parallax_job_t* job = nullptr;
  ASSERT_EQ(parallax_open(&options, &job), PARALLAX_INVALID);
  EXPECT_STREQ(last_info().field, "lease_ms");
  options = sized<parallax_options_t>();
  options.replicas = 1;
  ASSERT_EQ(parallax_open(&options, &job), PARALLAX_UNSUPPORTED);
  const parallax_error_info_t info = last_info();
  EXPECT_EQ(info.status, PARALLAX_UNSUPPORTED);
  EXPECT_STREQ(info.field, "replicas");
  EXPECT_STREQ(info.host, "");
  EXPECT_EQ(info.rank, PARALLAX_NO_RANK);
  EXPECT_EQ(info.peer, PARALLAX_NO_RANK);
  EXPECT_EQ(info.variable, PARALLAX_NO_VARIABLE);
  EXPECT_EQ(info.slice, PARALLAX_NO_SLICE);
  EXPECT_EQ(info.step, PARALLAX_NO_STEP);
  EXPECT_EQ(info.step_committed, PARALLAX_NO_STEP);
  EXPECT_EQ(info.row, PARALLAX_NO_ROW);
}

TEST(ErrorInfo, NamesSliceVariableAndRow) {
  Job job(sized<parallax_options_t>());
  job.register_variable(small_table("first"));
  const uint32_t second = job.register_variable(small_table("second"));
  job.commit();
  const uint64_t step = job.step_begin();
  std::array<float, 4> values = {};
  const std::array<int64_t, 2> good = {1, 2}, bad = {1, kTableRows};
  std::array<parallax_slice_t, 2> slices = {sized<parallax_slice_t>(), sized<parallax_slice_t>()};
  for (uint32_t i = 0; i < 2; ++i) {
    slices[i].variable = i;
    slices[i].form = PARALLAX_FORM_ROWS;
    slices[i].ids = i == 0 ? good.data() : bad.data();
    slices[i].row_count = 2;
    slices[i].values = values.data();
  }
  try {
    job.push(step, slices.data(), slices.size());
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().status, PARALLAX_INVALID);
    EXPECT_EQ(error.info().variable, second);
    EXPECT_EQ(error.info().slice, 1u);
    EXPECT_EQ(error.info().row, int64_t{kTableRows});
    EXPECT_STREQ(error.info().field, "ids");
  }
  slices[1] = slices[0];
  slices[1].into = values.data();
  slices[1].variable = second;
  parallax_request_t* request = nullptr;
  EXPECT_EQ(parallax_push(job.get(), step, slices.data(), 2, &request), PARALLAX_INVALID);
  EXPECT_STREQ(last_info().field, "into");
  EXPECT_EQ(last_info().slice, 1u);
  job.step_end(step, sized<parallax_step_end_options_t>()).wait();
}

// A failure is the last until another comes: also of the call that asks for it.
TEST(ErrorInfo, StaysUntilTheNextFailure) {
  EXPECT_EQ(parallax_wait(nullptr, 1, 0), PARALLAX_INVALID);
  EXPECT_STREQ(last_info().field, "requests");
  EXPECT_EQ(parallax_last_error_info(nullptr), PARALLAX_INVALID);
  parallax_error_info_t wrong = {};
  wrong.size = 3;
  EXPECT_EQ(parallax_last_error_info(&wrong), PARALLAX_INVALID);
  EXPECT_STREQ(last_info().field, "requests");
  // An older or shorter struct gets as much as it holds.
  parallax_error_info_t shorter = {};
  shorter.size = 16;
  shorter.peer = 77;
  EXPECT_EQ(parallax_last_error_info(&shorter), PARALLAX_OK);
  EXPECT_EQ(shorter.status, PARALLAX_INVALID);
  EXPECT_EQ(shorter.peer, 77u);
  EXPECT_EQ(parallax_request_error_info(nullptr, &wrong), PARALLAX_INVALID);
}

TEST(ErrorInfo, ATimeoutNamesWhoIsMissing) {
  on_two_hosts([](uint32_t rank, Job& job) {
    job.commit();
    uint32_t go = 0;
    if (rank == 0) {
      parallax::Request barrier = job.barrier();
      parallax_request_t* request = barrier.get();
      EXPECT_EQ(parallax_wait(&request, 1, 0), PARALLAX_TIMEOUT);
      EXPECT_EQ(last_info().peer, 1u);
      EXPECT_STREQ(last_info().host, "right");
      auto own = sized<parallax_error_info_t>();
      check(parallax_request_error_info(request, &own));
      EXPECT_EQ(own.status, PARALLAX_OK) << "it is pending";
      EXPECT_EQ(own.peer, PARALLAX_NO_RANK);
      job.broadcast(&go, sizeof go, 0).wait();
      barrier.wait();
    } else {
      job.broadcast(&go, sizeof go, 0).wait();
      job.barrier().wait();
    }
    job.close();
  });
}

TEST(ErrorInfo, AMismatchOfRegistrationNamesVariableFieldAndRanks) {
  on_two_hosts([](uint32_t rank, Job& job) {
    job.register_variable(small_table("same"));
    parallax_variable_t differs = small_table("differs");
    differs.row_elements = rank == 0 ? 1 : 2;
    job.register_variable(differs);
    try {
      job.commit();
      ADD_FAILURE() << "it was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), PARALLAX_MISMATCH);
      EXPECT_EQ(error.info().variable, 1u);
      EXPECT_STREQ(error.info().field, "row_elements");
      EXPECT_EQ(error.info().rank, 1u);
      EXPECT_EQ(error.info().peer, 0u);
      EXPECT_STREQ(error.info().host, "left");
      EXPECT_EQ(error.info().step_committed, 0u);
    }
  });
}

TEST(ErrorInfo, AMismatchOfOptionsNamesTheOption) {
  on_rank_threads(2, [](uint32_t rank, parallax_options_t& options) {
    options.plan_mode = rank == 0 ? PARALLAX_PLAN_PS : PARALLAX_PLAN_AR;
    Job job(options);
    EXPECT_EQ(parallax_commit(job.get()), PARALLAX_MISMATCH);
    EXPECT_STREQ(last_info().field, "plan_mode");
    EXPECT_EQ(last_info().rank, 0u);
    EXPECT_EQ(last_info().peer, 1u);
  });
}

TEST(ErrorInfo, AMismatchOfAStepNamesItAndTheOption) {
  on_two_hosts([](uint32_t rank, Job& job) {
    job.register_variable(small_table("v"));
    job.commit();
    const uint64_t step = job.step_begin();
    auto end = sized<parallax_step_end_options_t>();
    end.clip_norm = rank == 0 ? 1.0f : 2.0f;
    try {
      job.step_end(step, end).wait();
      ADD_FAILURE() << "it was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), PARALLAX_MISMATCH);
      EXPECT_EQ(error.info().step, step);
      EXPECT_STREQ(error.info().field, "clip_norm");
      EXPECT_EQ(error.info().rank + error.info().peer, 1u) << "0 and 1";
      EXPECT_EQ(error.info().step_committed, PARALLAX_NO_STEP) << "the job goes on";
    }
    job.close();
  });
}

TEST(ErrorInfo, AnAbortNamesWhereItWasFound) {
  on_two_hosts([](uint32_t rank, Job& job) {
    job.register_variable(small_table("v"));
    job.commit();
    const uint64_t first = job.step_begin();
    job.step_end(first, sized<parallax_step_end_options_t>()).wait();
    if (rank == 1) {
      job.abort("enough");
      return;
    }
    try {
      job.barrier().wait();
      ADD_FAILURE() << "it completed";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), PARALLAX_ABORTED);
      EXPECT_EQ(error.info().rank, 1u);
      EXPECT_EQ(error.info().step_committed, first);
    }
  });
}

}  // namespace
