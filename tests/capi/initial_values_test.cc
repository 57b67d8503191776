// SPDX-License-Identifier: Apache-2.0
// Initial values through the C ABI: the header's vectors, the caller's buffers, and a commit that
// does not come to its end.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"
#include "support/rank_threads.h"

namespace {

using parallax::check;
using parallax::Error;
using parallax::Job;
using parallax::sized;

parallax_variable_t variable_of(const char* name, uint32_t dtype, uint64_t rows,
                                uint64_t row_elements) {
  auto variable = sized<parallax_variable_t>();
  variable.name = name;
  variable.dtype = dtype;
  variable.rows = rows;
  variable.row_elements = row_elements;
  variable.rule = PARALLAX_RULE_SUM;
  return variable;
}

template <typename T>
std::vector<T> read(Job& job, uint32_t variable, uint64_t first_row, uint64_t rows,
                    uint64_t width) {
  std::vector<T> values(rows * width);
  auto wanted = sized<parallax_rows_t>();
  wanted.variable = variable;
  wanted.first_row = first_row;
  wanted.row_count = rows;
  wanted.values = values.data();
  parallax_request_t* request = nullptr;
  check(parallax_read(job.get(), &wanted, &request));
  check(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  check(parallax_request_release(request));
  return values;
}

TEST(InitialValues, AreTheHeadersVectors) {
  struct Vector {
    uint64_t seed, row, column;
    double normal, truncated;
  };
  const Vector vectors[] = {
      {0, 0, 0, -0x1.27bd70e1fd098p-1, -0x1.18ce89a3f4aa3p-1},
      {7, 3, 5, -0x1.4e6179ddd6541p-1, -0x1.3cff688d7386ep-1},
      {1, 607203, 0, -0x1.4f826c8e0a865p+2, -0x1.ffffe87c62649p+0},
  };
  for (const Vector& vector : vectors) {
    Job job(sized<parallax_options_t>());
    parallax_variable_t variable =
        variable_of("v", PARALLAX_F64, vector.row + 1, vector.column + 1);
    variable.init_seed = vector.seed;
    variable.init = PARALLAX_INIT_NORMAL;
    variable.init_std = 1;
    const uint32_t normal = job.register_variable(variable);
    variable.name = "t";
    variable.init = PARALLAX_INIT_TRUNCATED_NORMAL;
    const uint32_t truncated = job.register_variable(variable);
    variable.name = "f";
    variable.dtype = PARALLAX_F32;
    const uint32_t narrow = job.register_variable(variable);
    job.commit();
    const uint64_t width = vector.column + 1;
    EXPECT_EQ(read<double>(job, normal, vector.row, 1, width).back(), vector.normal);
    EXPECT_EQ(read<double>(job, truncated, vector.row, 1, width).back(), vector.truncated);
    EXPECT_EQ(read<float>(job, narrow, vector.row, 1, width).back(),
              static_cast<float>(vector.truncated));
    job.close();
  }
}

// Each dtype in the type that it is kept in; rank 1 gives a buffer of its own to BUFFER alone.
TEST(InitialValues, OfTheCallersBuffers) {
  const std::vector<float> floats = {1, 2.5f, -3, 0x1.000002p+0f, 5, 6};
  const std::vector<int64_t> integers = {1, -2, int64_t{1} << 60, 4, 5, 6};
  parallax::testkit::on_ranks(2, [&](uint32_t rank, Job& job) {
    parallax_variable_t half = variable_of("half", PARALLAX_F16, 3, 2);
    half.rows_max = 3;
    half.init = PARALLAX_INIT_BUFFER;
    half.initial = floats.data();
    parallax_variable_t long_ints = variable_of("ints", PARALLAX_I64, 3, 2);
    long_ints.init = PARALLAX_INIT_BROADCAST;
    long_ints.initial = rank == 0 ? integers.data() : nullptr;
    const uint32_t first = job.register_variable(half);
    const uint32_t second = job.register_variable(long_ints);
    job.commit();
    EXPECT_EQ(read<float>(job, first, 0, 3, 2), floats) << "rank " << rank;
    EXPECT_EQ(read<int64_t>(job, second, 0, 3, 2), integers) << "rank " << rank;
    job.barrier().wait();
    job.close();
  });
}

Job opened(const char* rendezvous, uint32_t rank, uint32_t timeout_ms) {
  auto options = sized<parallax_options_t>();
  options.rank = rank;
  options.world = 2;
  options.rendezvous = rendezvous;
  options.timeout_ms = timeout_ms;
  return Job(options);
}

// Given a rank that never commits, expect the other's commit to time out, its buffer to be its own
// again, and the job to be over.
TEST(InitialValues, ACommitThatTimesOutGivesTheBufferBack) {
  std::promise<void> done;
  std::thread other([&] {
    Job job = opened("inproc:initial_timeout", 1, 30000);
    done.get_future().wait();
    EXPECT_THROW(job.commit(), Error);
  });
  Job job = opened("inproc:initial_timeout", 0, 30000);
  job.set("timeout_ms", "300");
  auto values = std::make_unique<std::array<float, 4>>();
  parallax_variable_t variable = variable_of("v", PARALLAX_F32, 2, 2);
  variable.init = PARALLAX_INIT_BROADCAST;
  variable.initial = values->data();
  job.register_variable(variable);
  EXPECT_EQ(parallax_commit(job.get()), PARALLAX_TIMEOUT) << parallax_last_error();
  values.reset();
  done.set_value();
  uint64_t step = 0;
  EXPECT_EQ(parallax_step_begin(job.get(), &step), PARALLAX_ABORTED);
  EXPECT_NE(std::string(parallax_last_error()).find("initial values of variable 'v'"),
            std::string::npos)
      << parallax_last_error();
  other.join();
}

}  // namespace
