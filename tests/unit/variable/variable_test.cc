// SPDX-License-Identifier: Apache-2.0
#include "variable/variable.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <span>

namespace parallax {
namespace {

parallax_variable_t good() {
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  variable.name = "w";
  variable.rows = 10;
  variable.row_elements = 4;
  variable.rule = PARALLAX_RULE_ADAGRAD;
  return variable;
}

struct BadField {
  const char* field;
  std::function<void(parallax_variable_t*)> spoil;
  parallax_status_t code = PARALLAX_INVALID;
};

void expect_named(std::span<const BadField> cases) {
  for (const BadField& bad : cases) {
    parallax_variable_t description = good();
    bad.spoil(&description);
    Variable variable;
    const Status status = make_variable(description, &variable);
    EXPECT_EQ(status.code(), bad.code) << bad.field << ": " << status.message();
    EXPECT_NE(status.message().find(bad.field), std::string::npos)
        << "should name " << bad.field << ": " << status.message();
  }
}

TEST(MakeVariable, NamesEveryBadField) {
  static const std::string too_long(PARALLAX_NAME_MAX + 1, 'x');
  const BadField cases[] = {
      {"name", [](auto* v) { v->name = nullptr; }},
      {"name", [](auto* v) { v->name = ""; }},
      {"name", [](auto* v) { v->name = too_long.c_str(); }},
      {"'a b'", [](auto* v) { v->name = "a\nb"; }},
      {"control characters", [](auto* v) { v->name = "a\tb"; }},
      {"\\x1b[2J", [](auto* v) { v->name = "\x1b[2J"; }},
      {"not UTF-8", [](auto* v) { v->name = "caf\xe9"; }},
      {"rows", [](auto* v) { v->rows = 0; }},
      {"rows", [](auto* v) { v->rows = uint64_t{1} << 32; }},
      {"row_elements", [](auto* v) { v->row_elements = 0; }},
      {"row_elements", [](auto* v) { v->row_elements = (1 << 20) + 1; }},
      {"2^48", [](auto* v) { v->rows = 1u << 30, v->row_elements = 1 << 16; }},
      {"dtype", [](auto* v) { v->dtype = 6; }, PARALLAX_UNSUPPORTED},
      {"tag", [](auto* v) { v->tag = 3; }},
      {"rows_max", [](auto* v) { v->tag = PARALLAX_SPARSE; }},
      {"rows_max", [](auto* v) { v->tag = PARALLAX_DENSE, v->rows_max = 1; }},
      {"rows_max", [](auto* v) { v->rows_max = uint64_t{1} << 31; }},
      {"reduction", [](auto* v) { v->reduction = 4; }},
      {"row ids", [](auto* v) { v->reduction = PARALLAX_MEAN_ROW; }},
      {"row ids", [](auto* v) { v->rule = PARALLAX_RULE_ROWWISE_ADAGRAD; }},
      {"i32, and rule ADAGRAD", [](auto* v) { v->dtype = PARALLAX_I32; }},
      {"PARALLAX_SUM",
       [](auto* v) {
         v->dtype = PARALLAX_I64, v->rule = PARALLAX_RULE_SUM, v->reduction = PARALLAX_MEAN_WORLD;
       }},
      {"PARALLAX_INIT_CONSTANT",
       [](auto* v) {
         v->dtype = PARALLAX_I64, v->rule = PARALLAX_RULE_SUM, v->init = PARALLAX_INIT_UNIFORM;
       }},
      {"init_low",
       [](auto* v) {
         v->dtype = PARALLAX_I32, v->rule = PARALLAX_RULE_SUM, v->init = PARALLAX_INIT_CONSTANT,
         v->init_low = 3e9f;
       }},
      {"dtype is PARALLAX_BYTES", [](auto* v) { v->dtype = PARALLAX_BYTES; }},
      {"rule", [](auto* v) { v->rule = 9; }, PARALLAX_UNSUPPORTED},
      {"init is 6; it must be", [](auto* v) { v->init = 6; }},
  };
  expect_named(cases);
}

TEST(MakeVariable, NamesBadInitialValues) {
  const float values = 0;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const BadField cases[] = {
      {"init_mean is set, but init is PARALLAX_INIT_UNIFORM",
       [](auto* v) { v->init = PARALLAX_INIT_UNIFORM, v->init_high = 1, v->init_mean = 1; }},
      {"init_std is set", [](auto* v) { v->init_std = 1; }},
      {"init_high is set, but init is PARALLAX_INIT_NORMAL",
       [](auto* v) { v->init = PARALLAX_INIT_NORMAL, v->init_high = 1; }},
      {"init_std is -1;", [](auto* v) { v->init = PARALLAX_INIT_NORMAL, v->init_std = -1; }},
      {"init_std is nan",
       [nan](auto* v) { v->init = PARALLAX_INIT_TRUNCATED_NORMAL, v->init_std = nan; }},
      {"init_mean is nan", [nan](auto* v) { v->init = PARALLAX_INIT_NORMAL, v->init_mean = nan; }},
      {"must be finite",
       [](auto* v) { v->init = PARALLAX_INIT_NORMAL, v->init_mean = 3e38f, v->init_std = 1e37f; }},
      {"framework-held", [](auto* v) { v->rule = 0, v->init = PARALLAX_INIT_NORMAL; }},
      {"framework-held",
       [&values](auto* v) { v->rule = 0, v->init = PARALLAX_INIT_BUFFER, v->initial = &values; }},
      {"PARALLAX_INIT_CONSTANT, BUFFER or BROADCAST",
       [](auto* v) {
         v->dtype = PARALLAX_I32, v->rule = PARALLAX_RULE_SUM, v->init = PARALLAX_INIT_NORMAL;
       }},
      {"initial is NULL", [](auto* v) { v->init = PARALLAX_INIT_BUFFER; }},
      {"initial is set, but init is PARALLAX_INIT_CONSTANT",
       [&values](auto* v) { v->initial = &values; }},
      {"initial is set, but init is PARALLAX_INIT_NORMAL",
       [&values](auto* v) { v->init = PARALLAX_INIT_NORMAL, v->initial = &values; }},
  };
  expect_named(cases);
}

TEST(MakeVariable, NamesEveryBadNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const BadField cases[] = {
      {"beta1", [](auto* v) { v->rule = PARALLAX_RULE_ADAM, v->beta1 = 1; }},
      {"beta2", [nan](auto* v) { v->beta2 = nan; }},
      {"momentum", [](auto* v) { v->momentum = -1; }},
      {"momentum", [](auto* v) { v->nesterov = 1; }},
      {"PARALLAX_RULE_MOMENTUM", [](auto* v) { v->rule = PARALLAX_RULE_SGD, v->momentum = 0.9; }},
      {"nesterov",
       [](auto* v) { v->rule = PARALLAX_RULE_MOMENTUM, v->nesterov = 2, v->momentum = 1; }},
      {"refuse_nonfinite", [](auto* v) { v->refuse_nonfinite = 2; }},
      {"accumulate", [](auto* v) { v->accumulate = 2; }},
      {"l1", [](auto* v) { v->rule = PARALLAX_RULE_FTRL, v->l1 = -1; }},
      {"l2_shrinkage", [nan](auto* v) { v->rule = PARALLAX_RULE_FTRL, v->l2_shrinkage = nan; }},
      {"ADAGRAD has none", [](auto* v) { v->beta = 1; }},
      {"learning_rate_power is -0.5, but rule ADAGRAD",
       [](auto* v) { v->learning_rate_power = -0.5; }},
      {"learning_rate_power is -1; this version has -0.5",
       [](auto* v) { v->rule = PARALLAX_RULE_FTRL, v->learning_rate_power = -1; },
       PARALLAX_UNSUPPORTED},
      {"rates is 64; it must be below 64", [](auto* v) { v->rates = 64; }},
      {"rates is 1, but rule NONE", [](auto* v) { v->rule = 0, v->rates = 1; }},
      {"epsilon", [](auto* v) { v->epsilon = -2; }},
      {"ADAGRAD has none", [](auto* v) { v->beta1 = 0.5; }},
      {"ADAGRAD has none", [](auto* v) { v->beta2 = PARALLAX_ZERO; }},
      {"SGD has none", [](auto* v) { v->rule = PARALLAX_RULE_SGD, v->epsilon = 1e-8f; }},
      {"ADAM has none",
       [](auto* v) { v->rule = PARALLAX_RULE_ADAM, v->initial_accumulator_value = 0.5f; }},
      {"UNIFORM",
       [](auto* v) { v->init = PARALLAX_INIT_CONSTANT, v->init_low = -1, v->init_high = 1; }},
      {"finite",
       [nan](auto* v) { v->init = PARALLAX_INIT_UNIFORM, v->init_low = nan, v->init_high = 1; }},
      {"finite", [nan](auto* v) { v->init = PARALLAX_INIT_CONSTANT, v->init_low = nan; }},
      {"finite",
       [](auto* v) {
         v->init = PARALLAX_INIT_UNIFORM, v->init_low = -3e38f, v->init_high = 3e38f;
       }},
      {"not be above",
       [](auto* v) { v->init = PARALLAX_INIT_UNIFORM, v->init_low = 1, v->init_high = -1; }},
      {"epsilon", [nan](auto* v) { v->epsilon = nan; }},
      {"epsilon", [](auto* v) { v->epsilon = std::numeric_limits<float>::infinity(); }},
      {"initial_accumulator_value", [](auto* v) { v->initial_accumulator_value = -0.5f; }},
      {"initial_accumulator_value", [nan](auto* v) { v->initial_accumulator_value = nan; }},
  };
  expect_named(cases);
}

TEST(MakeVariable, CopiesAndFillsInDefaults) {
  parallax_variable_t description = good();
  std::string name = "embedding";
  description.name = name.c_str();
  description.rows_max = 3;
  Variable variable;
  ASSERT_TRUE(make_variable(description, &variable).ok());
  name.assign("overwritten");
  EXPECT_EQ(variable.name, "embedding");
  EXPECT_EQ(variable.epsilon, 1e-10) << "PyTorch's default";
  EXPECT_TRUE(variable.managed() && variable.ids_declared());
  EXPECT_EQ(variable.traits().element_states, 1u);
  EXPECT_EQ(variable.elements(), 40u);
}

TEST(MakeVariable, ZeroItselfHasItsOwnSpelling) {
  parallax_variable_t description = good();
  description.rule = PARALLAX_RULE_ADAM;
  Variable variable;
  ASSERT_TRUE(make_variable(description, &variable).ok());
  EXPECT_EQ(variable.beta1, 0.9);
  EXPECT_EQ(variable.beta2, 0.999);
  EXPECT_EQ(variable.epsilon, 1e-8);
  description.beta1 = description.beta2 = PARALLAX_ZERO;
  description.epsilon = PARALLAX_ZERO;
  ASSERT_TRUE(make_variable(description, &variable).ok());
  EXPECT_EQ(variable.beta1, 0);
  EXPECT_EQ(variable.beta2, 0);
  EXPECT_EQ(variable.epsilon, 0);
}

// Keras's FTRL begins at 0.1, and 0 itself has a spelling of its own.
TEST(MakeVariable, FtrlBeginsWhereKerasDoes) {
  parallax_variable_t description = good();
  description.rule = PARALLAX_RULE_FTRL;
  const std::pair<float, float> cases[] = {{0, 0.1f}, {PARALLAX_ZERO, 0}, {0.5f, 0.5f}};
  for (const auto& [given, want] : cases) {
    description.initial_accumulator_value = given;
    Variable variable;
    ASSERT_TRUE(make_variable(description, &variable).ok());
    EXPECT_EQ(variable.initial_accumulator_value, want);
  }
  description.rule = PARALLAX_RULE_ADAGRAD;
  description.initial_accumulator_value = PARALLAX_ZERO;
  Variable variable;
  EXPECT_EQ(make_variable(description, &variable).code(), PARALLAX_INVALID);
}

TEST(MakeVariable, TakesTheBoundsThemselves) {
  Variable variable;
  parallax_variable_t description = good();
  description.rows = UINT32_MAX;
  description.row_elements = 1;
  EXPECT_TRUE(make_variable(description, &variable).ok());
  description.rows = (1u << 26) - 1;
  description.row_elements = 1 << 20;
  EXPECT_TRUE(make_variable(description, &variable).ok());
  ++description.rows;
  EXPECT_FALSE(make_variable(description, &variable).ok()) << "2^48 bytes";
  description.dtype = PARALLAX_F64;
  description.row_elements = (1 << 20) - 1;
  description.rows = (uint64_t{1} << 48) / 8 / description.row_elements;
  EXPECT_TRUE(make_variable(description, &variable).ok()) << "just below, by no power of two";
  ++description.rows;
  EXPECT_FALSE(make_variable(description, &variable).ok());
  description = good();
  description.rows_max = INT32_MAX;
  description.row_elements = 1 << 20;
  description.rows = 1;
  EXPECT_TRUE(make_variable(description, &variable).ok());
  const std::string longest(PARALLAX_NAME_MAX, 'x');
  description.name = longest.c_str();
  EXPECT_TRUE(make_variable(description, &variable).ok());
  description.name = "couche \xc3\xa9l\xc3\xa9mentaire/0";  // UTF-8
  EXPECT_TRUE(make_variable(description, &variable).ok());
}

RegistryDifference compare(const std::string& root, std::span<const Variable* const> mine) {
  return compare_registries(root, mine, "rank 0", "rank 3");
}

TEST(CompareRegistries, NamesTheFirstFieldThatDiffers) {
  const auto change = [](const char* field, auto setter) {
    Variable a;
    ASSERT_TRUE(make_variable(good(), &a).ok());
    Variable b = a;
    setter(&b);
    Variable before = a;
    before.name = "before";
    const std::vector<const Variable*> root = {&before, &a};
    const std::vector<const Variable*> mine = {&before, &b};
    const RegistryDifference found = compare(encode_registry(root), mine);
    const std::string& text = found.sentence;
    EXPECT_NE(text.find(field), std::string::npos) << field << " in: " << text;
    EXPECT_NE(text.find("rank 0"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 3"), std::string::npos) << text;
    EXPECT_EQ(found.variable, a.name);
    EXPECT_NE(text.find("field " + found.field + ": "), std::string::npos) << text;
    EXPECT_EQ(compare(encode_registry(root), root).sentence, "");
  };
  change("field rows:", [](Variable* v) { ++v->rows; });
  change("field row_elements", [](Variable* v) { ++v->row_elements; });
  change("field dtype: rank 0 has F32, rank 3 has BF16",
         [](Variable* v) { v->dtype = PARALLAX_BF16; });
  change("rank 3 has SPARSE", [](Variable* v) { v->tag = PARALLAX_SPARSE; });
  change("field tag: rank 0 has AUTO, rank 3 has 77", [](Variable* v) { v->tag = 77; });
  change("rank 3 has MEAN_WORLD", [](Variable* v) { v->reduction = PARALLAX_MEAN_WORLD; });
  change("rank 3 has SGD", [](Variable* v) { v->rule = PARALLAX_RULE_SGD; });
  change("field rows_max", [](Variable* v) { v->rows_max = 9; });
  change("field init: rank 0 has CONSTANT, rank 3 has UNIFORM",
         [](Variable* v) { v->init = PARALLAX_INIT_UNIFORM; });
  change("field init_low", [](Variable* v) { v->init_low = -0.0f; });
  change("field init_high", [](Variable* v) { v->init_high = 1; });
  change("rank 3 has TRUNCATED_NORMAL",
         [](Variable* v) { v->init = PARALLAX_INIT_TRUNCATED_NORMAL; });
  change("field init_mean", [](Variable* v) { v->init_mean = 1; });
  change("field init_std", [](Variable* v) { v->init_std = 1; });
  change("field init_seed", [](Variable* v) { v->init_seed = 1; });
  change("field epsilon", [](Variable* v) { v->epsilon = 1e-9f; });
  change("field initial_accumulator", [](Variable* v) { v->initial_accumulator_value = 1; });
  change("field beta1", [](Variable* v) { v->beta1 = 0; });
  change("field beta2", [](Variable* v) { v->beta2 = 0; });
  change("field momentum", [](Variable* v) { v->momentum = 0.5; });
  change("field nesterov", [](Variable* v) { v->nesterov = true; });
  change("field rates", [](Variable* v) { v->rates = 1; });
  change("field l1", [](Variable* v) { v->penalties.l1 = 1; });
  change("field l2_shrinkage", [](Variable* v) { v->penalties.l2_shrinkage = 1; });
  change("field state_elements[0]", [](Variable* v) { v->own_rule.state_elements[0] = 1; });
  change("field state_elements[1]", [](Variable* v) { v->own_rule.state_elements[1] = 1; });
}

// By name, whatever else is registered on either.
TEST(CompareRegistries, NamesWhatOneRankHasAndTheOtherHasNot) {
  std::vector<Variable> all(4);
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(make_variable(good(), &all[i]).ok());
    all[i].name = std::string(1, static_cast<char>('a' + i));
  }
  const Variable *a = &all[0], *b = &all[1], *c = &all[2], *d = &all[3];
  using Names = std::vector<const Variable*>;
  const auto expect = [](const Names& root, const Names& mine, const std::string& sentence) {
    EXPECT_EQ(compare(encode_registry(root), mine).sentence, sentence);
  };
  const std::string only_there = "is registered on rank 0 and not on rank 3";
  const std::string only_here = "is registered on rank 3 and not on rank 0";
  expect({a, b}, {a}, "variable 'b' " + only_there);
  expect({a}, {a, b}, "variable 'b' " + only_here);
  expect({a, c, d}, {a, b, c, d}, "variable 'b' " + only_here);
  expect({a, b, d}, {a, c, d}, "variable 'b' " + only_there);
  expect({}, {d}, "variable 'd' " + only_here);
  expect({d}, {}, "variable 'd' " + only_there);
  expect({}, {}, "");
  expect({a, b, c, d}, {a, b, c, d}, "");
}

TEST(CompareRegistries, Garbage) {
  Variable a;
  ASSERT_TRUE(make_variable(good(), &a).ok());
  Variable b = a;
  b.name = "z";
  const std::vector<const Variable*> both = {&a, &b};
  const std::string whole = encode_registry(both);
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    EXPECT_NE(compare(whole.substr(0, cut), both).sentence, "") << "cut at " << cut;
  }
  EXPECT_NE(compare(whole + "x", both).sentence, "");
}

}  // namespace
}  // namespace parallax
