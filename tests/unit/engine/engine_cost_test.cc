// SPDX-License-Identifier: Apache-2.0
// What a plan predicts of elements is what engines receive: jobs of several layouts, whose messages
// are read on their way, against the report of each rank.
#include <gtest/gtest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/algorithms.h"
#include "message/kinds.h"
#include "message/wire.h"
#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

using Json = nlohmann::json;

// Payloads of variables that pass between parties, by variable.
class Listener {
 public:
  Listener(EngineWorld& world, uint32_t variables) : world_(world), bytes_(variables) {
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      world.transport(rank).tap([this, rank](uint32_t to, std::span<const Segment> segments) {
        if (to != rank && parties_apart(rank, to)) hear(segments);
      });
    }
  }
  ~Listener() {
    for (uint32_t rank = 0; rank < world_.size(); ++rank) world_.transport(rank).tap({});
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  uint64_t bytes(uint32_t variable) const { return bytes_[variable]; }
  uint32_t parties() const {
    const size_t hosts = world_.hosts().ranks_of.size();
    return hosts > 1 ? static_cast<uint32_t>(hosts) : world_.size();
  }

 private:
  bool parties_apart(uint32_t a, uint32_t b) const {
    const HostMap& hosts = world_.hosts();
    return hosts.ranks_of.size() == 1 || hosts.host_of[a] != hosts.host_of[b];
  }

  void hear(std::span<const Segment> segments) {
    std::vector<std::byte> message;
    for (const Segment& segment : segments) {
      const auto* data = static_cast<const std::byte*>(segment.data);
      message.insert(message.end(), data, data + segment.bytes);
    }
    SectionReader reader(message);
    Section section;
    while (reader.next(&section)) {
      if (!carries_variable(section.header.kind) || section.header.tag >= bytes_.size()) continue;
      bytes_[section.header.tag] += section.payload.size();
    }
    ASSERT_FALSE(reader.malformed());
  }

  EngineWorld& world_;
  std::vector<uint64_t> bytes_;
};

void expect_all_ok(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
}

// A step in which every rank reduces, or pulls and pushes, all elements of each variable.
void step(EngineWorld& world, const std::vector<parallax_variable_t>& variables) {
  std::vector<std::vector<std::vector<float>>> values(world.size());
  std::vector<std::vector<parallax_slice_t>> held(world.size()), managed(world.size());
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    for (uint32_t i = 0; i < variables.size(); ++i) {
      const bool rule = variables[i].rule != PARALLAX_RULE_NONE;
      auto& all = values[rank].emplace_back(variables[i].rows * variables[i].row_elements, 1.0f);
      (rule ? managed : held)[rank].push_back(dense_slice(i, all.data()));
    }
  }
  std::vector<uint64_t> number(world.size());
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    ASSERT_TRUE(world.engine(rank).step_calls().begin(&number[rank]).ok());
  }
  if (!managed[0].empty()) {
    expect_all_ok(world.everywhere([&](uint32_t rank, Request** request) {
      return world.engine(rank).step_calls().pull(number[rank], managed[rank], request);
    }));
  }
  std::vector<Request*> calls;
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    if (!held[rank].empty()) {
      calls.push_back(nullptr);
      const Status posted =
          world.engine(rank).step_calls().reduce(number[rank], held[rank], &calls.back());
      ASSERT_TRUE(posted.ok()) << posted.message();
    }
    if (!managed[rank].empty()) {
      calls.push_back(nullptr);
      ASSERT_TRUE(
          world.engine(rank).step_calls().push(number[rank], managed[rank], &calls.back()).ok());
    }
    calls.push_back(nullptr);
    ASSERT_TRUE(
        world.engine(rank).step_calls().end(number[rank], end_options(1), &calls.back()).ok());
  }
  ASSERT_TRUE(world.run_until_done(calls));
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    for (uint32_t i = 0; i < variables.size(); ++i) {
      if (variables[i].rule != PARALLAX_RULE_NONE) continue;
      const std::vector<float>& sums = values[rank][i];
      ASSERT_EQ(sums, std::vector<float>(sums.size(), static_cast<float>(world.size())));
    }
  }
}

