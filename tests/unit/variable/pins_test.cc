// SPDX-License-Identifier: Apache-2.0
#include "variable/pins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <clocale>
#include <string>
#include <vector>

namespace parallax {
namespace {

// A variable with or without row ids, managed or the framework's.
Variable variable(const std::string& name, bool rows, bool managed, uint32_t dtype = PARALLAX_F32) {
  Variable made;
  made.name = name;
  made.rows = 10;
  made.row_elements = 2;
  made.rows_max = rows ? 4 : 0;
  made.rule = managed ? PARALLAX_RULE_SUM : PARALLAX_RULE_NONE;
  made.dtype = dtype;
  return made;
}

TEST(CheckPin, TakesTheWaysOfAFormAndNoOther) {
  struct Case {
    bool rows, managed;
    uint32_t dtype;
    std::vector<uint32_t> methods;
  };
  const Case cases[] = {
      {false, false, PARALLAX_F32, {PARALLAX_METHOD_ALLREDUCE}},
      {false, true, PARALLAX_F32, {PARALLAX_METHOD_ALLREDUCE, PARALLAX_METHOD_PUSH_PULL}},
      {true,
       false,
       PARALLAX_F32,
       {PARALLAX_METHOD_ALLGATHERV, PARALLAX_METHOD_REDUCE_ROWS, PARALLAX_METHOD_MADE_DENSE}},
      {true,
       true,
       PARALLAX_BF16,
       {PARALLAX_METHOD_ALLGATHERV, PARALLAX_METHOD_REDUCE_ROWS, PARALLAX_METHOD_MADE_DENSE,
        PARALLAX_METHOD_PUSH_PULL}},
      {true,
       true,
       PARALLAX_I64,
       {PARALLAX_METHOD_ALLGATHERV, PARALLAX_METHOD_REDUCE_ROWS, PARALLAX_METHOD_PUSH_PULL}},
  };
  for (const Case& each : cases) {
    const Variable made = variable("v", each.rows, each.managed, each.dtype);
    EXPECT_TRUE(check_pin(made, {}).ok());
    for (uint32_t method = 1; method <= PARALLAX_METHOD_PUSH_PULL; ++method) {
      const bool fits =
          std::find(each.methods.begin(), each.methods.end(), method) != each.methods.end();
      const Status status = check_pin(made, {.method = method});
      EXPECT_EQ(status.ok(), fits) << "rows " << each.rows << ", managed " << each.managed << ": "
                                   << kMethodPins[method] << " " << status.message();
      if (fits) continue;
      EXPECT_EQ(status.code(), PARALLAX_INVALID);
      // The remedy names every way that there is.
      for (const uint32_t other : each.methods) {
        EXPECT_NE(status.message().find(kMethodPins[other]), std::string::npos) << status.message();
      }
    }
  }
}

TEST(CheckPin, APlacementIsOfManagedOnesAndFitsTheMethod) {
  const Variable managed = variable("v", true, true), held = variable("v", true, false);
  const auto code = [](const Variable& of, uint32_t placement, uint32_t method = 0) {
    return check_pin(of, {.placement = placement, .method = method}).code();
  };
  EXPECT_EQ(code(managed, PARALLAX_PLACEMENT_SHARDED), PARALLAX_OK);
  EXPECT_EQ(code(managed, PARALLAX_PLACEMENT_MIRRORED), PARALLAX_OK);
  EXPECT_EQ(code(managed, PARALLAX_PLACEMENT_SHARDED, PARALLAX_METHOD_PUSH_PULL), PARALLAX_OK);
  EXPECT_EQ(code(managed, PARALLAX_PLACEMENT_MIRRORED, PARALLAX_METHOD_ALLGATHERV), PARALLAX_OK);
  EXPECT_EQ(code(managed, PARALLAX_PLACEMENT_MIRRORED, PARALLAX_METHOD_PUSH_PULL),
            PARALLAX_INVALID);
  EXPECT_EQ(code(managed, PARALLAX_PLACEMENT_SHARDED, PARALLAX_METHOD_MADE_DENSE),
            PARALLAX_INVALID);
  EXPECT_EQ(code(held, PARALLAX_PLACEMENT_MIRRORED), PARALLAX_INVALID);
  EXPECT_EQ(code(managed, 3), PARALLAX_INVALID);
  EXPECT_EQ(code(managed, 0, PARALLAX_METHOD_PUSH_PULL + 1), PARALLAX_INVALID);
}

Pin pin_by(const std::string& text, Variable of, bool sparse_as_dense = false) {
  Pins pins;
  const Status parsed = Pins::parse(text, sparse_as_dense, &pins);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  const Status applied = pins.apply(&of);
  EXPECT_TRUE(applied.ok()) << applied.message();
  return of.pin;
}

TEST(Pins, TheFirstPatternThatAVariableCanFollow) {
  const std::string text = " emb[0-3].* = push_pull ;emb?.*=made_dense;*=mirrored;; a=b=allreduce";
  EXPECT_EQ(pin_by(text, variable("emb1.w", true, true)).method, PARALLAX_METHOD_PUSH_PULL);
  EXPECT_EQ(pin_by(text, variable("emb7.w", true, true)).method, PARALLAX_METHOD_MADE_DENSE);
  // The framework's rows cannot be pushed.
  EXPECT_EQ(pin_by(text, variable("emb1.w", true, false)).method, PARALLAX_METHOD_MADE_DENSE);
  const Pin head = pin_by(text, variable("head", false, true));
  EXPECT_EQ(head.placement, PARALLAX_PLACEMENT_MIRRORED);
  EXPECT_EQ(head.method, PARALLAX_METHOD_AUTO);
  EXPECT_FALSE(pin_by(text, variable("head", false, false)).given());
  EXPECT_EQ(pin_by(text, variable("a=b", false, false)).method, PARALLAX_METHOD_ALLREDUCE);
  EXPECT_FALSE(pin_by("", variable("head", true, true)).given());
}

TEST(Pins, ItsOwnGoesBefore) {
  Variable own = variable("emb", true, true);
  own.pin.method = PARALLAX_METHOD_REDUCE_ROWS;
  EXPECT_EQ(pin_by("emb=push_pull", own, true).method, PARALLAX_METHOD_REDUCE_ROWS);
}

TEST(Pins, SparseAsDenseIsOfWhatNoPatternIsOf) {
  EXPECT_EQ(pin_by("b=sharded", variable("a", true, true), true).method,
            PARALLAX_METHOD_MADE_DENSE);
  EXPECT_EQ(pin_by("b=sharded", variable("b", true, true), true).method, PARALLAX_METHOD_AUTO);
  EXPECT_FALSE(pin_by("", variable("a", false, true), true).given());
  EXPECT_FALSE(pin_by("", variable("a", true, true, PARALLAX_I32), true).given());
}

TEST(Pins, ANameThatCannotFollowIsInvalid) {
  Pins pins;
  ASSERT_TRUE(Pins::parse("head=allgatherv", false, &pins).ok());
  Variable head = variable("head", false, true);
  const Status status = pins.apply(&head);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_NE(status.message().find("'head'"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("allreduce, push_pull"), std::string::npos) << status.message();
}

TEST(Pins, WhatIsNoRuleIsNamed) {
  for (const std::string text :
       {"emb", "=push_pull", "emb=", "emb=PUSH_PULL", "a=sharded; b=auto", "x=ring"}) {
    Pins pins;
    const Status status = Pins::parse(text, false, &pins);
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << text;
    const std::string piece = text.substr(text.rfind("; ") == text.npos ? 0 : text.rfind("; ") + 2);
    EXPECT_NE(status.message().find("'" + piece + "'"), std::string::npos) << status.message();
  }
}

TEST(Pins, PatternsGoByBytesInAnyLocale) {
  const std::string was = std::setlocale(LC_ALL, nullptr);
  for (const char* locale : {"C", "C.UTF-8"}) {
    ASSERT_NE(std::setlocale(LC_ALL, locale), nullptr);
    const Variable accented = variable("emb_\xc3\xa9", true, true);
    EXPECT_FALSE(pin_by("emb_?=sharded", accented).given()) << locale;
    EXPECT_TRUE(pin_by("emb_?\?=sharded", accented).given()) << locale;
  }
  std::setlocale(LC_ALL, was.c_str());
}

TEST(Pins, ANameIsOfItselfAndWhatIsEscapedIsNoWildcard) {
  EXPECT_TRUE(pin_by("layers[0].w=sharded", variable("layers[0].w", true, true)).given());
  EXPECT_TRUE(pin_by("a\\b=sharded", variable("a\\b", true, true)).given());
  for (const std::string pattern : {"head[0]", "head\\[0]"}) {
    Pins pins;
    ASSERT_TRUE(Pins::parse(pattern + "=allgatherv", false, &pins).ok());
    Variable head = variable("head[0]", false, true);
    const Status status = pins.apply(&head);
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << pattern;
    EXPECT_EQ(status.facts().field, "pins");
  }
}

TEST(Pins, WhatNamesNothingIsTold) {
  Pins pins;
  ASSERT_TRUE(Pins::parse("a=sharded; c*=mirrored; ?=allgatherv; ?=allreduce", false, &pins).ok());
  const Variable b = variable("b", true, true);
  const Variable* const variables[] = {&b};
  EXPECT_EQ(pins.idle(variables), "'a', 'c*', '?'") << "what has row ids cannot be allreduced";
}

}  // namespace
}  // namespace parallax
