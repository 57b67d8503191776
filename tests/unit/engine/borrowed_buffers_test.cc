// SPDX-License-Identifier: Apache-2.0
// Which bytes a pending request borrows: to the last one, and none beside.
#include "engine/borrowed_buffers.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace parallax {
namespace {

constexpr uint64_t kRows = 10, kElements = 4, kListed = 3;

std::array<std::byte, 4096> memory = {};

// Numbered as they come.
void register_variables(Registry* registry) {
  std::vector<Variable> all(4);
  all[1].rows_max = 8;
  all[1].rule = PARALLAX_RULE_ROWWISE_ADAGRAD;
  all[2].dtype = PARALLAX_F16;
  all[2].rule = PARALLAX_RULE_ADAM;
  all[3].init = PARALLAX_INIT_BUFFER;
  all[3].initial = &memory[3000];
  uint32_t id = 0;
  for (Variable& each : all) {
    each.name = std::string(1, static_cast<char>('a' + id));
    each.rows = kRows;
    each.row_elements = kElements;
    EXPECT_TRUE(registry->add(each, &id).ok());
    ++id;
  }
  registry->number_new();
}

// The bytes of `memory` that the request borrows, as [first, end) pairs.
std::vector<std::pair<size_t, size_t>> borrowed(const Request& request) {
  Registry registry;
  register_variables(&registry);
  std::vector<std::pair<size_t, size_t>> ranges;
  for (size_t at = 0; at < memory.size(); ++at) {
    if (!borrows(request, registry, ByteRange::at(&memory[at], 1))) continue;
    if (ranges.empty() || ranges.back().second != at) ranges.emplace_back(at, at);
    ++ranges.back().second;
  }
  return ranges;
}

using Ranges = std::vector<std::pair<size_t, size_t>>;

TEST(BorrowedBuffers, OfASliceItsValuesItsIdsAndItsDestination) {
  Request request;
  request.reset(RequestKind::kReduce, 3);
  request.slices.push_back({.variable = 0, .ids = {}, .values = &memory[8], .into = &memory[1000]});
  EXPECT_EQ(borrowed(request), (Ranges{{8, 8 + 160}, {1000, 1160}}));
  EXPECT_EQ(call_name(request), "a pending reduce of step 3");

  request.reset(RequestKind::kPush, 1);
  PullSlice rows = {.variable = 1, .ids = {}, .count = kListed, .values = &memory[512]};
  rows.ids.wide = reinterpret_cast<const int64_t*>(&memory[64]);
  request.slices.push_back(rows);
  EXPECT_EQ(borrowed(request), (Ranges{{64, 64 + 24}, {512, 512 + 48}}));
  request.slices[0].ids = {};
  request.slices[0].ids.narrow = reinterpret_cast<const int32_t*>(&memory[64]);
  request.slices[0].dtype = PARALLAX_F16;
  EXPECT_EQ(borrowed(request), (Ranges{{64, 64 + 12}, {512, 512 + 24}}));

  // No rows; and all of them, of a variable with row ids.
  request.slices[0].count = 0;
  EXPECT_EQ(borrowed(request), Ranges{});
  request.slices[0] = {.variable = 1, .ids = {}, .values = &memory[0], .every_row = true};
  EXPECT_EQ(borrowed(request), (Ranges{{0, 160}}));

  // The second slice of a call, by rows alone of a pull or an evaluation.
  request.slices.insert(request.slices.begin(),
                        PullSlice{.variable = 0, .ids = {}, .values = &memory[2048]});
  for (const RequestKind kind : {RequestKind::kPull, RequestKind::kEvaluate}) {
    request.kind = kind;
    EXPECT_EQ(borrowed(request), (Ranges{{0, 160}, {2048, 2048 + 160}}));
  }
}

TEST(BorrowedBuffers, OfACommitInitialValues) {
  Request request;
  request.reset(RequestKind::kCommit, 0);
  EXPECT_EQ(borrowed(request), (Ranges{{3000, 3160}}));
}

// Fused tables have theirs each by itself.
TEST(BorrowedBuffers, OfACommitInitialValuesOfFusedTables) {
  Registry registry;
  uint32_t id = 0;
  for (uint32_t i = 0; i < kFusedMin; ++i) {
    Variable table;
    table.name = "t" + std::to_string(i);
    table.rows = kRows;
    table.row_elements = kElements;
    table.rows_max = 2;
    table.rule = PARALLAX_RULE_SGD;
    table.init = PARALLAX_INIT_BUFFER;
    table.initial = &memory[size_t{1000} * i];
    table.fuse_tables = true;
    ASSERT_TRUE(registry.add(table, &id).ok());
  }
  registry.number_new();
  ASSERT_EQ(registry.numbered().size(), 1u);
  Request request;
  request.reset(RequestKind::kCommit, 0);
  for (uint32_t i = 0; i < kFusedMin; ++i) {
    EXPECT_TRUE(borrows(request, registry, ByteRange::at(&memory[1000 * i + 159], 1))) << i;
    EXPECT_FALSE(borrows(request, registry, ByteRange::at(&memory[1000 * i + 160], 1))) << i;
  }
}

TEST(BorrowedBuffers, OfRowsEachArrayInTheTypeItIsKeptIn) {
  Request request;
  request.reset(RequestKind::kRows, 0);
  request.rows_call = {.variable = 1, .row_count = 2, .parts = {&memory[0], &memory[256]}};
  request.rows_call.updates = reinterpret_cast<uint64_t*>(&memory[1024]);
  EXPECT_EQ(borrowed(request), (Ranges{{0, 32}, {256, 264}, {1024, 1032}})) << "one number a row";
  request.rows_call = {
      .variable = 2, .row_count = 2, .parts = {nullptr, &memory[256], &memory[512]}};
  EXPECT_EQ(borrowed(request), (Ranges{{256, 288}, {512, 544}})) << "F16 is kept in float";
  EXPECT_EQ(call_name(request), "a pending read");
}

TEST(BorrowedBuffers, OfCollectivesTheirBuffers) {
  Request request;
  request.reset(RequestKind::kBroadcast, 0);
  request.buffer = std::span(memory).subspan(100, 7);
  EXPECT_EQ(borrowed(request), (Ranges{{100, 107}}));
  request.reset(RequestKind::kCollective, 0);
  request.send = ByteRange::at(&memory[0], 12);
  request.recv = ByteRange::at(&memory[20], 4);
  EXPECT_EQ(borrowed(request), (Ranges{{0, 12}, {20, 24}}));
  for (const RequestKind kind :
       {RequestKind::kBarrier, RequestKind::kStepEnd, RequestKind::kSplit, RequestKind::kClose}) {
    request.reset(kind, 0);
    EXPECT_EQ(borrowed(request), Ranges{});
  }
}

}  // namespace
}  // namespace parallax
