// SPDX-License-Identifier: Apache-2.0
#include "engine/cost_terms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace parallax {
namespace {

constexpr uint32_t kWorld = 4;

CostTerms of_rank(uint64_t latency_ns) {
  CostTerms terms;
  terms.wanted = true;
  terms.measured(0, latency_ns);
  return terms;
}

TEST(CostTerms, ReadsBackWhatItWroteAndRefusesWhatIsCut) {
  CostTerms terms = of_rank(700);
  terms.agree({});
  std::string text;
  terms.encode(&text);
  for (size_t size = 0; size < text.size(); ++size) {
    auto in = std::as_bytes(std::span(text)).first(size);
    CostTerms read;
    EXPECT_FALSE(read.decode(&in, kWorld)) << size;
  }
  text += "behind";
  auto in = std::as_bytes(std::span(text));
  CostTerms read;
  ASSERT_TRUE(read.decode(&in, kWorld));
  EXPECT_EQ(in.size(), 6u);
  EXPECT_TRUE(read.wanted && read.agreed);
  EXPECT_EQ(read.constants, terms.constants);
  EXPECT_EQ(read.constants.inside.latency_ns, 700u);
}

// Given a peer's figures that no ranks of this job can have, expect them refused.
TEST(CostTerms, RefusesWhatCannotBe) {
  const auto refused = [](size_t at, auto value) {
    CostTerms terms = of_rank(700);
    std::string text;
    terms.encode(&text);
    std::memcpy(text.data() + at, &value, sizeof value);
    auto in = std::as_bytes(std::span(text));
    CostTerms read;
    return !read.decode(&in, kWorld);
  };
  EXPECT_TRUE(refused(0, uint64_t{2}));
  EXPECT_TRUE(refused(8, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(refused(8, -1.0));
  EXPECT_TRUE(refused(8, 1e9));
  EXPECT_TRUE(refused(16, uint64_t{kWorld + 1}));
  EXPECT_FALSE(refused(16, uint64_t{kWorld}));
  EXPECT_TRUE(refused(24, kConstantMax + 1));
}

// Given ranks of which one was held up, expect the geometric mean; given none, the standard; and
// what the setting gives in place of either.
TEST(CostTerms, RanksAgreeOnTheirMean) {
  CostTerms all = of_rank(1000);
  all.merge(of_rank(1000));
  all.merge(of_rank(8000));
  all.merge(CostTerms());
  CostSetting setting;
  ASSERT_TRUE(parse_costs("copy_byte_ps=5", &setting).ok());
  all.agree(setting);
  EXPECT_EQ(all.constants.inside.latency_ns, 2000u);
  EXPECT_EQ(all.constants.between, CostConstants().between);
  EXPECT_EQ(all.constants.copy_byte_ps, 5u);
  EXPECT_TRUE(all.agreed);
}

TEST(CostTerms, NothingIsMeasuredAsOne) {
  CostTerms terms = of_rank(0);
  terms.agree({});
  EXPECT_EQ(terms.constants.inside.latency_ns, 1u);
}

}  // namespace
}  // namespace parallax
