// SPDX-License-Identifier: Apache-2.0
// Registering late through the C ABI: several commits, in jobs and in parts, in orders of each
// rank's own; what is refused, and what a mismatch names.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"

namespace {

using parallax::Error;
using parallax::Job;
using parallax::sized;

// As threads, each on a host of its own. What a rank throws is returned.
std::vector<Error> on_late_ranks(uint32_t world, const std::string& rendezvous,
                                 const std::function<void(uint32_t, Job&)>& body) {
  std::vector<std::vector<Error>> thrown(world);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] {
      const std::string host = "host" + std::to_string(rank);
      auto options = sized<parallax_options_t>();
      options.rank = rank;
      options.world = world;
      options.rendezvous = rendezvous.c_str();
      options.host = host.c_str();
      try {
        Job job(options);
        body(rank, job);
      } catch (const Error& error) {
        thrown[rank].push_back(error);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  std::vector<Error> all;
  for (const auto& each : thrown) all.insert(all.end(), each.begin(), each.end());
  return all;
}

parallax_variable_t late_variable(const char* name, uint64_t rows = 2) {
  auto variable = sized<parallax_variable_t>();
  variable.name = name;
  variable.rows = rows;
  variable.row_elements = 1;
  variable.dtype = PARALLAX_I64;
  return variable;
}

// A step in which every rank gives `value` for it, and gets the sum.
void reduce_once(Job& job, uint32_t id, int64_t value) {
  const uint64_t step = job.step_begin();
  std::array<int64_t, 2> values = {value, -value};
  auto slice = sized<parallax_slice_t>();
  slice.variable = id;
  slice.values = values.data();
  job.reduce(step, &slice, 1).wait();
  job.step_end(step, sized<parallax_step_end_options_t>()).wait();
  EXPECT_EQ(values[0], value * job.query().world);
  EXPECT_EQ(values[1], -values[0]);
}

TEST(Late, VariablesComeBetweenStepsInAnyOrder) {
  const auto body = [](uint32_t rank, Job& job) {
    const auto train = [rank](Job& group) {
      const uint32_t first = group.register_variable(late_variable("m"));
      group.commit();
      reduce_once(group, first, 1);
      for (const char* batch : {"1", "2", "3"}) {
        const std::string names[] = {std::string("z") + batch, std::string("a") + batch};
        uint32_t ids[2] = {};
        for (const uint32_t i : {rank % 2, 1 - rank % 2}) {
          ids[i] = group.register_variable(late_variable(names[i].c_str()));
        }
        reduce_once(group, first, 2);  // without them
        group.commit();
        reduce_once(group, ids[0], 3);
        reduce_once(group, ids[1], 4);
        reduce_once(group, first, 5);
      }
      group.commit();
      EXPECT_EQ(group.query().variables, 7u);
      EXPECT_EQ(group.query().committed, 1u);
    };
    train(job);
    Job part = job.split({1, 0});
    train(part);
    part.close();
    job.close();
  };
  for (const Error& error : on_late_ranks(2, "inproc:late", body)) ADD_FAILURE() << error.what();
}

TEST(Late, WhatIsNotCommittedIsNotUsed) {
  Job job(sized<parallax_options_t>());
  job.commit();
  const uint32_t id = job.register_variable(late_variable("late"));
  const uint64_t step = job.step_begin();
  std::array<int64_t, 2> values = {};
  auto slice = sized<parallax_slice_t>();
  slice.variable = id;
  slice.values = values.data();
  const auto refused = [](const std::function<void()>& call, const std::string& words) {
    try {
      call();
      ADD_FAILURE() << "was taken, and should not be: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), PARALLAX_STATE);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused(
      [&] { job.reduce(step, &slice, 1); },
      "reduce, slice 0 (variable 'late'): it was registered after the last commit; call commit");
  refused([&] { job.register_variable(late_variable("more")); },
          "register: step 1 is under way; end it, and wait for its step_end request first");
  refused([&] { job.commit(); }, "commit: step 1 is under way");
  job.step_end(step, sized<parallax_step_end_options_t>()).wait();
  auto rows = sized<parallax_rows_t>();
  rows.variable = id;
  rows.row_count = 1;
  rows.values = values.data();
  refused([&] { job.read(rows); },
          "read: variable 'late': it was registered after the last commit");
  job.commit();
  reduce_once(job, id, 1);
}

// The variable by the id that each rank has for it.
TEST(Late, AMismatchNamesTheVariableOnEveryRank) {
  const auto body = [](uint32_t rank, Job& job) {
    job.register_variable(late_variable("m"));
    job.commit();
    const auto add = [&](const char* name) {
      job.register_variable(late_variable(name, 2 + rank));
    };
    if (rank == 0) job.register_variable(late_variable("x"));
    add("late");
    if (rank == 1) job.register_variable(late_variable("x"));
    job.commit();
  };
  const std::vector<Error> errors = on_late_ranks(2, "inproc:late_mismatch", body);
  ASSERT_EQ(errors.size(), 2u);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(errors[rank].status(), PARALLAX_MISMATCH);
    EXPECT_NE(std::string(errors[rank].what())
                  .find("variable 'late', field rows: rank 0 (host host0) has 2, rank 1 (host "
                        "host1) has 3"),
              std::string::npos)
        << errors[rank].what();
    EXPECT_EQ(errors[rank].info().variable, rank == 0 ? 2u : 1u);
    EXPECT_STREQ(errors[rank].info().field, "rows");
  }
}

// Ranks of a part by their numbers there and in the job.
TEST(Late, AMismatchOfAPartNamesItsRanks) {
  const auto body = [](uint32_t rank, Job& job) {
    Job part = job.split({1, 0});
    part.register_variable(late_variable("m"));
    part.commit();
    if (rank == 0) part.register_variable(late_variable("late"));
    part.commit();
  };
  const std::vector<Error> errors = on_late_ranks(2, "inproc:late_part", body);
  ASSERT_EQ(errors.size(), 2u);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_NE(std::string(errors[rank].what())
                  .find("variable 'late' is registered on rank 1 (rank 0 of the job, host host0) "
                        "and not on rank 0 (rank 1 of the job, host host1)"),
              std::string::npos)
        << errors[rank].what();
    EXPECT_EQ(errors[rank].info().variable, rank == 0 ? 1u : PARALLAX_NO_VARIABLE);
  }
}

}  // namespace
