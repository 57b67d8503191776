// SPDX-License-Identifier: Apache-2.0
// How many messages a step of many tables takes, whole engines: those of a few for each other rank,
// whatever the number of tables, and more only where bytes fill them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/engine_world.h"
#include "support/sanitizers.h"

namespace parallax::testkit {
namespace {

constexpr uint64_t kRowsOfATable = 1000;
constexpr uint32_t kWidthOfATable = 4, kIdsOfATable = 10;
// As between hosts.
constexpr size_t kMessageBytesMax = 60 * 1024;

struct Sent {
  double messages = 0;
  double bytes = 0;
};

// So many tables, all of which every rank pulls and pushes in each step by one call.
class ManyTables {
 public:
  ManyTables(uint32_t tables, const std::vector<uint32_t>& hosts)
      : world_({.hosts = hosts,
                .seed = 7,
                .message_bytes_max = kMessageBytesMax,
                .inline_jobs = true}),
        random_(tables),
        values_(hosts.size(), std::vector<float>(size_t{tables} * kIdsOfATable * kWidthOfATable)) {
    std::vector<std::string> names;
    for (uint32_t i = 0; i < tables; ++i) names.push_back("t" + std::to_string(i));
    std::vector<parallax_variable_t> variables;
    for (const std::string& name : names) {
      variables.push_back(sparse_variable(name.c_str(), kRowsOfATable, kWidthOfATable, kIdsOfATable,
                                          PARALLAX_RULE_SGD));
    }
    for (const Status& status : world_.commit(variables)) {
      EXPECT_TRUE(status.ok()) << status.message();
    }
    for (uint32_t i = 0; i < tables * hosts.size(); ++i) ids_.emplace_back(kIdsOfATable);
  }

  // By rank.
  std::vector<Sent> step() {
    const uint32_t tables = static_cast<uint32_t>(ids_.size()) / world_.size();
    for (auto& ids : ids_) {
      for (int64_t& id : ids) id = static_cast<int64_t>(random_.below(kRowsOfATable));
    }
    std::vector<Sent> before;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) before.push_back(sent(rank));
    std::vector<Request*> pulls, ends;
    std::vector<std::vector<parallax_slice_t>> slices(world_.size());
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      for (uint32_t i = 0; i < tables; ++i) {
        slices[rank].push_back(rows_slice(
            i, ids_[rank * tables + i], &values_[rank][size_t{i} * kIdsOfATable * kWidthOfATable]));
      }
      uint64_t number = 0;
      EXPECT_TRUE(calls(rank).begin(&number).ok());
      EXPECT_TRUE(calls(rank).pull(number, slices[rank], &pulls.emplace_back()).ok());
      world_.engine(rank).kick();
    }
    finish(pulls);
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      Request* push = nullptr;
      EXPECT_TRUE(calls(rank).push(pulls[rank]->step, slices[rank], &push).ok());
      const uint64_t number = pulls[rank]->step;
      EXPECT_TRUE(calls(rank).end(number, end_options(0.5f), &ends.emplace_back()).ok());
      ends.push_back(push);
      world_.engine(rank).kick();
    }
    finish(ends);
    std::vector<Sent> of_step;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      const Sent now = sent(rank);
      of_step.push_back({now.messages - before[rank].messages, now.bytes - before[rank].bytes});
    }
    return of_step;
  }

 private:
  StepCalls& calls(uint32_t rank) { return world_.engine(rank).step_calls(); }
  void finish(const std::vector<Request*>& requests) {
    ASSERT_TRUE(world_.run_until_done(requests));
    for (const Request* each : requests) ASSERT_TRUE(each->status.ok()) << each->status.message();
    world_.settle();
  }
  Sent sent(uint32_t rank) {
    const auto stats = nlohmann::json::parse(world_.engine(rank).reports().stats_json());
    Sent all;
    for (const char* way : {"wire", "local"}) {
      all.messages += stats[way]["sent_messages"].get<double>();
      all.bytes += stats[way]["sent_bytes"].get<double>();
    }
    return all;
  }

  EngineWorld world_;
  SeededRandom random_;
  std::vector<std::vector<float>> values_;  // by rank
  std::vector<std::vector<int64_t>> ids_;   // by rank and table
};

TEST(EngineMessages, ManyTablesAreAskedForAndPushedTogether) {
  const std::vector<uint32_t> worlds[] = {{0, 1}, {0, 0}, {0, 1, 2}, {0, 1, 2, 3}, {0, 0, 1, 1}};
  for (const uint32_t tables : {1u, 100u, 788u, 1000u, 4096u}) {
    if (kBrief && tables > 1000) continue;
    for (const std::vector<uint32_t>& hosts : worlds) {
      ManyTables job(tables, hosts);
      job.step();  // the first one differs: places and lists are new
      const double others = static_cast<double>(hosts.size()) - 1;
      for (const Sent& sent : job.step()) {
        EXPECT_LE(sent.messages, 4 * others + std::floor(sent.bytes / kMessageBytesMax))
            << tables << " tables, " << hosts.size() << " ranks, " << sent.bytes << " bytes";
      }
    }
  }
}

}  // namespace
}  // namespace parallax::testkit
