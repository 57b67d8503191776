// SPDX-License-Identifier: Apache-2.0
#include "message/kinds.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace parallax {
namespace {

TEST(Kinds, every_kind_is_found_by_its_number_and_bears_a_name_of_its_own) {
  std::set<std::string> names;
  for (uint8_t i = 1; i < static_cast<uint8_t>(SectionKind::kKindCount); ++i) {
    const auto kind = SectionKind{i};
    EXPECT_EQ(row_of(kind).kind, kind) << int{i};
    EXPECT_TRUE(names.insert(name_of(kind)).second) << name_of(kind);
  }
  EXPECT_EQ(names.size(), kKindRows.size());
}

TEST(Kinds, every_layer_has_a_kind) {
  std::set<Layer> layers;
  for (const KindRow& row : kKindRows) layers.insert(row.layer);
  EXPECT_EQ(layers.size(), kLayerCount);
}

// A counter or a fault rule that took another tag for a variable would blame the wrong one: a
// step's end and a tree's round have numbers there too.
TEST(Kinds, only_data_of_a_variable_carries_one) {
  const std::set<Layer> of_variables = {Layer::kExchange, Layer::kPull, Layer::kMigration,
                                        Layer::kRowAccess};
  for (const KindRow& row : kKindRows) {
    EXPECT_EQ(carries_variable(row.kind), of_variables.count(row.layer) == 1) << row.name;
  }
  EXPECT_FALSE(carries_variable(SectionKind::kStepEnded));
  EXPECT_FALSE(carries_variable(SectionKind::kTreeUp));
  EXPECT_TRUE(carries_variable(SectionKind::kRowsWritten));
}

}  // namespace
}  // namespace parallax
