// SPDX-License-Identifier: Apache-2.0
// What the plan says of coding beside what is done.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "message/section_coding.h"
#include "support/script.h"

namespace parallax::testkit::coding_reports {
namespace {
using Json = nlohmann::json;

void step(EngineWorld& world, const std::vector<int64_t>& ids) {
  // Of numbers of up to 8 bytes.
  std::vector<float> values(2 * ids.size()), gradients(2 * ids.size(), 1);
  uint64_t number = 0;
  const auto all = [&](auto post) {
    for (const Status& status : world.everywhere(post))
      EXPECT_TRUE(status.ok()) << status.message();
  };
  for (uint32_t rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(world.engine(rank).step_calls().begin(&number).ok());
  const std::vector<parallax_slice_t> wanted = {rows_slice(0, ids, values.data())};
  const std::vector<parallax_slice_t> given = {rows_slice(0, ids, gradients.data())};
  all([&](uint32_t rank, Request** request) {
    return world.engine(rank).step_calls().pull(number, wanted, request);
  });
  all([&](uint32_t rank, Request** request) {
    return world.engine(rank).step_calls().push(number, given, request);
  });
  parallax_step_end_options_t end = {};
  end.size = sizeof end;
  end.learning_rate = 1;
  all([&](uint32_t rank, Request** request) {
    return world.engine(rank).step_calls().end(number, end, request);
  });
}
Json variable(const std::string& report) { return Json::parse(report)["variables"][0]; }
uint64_t spared(EngineWorld& world) {
  return variable(world.engine(0).reports().stats_json())["wire_spared_bytes"].get<uint64_t>();
}

// The plan and what is done agree, before rows are measured and after.
TEST(CodingReports, TellWhatIsDone) {
  WorldOptions options = {.hosts = {0, 1}, .plan_after_steps = 2, .seed = 9500};
  options.adjust = [](uint32_t, EngineOptions* engine) {
    engine->costs = kStandardCosts;
    EXPECT_TRUE(parse_costs("between_byte_ps=9000,row_sort_ps=40000", &engine->costs).ok());
    engine->costs.measured = false;
  };
  EngineWorld world(options);
  parallax_variable_t table = sparse_variable("table", 4'000'000, 1, 200'000, PARALLAX_RULE_SGD);
  table.method = PARALLAX_METHOD_PUSH_PULL;
  table.dtype = PARALLAX_F64;  // of which no numbers are coded
  for (const Status& status : world.commit({&table, 1}))
    EXPECT_TRUE(status.ok()) << status.message();
  std::vector<int64_t> ids(200);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i) * 19'997;
  for (int i = 0; i < 8; ++i) {
    const Json coding = variable(world.engine(0).reports().plan_json())["coding"];
    const uint64_t before = spared(world);
    step(world, ids);
    EXPECT_EQ(coding["row_keys"].get<bool>(), spared(world) > before)
        << "step " << i + 1 << ": " << coding.dump();
  }
}

// What is never coded is not said to be.
TEST(CodingReports, OfNumbersThatHaveACode) {
  WorldOptions options = {.hosts = {0, 1}, .plan_after_steps = 1000, .seed = 9500};
  options.adjust = [](uint32_t, EngineOptions* engine) {
    engine->row_ways.coding = RowCodingMode::kOn;
  };
  EngineWorld world(options);
  parallax_variable_t table = sparse_variable("table", 400, 4, 100, PARALLAX_RULE_SGD);
  table.dtype = PARALLAX_F16;
  table.storage_dtype = PARALLAX_AS(PARALLAX_F16);
  for (const Status& status : world.commit({&table, 1}))
    EXPECT_TRUE(status.ok()) << status.message();
  const Json coding = variable(world.engine(0).reports().plan_json())["coding"];
  EXPECT_EQ(coding["pulled_numbers"].get<bool>(), has_number_code(PARALLAX_F16)) << coding.dump();
}

}  // namespace
}  // namespace parallax::testkit::coding_reports