Json chosen(const Json& variable) {
  for (const Json& way : variable["alternatives"]) {
    if (way["chosen"]) return way;
  }
  return {};
}

// The algorithm that carries its elements, where it is not the direct one, which is not named.
std::string carrier_of(const Json& variable) {
  if (!variable.contains("algorithms")) return "";
  for (const Json& each : variable["algorithms"]) {
    if (each["chosen"] && each["name"] != "direct") return each["name"];
  }
  return "";
}

// What ranks call it: its place by name.
uint32_t number_of(uint32_t variable, const std::vector<parallax_variable_t>& variables) {
  return static_cast<uint32_t>(
      std::count_if(variables.begin(), variables.end(), [&](const parallax_variable_t& each) {
        return std::string_view(each.name) < variables[variable].name;
      }));
}

// Every rank predicts the same, and that is what came.
void expect_predicted(EngineWorld& world, const std::vector<parallax_variable_t>& variables,
                      const std::vector<std::string>& words, int steps_before = 0) {
  for (int i = 0; i < steps_before; ++i) step(world, variables);
  Listener listener(world, static_cast<uint32_t>(variables.size()));
  step(world, variables);
  const Json plan = Json::parse(world.engine(0).reports().plan_json());
  for (uint32_t i = 0; i < variables.size(); ++i) {
    const Json way = chosen(plan["variables"][i]);
    SCOPED_TRACE(std::string(variables[i].name) + ": " + way.dump());
    ASSERT_TRUE(way["predicted_bytes_per_host"].is_number());
    EXPECT_NEAR(way["predicted_bytes_per_host"],
                static_cast<double>(listener.bytes(number_of(i, variables))) / listener.parties(),
                0.5);
    const std::string why = way["why"];
    EXPECT_TRUE(why.find(words[i]) != std::string::npos) << words[i];
    for (const DenseAlgorithm& algorithm : kDenseAlgorithms) {
      const bool named = why.find(algorithm.description) != std::string::npos;
      EXPECT_EQ(named, algorithm.name == carrier_of(plan["variables"][i])) << algorithm.name;
    }
  }
  for (uint32_t rank = 1; rank < world.size(); ++rank) {
    EXPECT_EQ(Json::parse(world.engine(rank).reports().plan_json()), plan) << rank;
  }
}

const std::vector<uint32_t> kPricedLayouts[] = {
    {0}, {0, 0, 0}, {0, 1, 2}, {0, 1}, {0, 0, 1, 2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 0}};

// Given elements that are held, mirrored and sharded, many and few, expect of each what its way
// carries.
TEST(EngineCost, ElementsAreReceivedAsPredicted) {
  for (const std::vector<uint32_t>& hosts : kPricedLayouts) {
    for (const bool deterministic : {false, true}) {
      for (const parallax_plan_mode_t mode : {PARALLAX_PLAN_AUTO, PARALLAX_PLAN_PS}) {
        EngineWorld world({.hosts = hosts, .plan_mode = mode, .deterministic = deterministic});
        SCOPED_TRACE(std::to_string(hosts.size()) + " ranks, mode " + std::to_string(mode) +
                     (deterministic ? ", deterministic" : ""));
        const std::vector<parallax_variable_t> variables = {
            dense_variable("held", 5000, 3), dense_variable("few", 100, 1),
            dense_variable("trained", 4000, 1, PARALLAX_RULE_SGD)};
        expect_all_ok(world.commit(variables));
        std::string held = " x 5000 rows x 12 bytes", few = " x 100 rows x 4 bytes";
        if (hosts.size() == 1) held = few = "one rank, nothing moves";
        if (hosts.size() == 3 && hosts[2] == 0) {
          held += ", between ranks in shared memory, nothing on the wire";
        }
        if (hosts.size() == 3 && hosts[2] == 0) few = " x 100 rows x 4 bytes";
        expect_predicted(world, variables, {held, few, ""});
        if (HasFailure()) return;
      }
    }
  }
}

