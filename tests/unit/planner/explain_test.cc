// SPDX-License-Identifier: Apache-2.0
#include "planner/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "unit/planner/priced.h"

namespace parallax {
namespace {

using Json = nlohmann::json;

constexpr TopologyFacts kExplained = {.hosts = 4, .ranks = 8};

VariableFacts embedding(bool is_measured = true) {
  VariableFacts facts;
  facts.name = "embedding";
  facts.rows = 100'000;
  facts.row_elements = 64;
  facts.tag = PARALLAX_SPARSE;
  facts.managed = true;
  facts.ids_declared = true;
  facts.measured = is_measured;
  facts.touched_rows_per_host = 812;
  facts.union_rows = 2'700;
  facts.pulled_rows_per_host = 812;
  return facts;
}

VariableFacts weights(bool managed) {
  VariableFacts facts;
  facts.name = "weights";
  facts.rows = 256;
  facts.row_elements = 64;
  facts.managed = managed;
  return facts;
}

Json explained(const std::vector<VariableFacts>& variables, parallax_plan_mode_t mode, bool settled,
               const TopologyFacts& topology = kExplained,
               const DenseAlgorithm& to_all = direct_algorithm()) {
  const std::vector<VariableFacts> facts = testkit::priced(variables, topology, to_all);
  const Plan plan =
      settled ? settled_plan(facts, topology, mode) : initial_plan(facts, topology, mode);
  return Json::parse(explain_json(facts, topology, mode, plan, settled));
}

Json way(const Json& variable, const std::string& method) {
  for (const Json& alternative : variable["alternatives"]) {
    if (alternative["method"] == method) return alternative;
  }
  return {};
}

TEST(Explain, JsonHasTheFormOfItsHeader) {
  const Json json =
      explained({embedding(), weights(true), weights(false)}, PARALLAX_PLAN_AUTO, true);
  EXPECT_EQ(json["mode"], "auto");
  EXPECT_EQ(json["settled"], true);
  EXPECT_EQ(json["hosts"], 4);
  EXPECT_EQ(json["ranks"], 8);
  ASSERT_EQ(json["variables"].size(), 3u);
  for (const Json& variable : json["variables"]) {
    for (const char* key : {"name", "rows", "row_elements", "tag", "placement", "method", "why",
                            "measured", "alternatives"}) {
      EXPECT_TRUE(variable.contains(key)) << key;
    }
    size_t chosen = 0;
    for (const Json& alternative : variable["alternatives"]) {
      EXPECT_TRUE(alternative["predicted_bytes_per_host"].is_number_unsigned());
      EXPECT_FALSE(alternative["why"].get<std::string>().empty());
      if (!alternative["chosen"].get<bool>()) continue;
      ++chosen;
      EXPECT_EQ(alternative["method"], variable["method"]);
      EXPECT_EQ(alternative["placement"], variable["placement"]);
      EXPECT_EQ(alternative["why"], variable["why"]);
    }
    EXPECT_EQ(chosen, 1u);
  }
  EXPECT_EQ(json["variables"][0]["placement"], "sharded");
  EXPECT_EQ(json["variables"][0]["tag"], "sparse");
  EXPECT_EQ(json["variables"][0]["measured"]["touched_rows_per_host"], 812);
  EXPECT_EQ(json["variables"][0]["measured"]["union_rows"], 2'700);
  EXPECT_DOUBLE_EQ(json["variables"][0]["measured"]["density"], 0.00812);
  EXPECT_TRUE(json["variables"][1]["measured"].is_null());
  EXPECT_EQ(json["variables"][1]["tag"], "auto");
  EXPECT_EQ(json["variables"][2]["placement"], "framework");
  EXPECT_EQ(json["variables"][2]["alternatives"].size(), 1u);
}

TEST(Explain, LosersSayByHowMuch) {
  const Json variable = explained({embedding()}, PARALLAX_PLAN_AUTO, true)["variables"][0];
  EXPECT_EQ(variable["why"],
            "fewest bytes of 4 ways: 3/4 x (812 pushed + 812 pulled rows) x 260 bytes");
  EXPECT_EQ(way(variable, "push_pull")["predicted_bytes_per_host"], 316'680);
  EXPECT_EQ(way(variable, "allgatherv")["predicted_bytes_per_host"], 633'360);
  EXPECT_EQ(way(variable, "allgatherv")["why"],
            "allgatherv would receive 2.00x the bytes: 3 hosts x 812 rows x 260 bytes");
  EXPECT_EQ(way(variable, "made_dense")["why"],
            "made_dense would receive 121x the bytes: 2 x 3/4 x 100000 rows x 256 bytes");
}

// Rows that the framework holds say their time, and what it is made of.
TEST(Explain, HeldRowsSayTheirTime) {
  VariableFacts held = embedding();
  held.managed = false;
  const Json variable = explained({held}, PARALLAX_PLAN_AUTO, true)["variables"][0];
  EXPECT_EQ(variable["placement"], "framework");
  const Json chosen = way(variable, "allgatherv");
  EXPECT_EQ(chosen["chosen"], true);
  EXPECT_GT(chosen["predicted_us"].get<double>(), 0);
  EXPECT_EQ(variable["why"],
            "least time of 3 ways, 847.1 us (wire 506.7, memory 165.6, rows 157.4, messages 17.4): "
            "3 hosts x 812 rows x 260 bytes");
  const Json lost = way(variable, "made_dense");
  EXPECT_GT(lost["predicted_us"], chosen["predicted_us"]);
  const std::string why_lost = lost["why"];
  EXPECT_EQ(why_lost.rfind("made_dense would take ", 0), 0u) << why_lost;
  EXPECT_NE(why_lost.find("x the time, "), std::string::npos) << why_lost;
  EXPECT_NE(why_lost.find(", and receive "), std::string::npos) << why_lost;
  held.measured = false;
  const Json unmeasured = explained({held}, PARALLAX_PLAN_AUTO, true);
  for (const Json& each : unmeasured["variables"][0]["alternatives"]) {
    EXPECT_FALSE(each.contains("predicted_us"));
  }
  EXPECT_FALSE(way(explained({embedding()}, PARALLAX_PLAN_AUTO, true)["variables"][0], "push_pull")
                   .contains("predicted_us"));
}

TEST(Explain, PinsAreNamed) {
  const Json ar = explained({embedding()}, PARALLAX_PLAN_AR, true)["variables"][0];
  EXPECT_EQ(ar["method"], "allgatherv");
  EXPECT_EQ(way(ar, "push_pull")["why"],
            "excluded by plan mode ar; push_pull would receive 0.50x the bytes: 3/4 x (812 pushed "
            "+ 812 pulled rows) x 260 bytes");
  const Json ps = explained({weights(true)}, PARALLAX_PLAN_PS, true)["variables"][0];
  EXPECT_EQ(ps["why"],
            "the only way that plan mode ps allows where its slices carry every row: 2 x 3/4 x 256 "
            "rows x 256 bytes");
  EXPECT_EQ(way(ps, "allreduce")["why"],
            "excluded by plan mode ps; allreduce would receive 1.000x the bytes: 2 x 3/4 x 256 "
            "rows x 256 bytes");
}

TEST(Explain, PinsOfAVariableAreNamed) {
  VariableFacts facts = embedding();
  EXPECT_FALSE(explained({facts}, PARALLAX_PLAN_AUTO, true)["variables"][0].contains("pin"));
  facts.method_pin = PARALLAX_METHOD_MADE_DENSE;
  const Json pinned = explained({facts}, PARALLAX_PLAN_PS, true)["variables"][0];
  EXPECT_EQ(pinned["pin"], "method made_dense");
  EXPECT_EQ(pinned["why"],
            "the only way that its pin allows (method made_dense): 2 x 3/4 x 100000 rows x 256 "
            "bytes");
  EXPECT_EQ(
      way(pinned, "push_pull")["why"].get<std::string>().rfind(
          "excluded by its pin (method made_dense); push_pull would receive 0.01x the bytes", 0),
      0u)
      << way(pinned, "push_pull")["why"];
  facts.method_pin = PARALLAX_METHOD_AUTO;
  facts.placement_pin = PARALLAX_PLACEMENT_MIRRORED;
  const Json mirrored = explained({facts}, PARALLAX_PLAN_AUTO, true)["variables"][0];
  EXPECT_EQ(mirrored["pin"], "placement mirrored");
  EXPECT_EQ(mirrored["why"].get<std::string>().rfind("fewest bytes of 3 ways", 0), 0u)
      << mirrored["why"];
}

TEST(Explain, TiesAndNearTiesSaySo) {
  const Json tie = explained({weights(true)}, PARALLAX_PLAN_AUTO, true)["variables"][0];
  EXPECT_EQ(way(tie, "push_pull")["why"],
            "push_pull would receive 1.000x the bytes: 2 x 3/4 x 256 rows x 256 bytes; a tie, so "
            "the initial choice stays");
  VariableFacts full = embedding();
  full.row_elements = 128;
  full.touched_rows_per_host = full.union_rows = full.pulled_rows_per_host = 100'000;
  const Json near = explained({full}, PARALLAX_PLAN_AUTO, true)["variables"][0];
  EXPECT_EQ(near["method"], "push_pull");
  EXPECT_EQ(near["why"],
            "the initial choice, and within 1% of the fewest bytes: 3/4 x (100000 pushed + 100000 "
            "pulled rows) x 516 bytes");
  EXPECT_EQ(way(near, "made_dense")["why"],
            "made_dense would receive 0.992x the bytes: 2 x 3/4 x 100000 rows x 512 bytes; within "
            "1%, so the initial choice stays");
}

TEST(Explain, UnmeasuredIsNull) {
  for (const bool settled : {false, true}) {
    const Json variable =
        explained({embedding(false)}, PARALLAX_PLAN_AUTO, settled)["variables"][0];
    EXPECT_TRUE(variable["measured"].is_null());
    EXPECT_TRUE(way(variable, "allgatherv")["predicted_bytes_per_host"].is_null());
    EXPECT_EQ(way(variable, "made_dense")["predicted_bytes_per_host"], 38'400'000);
    EXPECT_EQ(way(variable, "allgatherv")["why"],
              "allgatherv cannot be predicted until rows are measured");
    EXPECT_EQ(variable["why"], settled
                                   ? "by form, since nothing was measured: its slices carry row ids"
                                   : "by form, until rows are measured: its slices carry row ids");
  }
}

TEST(Explain, UnusedSaysSo) {
  VariableFacts unused = embedding();
  unused.touched_rows_per_host = unused.union_rows = unused.pulled_rows_per_host = 0;
  const Json variable = explained({unused}, PARALLAX_PLAN_AUTO, true)["variables"][0];
  EXPECT_EQ(variable["why"], "never pulled nor pushed, so the initial choice stays");
  EXPECT_EQ(way(variable, "made_dense")["why"], "made_dense would receive nothing either");
}

TEST(Explain, OneHostSaysThatNothingIsOnTheWire) {
  const Json variable =
      explained({embedding()}, PARALLAX_PLAN_AUTO, true, {.hosts = 1, .ranks = 4})["variables"][0];
  for (const Json& alternative : variable["alternatives"]) {
    const std::string why = alternative["why"];
    EXPECT_NE(why.find("between ranks in shared memory, nothing on the wire"), std::string::npos)
        << why;
  }
  const Json alone =
      explained({embedding()}, PARALLAX_PLAN_AUTO, true, {.hosts = 1, .ranks = 1})["variables"][0];
  EXPECT_EQ(way(alone, "allgatherv")["why"],
            "allgatherv would receive 0 bytes: one rank, nothing moves");
}

// Given elements that go by a tree or a ring, expect the words to say so, and the ring's figure.
TEST(Explain, ElementsGoAsTheirScheduleSays) {
  const TopologyFacts hosts = {.hosts = 16, .ranks = 32};
  const auto named = [](const std::string& name) -> const DenseAlgorithm& {
    return *std::find_if(std::begin(kDenseAlgorithms), std::end(kDenseAlgorithms),
                         [&](const DenseAlgorithm& each) { return name == each.name; });
  };
  VariableFacts bias = weights(false);
  bias.rows = 4;
  const Json few =
      explained({bias}, PARALLAX_PLAN_AUTO, true, hosts, named("tree"))["variables"][0];
  EXPECT_EQ(way(few, "allreduce")["predicted_bytes_per_host"], 1'920);
  EXPECT_EQ(few["why"],
            "the only way where its slices carry every row: 2 x 15/16 x 4 rows x 256 bytes, summed "
            "up and handed down a tree of hosts");
  VariableFacts large = weights(true);
  large.rows = 32 * 1024;
  const Json many =
      explained({large}, PARALLAX_PLAN_AUTO, true, hosts, named("ring"))["variables"][0];
  EXPECT_EQ(way(many, "allreduce")["predicted_bytes_per_host"], 32 * 1024 * 256 * 2 / 32 * 31);
  EXPECT_EQ(way(many, "allreduce")["why"],
            "allreduce would receive 1.033x the bytes: 2 x 31/32 x 32768 rows x 256 bytes, once "
            "round all ranks to be summed, once round to be handed out");
  EXPECT_EQ(many["why"], "fewest bytes of 2 ways: 2 x 15/16 x 32768 rows x 256 bytes");
}

// Given a plan that the figures no longer favour, expect the plan in force to be explained, not
// another one.
TEST(Explain, ThePlanGivenIsThePlanExplained) {
  const std::vector<VariableFacts> facts = {testkit::priced(embedding(), kExplained)};
  const Plan plan = {{Placement::kMirrored, Method::kReduceRows}};
  const Json json = Json::parse(explain_json(facts, kExplained, PARALLAX_PLAN_AUTO, plan, true));
  const Json& variable = json["variables"][0];
  EXPECT_EQ(variable["method"], "reduce_rows");
  EXPECT_EQ(variable["why"], "the plan in force; the figures now favour push_pull");
  const std::string why = way(variable, "push_pull")["why"];
  EXPECT_NE(why.find("; the plan in force stays"), std::string::npos) << why;
  EXPECT_THROW(explain_json(facts, kExplained, PARALLAX_PLAN_AUTO, Plan{}, true), InternalError);
}

TEST(Explain, NamesThatAreNotUtf8AreRepaired) {
  VariableFacts facts = weights(true);
  facts.name = "\"quoted\"\n\xff";
  const Json json = explained({facts}, PARALLAX_PLAN_AUTO, true);
  EXPECT_EQ(json["variables"][0]["name"], "\"quoted\"\n\xef\xbf\xbd");
}

TEST(Explain, NoVariables) {
  EXPECT_EQ(explained({}, PARALLAX_PLAN_HYBRID, false)["variables"], Json::array());
}

TEST(Explain, Table) {
  const std::vector<VariableFacts> facts =
      testkit::priced({embedding(), weights(true), embedding(false)}, kExplained);
  const Plan plan = settled_plan(facts, kExplained, PARALLAX_PLAN_AUTO);
  const std::string table = explain_table(facts, kExplained, PARALLAX_PLAN_AUTO, plan, true);
  EXPECT_EQ(table.substr(0, table.find('\n')), "plan auto, settled; hosts 4, ranks 8");
  EXPECT_NE(table.find("\ncosts " + costs_text(kExplained.costs) + "\n"), std::string::npos);
  EXPECT_NE(table.find("embedding  sharded    push_pull             316680  fewest bytes"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("  not      mirrored   allgatherv            633360  allgatherv would"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("  not      mirrored   allgatherv                 ?  allgatherv cannot"),
            std::string::npos)
      << table;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3 + 4 + 2 + 4);
}

// Given rows that are rounded on their way to other hosts, expect that said, and by how much.
TEST(Explain, RoundingIsSaid) {
  VariableFacts facts = embedding();
  facts.pushed = {.bytes = 2, .has_code = true};
  const Json rounded = explained({facts}, PARALLAX_PLAN_PS, true)["variables"][0];
  EXPECT_EQ(rounded["pushed_as"], "bf16");
  const auto why = rounded["why"].get<std::string>();
  EXPECT_NE(why.find("rounded to bf16 (wire_dtype)"), std::string::npos) << why;
  EXPECT_NE(why.find("2^-8"), std::string::npos) << why;
  const TopologyFacts one_host = {.hosts = 1, .ranks = 4};
  EXPECT_FALSE(
      explained({facts}, PARALLAX_PLAN_PS, true, one_host)["variables"][0].contains("pushed_as"));
  EXPECT_FALSE(explained({facts}, PARALLAX_PLAN_AR, true)["variables"][0].contains("pushed_as"));
  facts.pushed.bytes = 4;
  EXPECT_FALSE(explained({facts}, PARALLAX_PLAN_PS, true)["variables"][0].contains("pushed_as"));
}

// Given rows that are summed in domains of memory first, expect that said of the methods that do.
TEST(Explain, DomainsAreSaid) {
  VariableFacts facts = embedding();
  TopologyFacts topology = kExplained;
  topology.domains = 2;
  const auto variable_of = [&](bool settled) {
    return explained({facts}, PARALLAX_PLAN_AUTO, settled, topology)["variables"][0];
  };
  const Json variable = variable_of(true);
  EXPECT_EQ(variable["method"], "push_pull");
  EXPECT_EQ(variable["domains"], 2);
  const auto why = variable["why"].get<std::string>();
  EXPECT_NE(why.find("; rows are summed within each of 2 NUMA nodes first"), std::string::npos)
      << why;
  facts.managed = false;
  const Json held = variable_of(false);
  EXPECT_EQ(held["method"], "allgatherv") << "which sums in one order";
  EXPECT_FALSE(held.contains("domains"));
  topology.domains = 1;
  facts.managed = true;
  EXPECT_FALSE(variable_of(true).contains("domains"));
}

// Given a ceiling, expect chunks and bytes in numbers and in words, and no way that keeps it not.
TEST(Explain, CeilingsTellTheirChunks) {
  VariableFacts facts = embedding();
  facts.managed = false;
  facts.ceiling = {.bytes_max = 5'000'000,
                   .gathered = {.count = 12, .rows = 8'400, .bytes = 4'990'000},
                   .reduced = {.count = 1, .rows = 0, .bytes = 4'000'000},
                   .made_dense = {.count = 0, .rows = 0, .bytes = 90'000'000}};
  const Json variable = explained({facts}, PARALLAX_PLAN_AUTO, false)["variables"][0];
  EXPECT_EQ(variable["method"], "allgatherv");
  EXPECT_EQ(variable["exchange_bytes_max"], 5'000'000);
  EXPECT_EQ(variable["exchange_bytes"], 4'990'000);
  EXPECT_EQ(variable["chunks"], 12);
  const auto why = variable["why"].get<std::string>();
  EXPECT_NE(why.find("; in 12 rounds of 8400 rows, which stage 4990000 bytes (exchange_bytes_max "
                     "is 5000000)"),
            std::string::npos)
      << why;
  EXPECT_EQ(variable["alternatives"].size(), 2u);
  const auto other = way(variable, "reduce_rows")["why"].get<std::string>();
  EXPECT_NE(other.find("; in 1 round, which stage"), std::string::npos) << other;
  facts.ceiling = {};
  EXPECT_FALSE(explained({facts}, PARALLAX_PLAN_AUTO, false)["variables"][0].contains("chunks"));
}

}  // namespace
}  // namespace parallax
