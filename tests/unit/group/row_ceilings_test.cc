// SPDX-License-Identifier: Apache-2.0
// What a ceiling makes of a variable that a group takes in.
#include "group/row_ceilings.h"

#include <gtest/gtest.h>

#include "collectives/host_rows.h"
#include "support/slot_maps.h"
#include "support/words.h"

namespace parallax {
namespace {

using testkit::has;

VariableFacts capped(uint32_t pin) {
  VariableFacts facts;
  facts.name = "capped";
  facts.ids_declared = true;
  facts.method_pin = pin;
  facts.ceiling.bytes_max = 100;
  return facts;
}

// Given a method that does not keep the ceiling, expect LIMIT where the plan begins with it.
TEST(RowCeilings, TheFirstMethodKeepsIt) {
  VariableFacts facts = capped(PARALLAX_METHOD_AUTO);
  EXPECT_TRUE(check_chunks(facts, 3).ok());
  facts.ceiling.reduced = {.count = 0, .bytes = 777};
  facts.ceiling.made_dense = {.count = 0, .bytes = 888};
  EXPECT_TRUE(check_chunks(facts, 3).ok());
  facts.ceiling.gathered = {.count = 0, .bytes = 999};
  const Status gathered = check_chunks(facts, 3);
  EXPECT_EQ(gathered.code(), PARALLAX_LIMIT);
  EXPECT_EQ(gathered.message(),
            "commit: variable 'capped': exchange_bytes_max is 100, and allgatherv takes 999 bytes "
            "in the smallest chunks that there are; raise it to that");
  EXPECT_EQ(gathered.facts().variable, 3u);
  EXPECT_EQ(gathered.facts().field, "exchange_bytes_max");
  facts.method_pin = PARALLAX_METHOD_REDUCE_ROWS;
  EXPECT_TRUE(has(check_chunks(facts, 3).message(), "reduce_rows takes 777 bytes"));
  facts.method_pin = PARALLAX_METHOD_MADE_DENSE;
  EXPECT_TRUE(has(check_chunks(facts, 3).message(), "made_dense takes 888 bytes in the smallest"));
  facts.ceiling.bytes_max = 0;
  EXPECT_TRUE(check_chunks(facts, 3).ok());
}

// Given chunks, expect what neighbours read to have room for the wider method's, and no more: of a
// pin for its own, and none for what is never chosen.
TEST(RowCeilings, BlocksAreOfAChunk) {
  Variable variable;
  variable.rows = 1000;
  variable.row_elements = 2;
  variable.rows_max = 300;
  const SlotMap slots = testkit::even_slots(2);
  VariableRuntime runtime(0, variable, slots, slots);
  const auto bytes_of = [&runtime](uint64_t rows, uint64_t rows_max) {
    return HostRows::block_bytes(runtime.shared_gradient.of_rows(rows), rows_max, SumType::kF32);
  };
  EXPECT_EQ(staged_bytes(runtime), bytes_of(1000, 300));
  EXPECT_TRUE(has_staged_block(runtime, Method::kPushPull));
  runtime.facts.ceiling.bytes_max = 5000;
  runtime.facts.ceiling.gathered = {.count = 20, .rows = 50};
  runtime.facts.ceiling.reduced = {.count = 10, .rows = 100};
  EXPECT_EQ(staged_bytes(runtime), bytes_of(100, 100));
  EXPECT_TRUE(has_staged_block(runtime, Method::kAllgatherv));
  EXPECT_TRUE(has_staged_block(runtime, Method::kReduceRows));
  EXPECT_FALSE(has_staged_block(runtime, Method::kMadeDense));
  runtime.facts.ceiling.made_dense = {.count = 5, .rows = 200};
  EXPECT_FALSE(has_staged_block(runtime, Method::kMadeDense)) << "nor would it keep a ceiling";
  runtime.facts.ceiling.reduced = {.count = 0};
  EXPECT_EQ(staged_bytes(runtime), bytes_of(50, 50));
  runtime.facts.method_pin = PARALLAX_METHOD_MADE_DENSE;
  EXPECT_EQ(staged_bytes(runtime), bytes_of(200, 200));
  EXPECT_TRUE(has_staged_block(runtime, Method::kMadeDense));
  variable.rows_max = 0;
  EXPECT_EQ(staged_bytes(runtime), 0u);
}

}  // namespace
}  // namespace parallax