// Given a variable with row ids that got every row without them, expect what hosts send each other
// of its elements.
TEST(EngineCost, RowsMadeDenseAreReceivedAsPredicted) {
  for (const std::vector<uint32_t>& hosts :
       {kPricedLayouts[2], kPricedLayouts[4], kPricedLayouts[5]}) {
    EngineWorld world({.hosts = hosts});
    const std::vector<parallax_variable_t> variables = {sparse_variable("tied", 1000, 3, 1000)};
    expect_all_ok(world.commit(variables));
    expect_predicted(world, variables,
                     {"it got a dense slice beside row ids, so it is dense from then on"}, 3);
    if (HasFailure()) return;
  }
}

// Given as many hosts and elements as a ring takes, expect every value of the sum at every rank,
// and what the ring says that it receives. Multiples of 1/64, whose sums are exact in any order.
TEST(EngineCost, ARingSumsEachElementAndReceivesAsPredicted) {
  const uint64_t elements = 16 * (kHalvingRangeMax + 1) + 300;
  std::vector<uint32_t> hosts(16);
  std::iota(hosts.begin(), hosts.end(), 0u);
  EngineWorld world({.hosts = hosts, .slow_percent = 20});
  expect_all_ok(world.commit(std::vector{dense_variable("large", elements, 1)}));
  const auto number = [](uint32_t rank, uint64_t element) {
    return static_cast<float>((element * 7 + rank * (element % 5 + 13)) % 257) / 64;
  };
  Listener listener(world, 1);
  std::vector<std::vector<float>> values(world.size(), std::vector<float>(elements));
  std::vector<float> sums(elements);
  std::vector<Request*> requests(2 * size_t{world.size()});
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    for (uint64_t i = 0; i < elements; ++i) sums[i] += values[rank][i] = number(rank, i);
    uint64_t step = 0;
    ASSERT_TRUE(world.engine(rank).step_calls().begin(&step).ok());
    const parallax_slice_t slice = dense_slice(0, values[rank].data());
    ASSERT_TRUE(
        world.engine(rank).step_calls().reduce(step, {&slice, 1}, &requests[2 * rank]).ok());
    ASSERT_TRUE(
        world.engine(rank).step_calls().end(step, end_options(1), &requests[2 * rank + 1]).ok());
  }
  ASSERT_TRUE(world.run_until_done(requests));
  for (uint32_t rank = 0; rank < world.size(); ++rank) ASSERT_TRUE(values[rank] == sums) << rank;
  const Json plan = Json::parse(world.engine(0).reports().plan_json());
  const Json way = chosen(plan["variables"][0]);
  EXPECT_TRUE(way["why"].get<std::string>().ends_with(
      "once round all ranks to be summed, once round to be handed out"))
      << way.dump();
  // The two ranges that do not cross between two hosts are up to a block off the average.
  EXPECT_NEAR(way["predicted_bytes_per_host"],
              static_cast<double>(listener.bytes(0)) / listener.parties(), 2.0 * 256 * 4);
}

// Given a job that is refused because its variables do not fit, expect its plan to be told all the
// same, with what it would have cost.
TEST(EngineCost, IsToldOfAJobThatWasRefused) {
  WorldOptions options;
  options.hosts = {0, 0, 1};
  options.memory_max_bytes = 1 << 20;
  EngineWorld world(options);
  const parallax_variable_t variables[] = {
      dense_variable("dense", 1000, 10, PARALLAX_RULE_SGD),
      sparse_variable("enormous", 1 << 20, 64, 1 << 16, PARALLAX_RULE_ADAGRAD)};
  for (const Status& status : world.commit(variables)) {
    ASSERT_EQ(status.code(), PARALLAX_LIMIT) << status.message();
  }
  // Who hears of it before committing has no variables.
  const Json plan = Json::parse(world.engine(0).reports().plan_json());
  ASSERT_EQ(plan["variables"].size(), 2u);
  EXPECT_EQ(plan["variables"][0]["alternatives"][0]["predicted_bytes_per_host"], 40'000);
}

}  // namespace
}  // namespace parallax::testkit
