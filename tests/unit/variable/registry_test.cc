// SPDX-License-Identifier: Apache-2.0
#include "variable/registry.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/words.h"

namespace parallax::testkit {
namespace {

Variable named(const std::string& name) {
  Variable variable;
  variable.name = name;
  return variable;
}

uint32_t add(Registry& registry, const std::string& name) {
  uint32_t id = UINT32_MAX;
  EXPECT_TRUE(registry.add(named(name), &id).ok());
  return id;
}

std::vector<std::string> names(std::span<const Variable* const> variables) {
  std::vector<std::string> all;
  for (const Variable* variable : variables) all.push_back(variable->name);
  return all;
}

// Given the same variables in two orders, expect ids by order and numbers by name.
TEST(Registry, NumbersAreAlikeInAnyOrder) {
  const std::vector<std::string> orders[] = {{"b", "a\xc3\xa9", "B", "a"},
                                             {"a", "B", "b", "a\xc3\xa9"}};
  for (const auto& order : orders) {
    Registry registry;
    for (uint32_t id = 0; id < order.size(); ++id) EXPECT_EQ(add(registry, order[id]), id);
    EXPECT_FALSE(registry.has_number(0));
    EXPECT_TRUE(registry.numbered().empty());
    registry.number_new();
    EXPECT_EQ(names(registry.numbered()), (std::vector<std::string>{"B", "a", "a\xc3\xa9", "b"}));
    for (uint32_t id = 0; id < order.size(); ++id) {
      EXPECT_EQ(registry[id].name, order[id]);
      EXPECT_EQ(registry.id_of(registry.number_of(id)), id);
      EXPECT_EQ(registry.numbered()[registry.number_of(id)], &registry[id]);
      EXPECT_EQ(registry.id_named(order[id]), id);
    }
  }
}

TEST(Registry, WhatHasANumberKeepsItAndStays) {
  Registry registry;
  add(registry, "m");
  registry.number_new();
  const Variable* const first = &registry[0];
  for (uint32_t i = 0; i < 1000; ++i) add(registry, "a" + std::to_string(i));
  add(registry, "z");
  EXPECT_TRUE(registry.has_number(0));
  EXPECT_FALSE(registry.has_number(1));
  registry.number_new();
  EXPECT_EQ(&registry[0], first);
  EXPECT_EQ(registry.number_of(0), 0u);
  EXPECT_EQ(registry.id_of(0), 0u);
  EXPECT_EQ(registry.newest().size(), 1001u);
  EXPECT_EQ(registry.newest().back()->name, "z");
  EXPECT_EQ(registry.newest()[2]->name, "a10");
  registry.number_new();
  EXPECT_TRUE(registry.newest().empty()) << "nothing is new";
  EXPECT_EQ(registry.numbered().size(), 1002u);
}

TEST(Registry, ANameIsTakenOnce) {
  Registry registry;
  EXPECT_EQ(registry.id_named("x"), PARALLAX_NO_VARIABLE);
  EXPECT_EQ(registry.id_named(""), PARALLAX_NO_VARIABLE);
  add(registry, "x");
  uint32_t id = 7;
  const Status refused = registry.add(named("x"), &id);
  EXPECT_EQ(refused.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(refused, "variable 'x': the name is registered already"));
  EXPECT_EQ(refused.facts().variable, 0u);
  EXPECT_EQ(registry.size(), 1u);
  EXPECT_EQ(id, 7u);
}

TEST(Registry, HoldsSoManyAndNoMore) {
  Registry registry;
  for (uint32_t i = 0; i < PARALLAX_VARIABLES_MAX; ++i) add(registry, std::to_string(i));
  uint32_t id = 0;
  EXPECT_EQ(registry.add(named("more"), &id).code(), PARALLAX_LIMIT);
}

}  // namespace
}  // namespace parallax::testkit
