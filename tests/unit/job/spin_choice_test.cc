// SPDX-License-Identifier: Apache-2.0
// Whether waiters give their core away, by masks and quotas of the ranks of a machine.
#include "job/spin_choice.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "support/words.h"

namespace parallax {
namespace {

using testkit::has;

std::string mask_of(std::initializer_list<uint32_t> cores) {
  std::string mask;
  for (const uint32_t core : cores) {
    if (mask.size() <= core / 8) mask.resize(core / 8 + 1, '\0');
    mask[core / 8] = static_cast<char>(mask[core / 8] | 1 << core % 8);
  }
  return mask;
}
UsableCores on(std::initializer_list<uint32_t> cores) { return {.mask = mask_of(cores)}; }
UsableCores within(std::initializer_list<uint32_t> cores, uint32_t thousandths, uint64_t group) {
  return {.mask = mask_of(cores), .quota_thousandths = thousandths, .quota_group = group};
}
SpinChoice choose(const std::vector<UsableCores>& ranks) { return choose_spin({}, ranks); }

// Expects the yield, and all of the sentence.
void expect_choice(const std::vector<UsableCores>& ranks, SpinYield yield, const char* why) {
  const SpinChoice choice = choose(ranks);
  EXPECT_EQ(choice.options.yield, yield) << why;
  EXPECT_EQ(choice.options.spin_ns, SpinOptions().spin_ns);
  EXPECT_EQ(choice.why, why);
}

TEST(SpinChoice, RanksWithACoreEachLookQuietly) {
  expect_choice({on({0, 1})}, SpinYield::kAuto, "1 rank of this machine, 2 cores");
  expect_choice({on({0, 1}), on({0, 1})}, SpinYield::kAuto, "2 ranks of this machine, 2 cores");
}

TEST(SpinChoice, MoreRanksThanCoresGiveThemAway) {
  expect_choice({on({0, 1}), on({0, 1}), on({0, 1})}, SpinYield::kAlways,
                "3 ranks of this machine, 2 cores");
}

// Given ranks that were bound to a core each, expect the cores of all to count: of this rank's one
// alone they would be too few.
TEST(SpinChoice, CoresAreThoseOfAllRanksTogether) {
  std::vector<UsableCores> ranks = {on({0}), on({1}), on({9}), on({70})};
  const SpinChoice choice = choose(ranks);
  EXPECT_EQ(choice.options.yield, SpinYield::kAuto);
  EXPECT_EQ(choice.cores, 4u);
  EXPECT_EQ(choice.ranks, 4u);
  ranks.push_back(on({70, 9}));
  expect_choice(ranks, SpinYield::kAlways, "5 ranks of this machine, 4 cores");
}

// Given two ranks bound to one core and others with room, expect those two to give it away, and the
// others not to.
TEST(SpinChoice, RanksBoundToOneCoreGiveItAway) {
  expect_choice({on({0}), on({0}), on({1, 2, 3})}, SpinYield::kAlways,
                "2 ranks bound to 1 core of this rank");
  expect_choice({on({1, 2, 3}), on({0}), on({0})}, SpinYield::kAuto,
                "3 ranks of this machine, 4 cores");
}

TEST(SpinChoice, AQuotaCountsOnceForAllRanksOfItsGroup) {
  const UsableCores rank = within({0, 1, 2, 3}, 1500, 7);
  expect_choice({rank}, SpinYield::kAuto, "1 rank of this machine, 4 cores");
  expect_choice({rank, rank}, SpinYield::kAlways,
                "2 ranks of this machine, 4 cores, of which control groups leave them 1.5");
  EXPECT_EQ(choose({rank, rank}).quota_thousandths, 1500u);
}

TEST(SpinChoice, QuotasOfSeveralGroupsAdd) {
  const UsableCores one = within({0, 1, 2, 3}, 1000, 7), other = within({0, 1, 2, 3}, 1000, 8);
  EXPECT_EQ(choose({one, other}).options.yield, SpinYield::kAuto);
  expect_choice({one, other, other}, SpinYield::kAlways,
                "3 ranks of this machine, 4 cores, of which control groups leave them 2");
}

TEST(SpinChoice, RanksWithoutAQuotaKeepTheirCores) {
  const UsableCores bound = within({0, 1}, 500, 7);
  EXPECT_EQ(choose({on({2, 3}), bound}).options.yield, SpinYield::kAuto) << "2.5 for two";
  EXPECT_EQ(choose({on({2}), bound}).options.yield, SpinYield::kAlways) << "1.5 for two";
}

TEST(SpinChoice, AQuotaOfMoreThanTheCoresIsNone) {
  const UsableCores rank = within({0, 1}, 8000, 7);
  const SpinChoice choice = choose({rank, rank});
  EXPECT_EQ(choice.options.yield, SpinYield::kAuto);
  EXPECT_EQ(choice.quota_thousandths, 0u);
}

TEST(SpinChoice, WhereTheKernelSaysNothingOneRankAloneHasACore) {
  expect_choice({UsableCores()}, SpinYield::kAuto, "1 rank of this machine, 0 cores");
  EXPECT_EQ(choose({UsableCores(), UsableCores()}).options.yield, SpinYield::kAlways);
}

TEST(SpinChoice, WhatIsSetHoldsWhateverIsFound) {
  const std::vector<UsableCores> crowd(3, on({0})), room = {on({0, 1})};
  for (const SpinYield yield : {SpinYield::kAlways, SpinYield::kNever}) {
    for (const std::vector<UsableCores>& ranks : {crowd, room}) {
      const SpinChoice choice = choose_spin({.spin_ns = 7000, .yield = yield}, ranks);
      EXPECT_EQ(choice.options.yield, yield);
      EXPECT_EQ(choice.options.spin_ns, 7000);
      EXPECT_EQ(choice.cores, ranks == crowd ? 1u : 2u) << "it is told all the same";
      EXPECT_EQ(choice.why, yield == SpinYield::kNever ? "spin_yield is off" : "spin_yield is on");
    }
  }
}

TEST(SpinChoice, RanksOfOneHostLookLongerWhereNoQuotaIsShort) {
  const SpinOptions asked = spin_options(Settings(), true);
  EXPECT_TRUE(asked.longer);
  const std::vector<UsableCores> one = {on({0, 1})}, two = {on({0, 1}), on({0, 1})};
  EXPECT_TRUE(choose_spin(asked, two).options.longer);
  EXPECT_FALSE(choose_spin(asked, one).options.longer) << "it waits for nobody";
  EXPECT_FALSE(choose_spin({}, two).options.longer) << "of several hosts";
  const std::vector<UsableCores> bounded(2, within({0, 1}, 1500, 7));
  EXPECT_FALSE(choose_spin(asked, bounded).options.longer);
}

TEST(SpinChoice, TheSettingsAreTaken) {
  Settings settings;
  EXPECT_EQ(spin_options(settings).spin_ns, SpinOptions().spin_ns) << "one default";
  EXPECT_EQ(spin_options(settings).yield, SpinYield::kAuto);
  ASSERT_TRUE(settings.load_text("spin_us = 0\nspin_yield = on\n", "file").ok());
  EXPECT_EQ(spin_options(settings).spin_ns, 0);
  EXPECT_EQ(spin_options(settings).yield, SpinYield::kAlways);
  ASSERT_TRUE(settings.load_text("spin_us = 1000000\nspin_yield = off\n", "file").ok());
  EXPECT_EQ(spin_options(settings).spin_ns, 1'000'000'000);
  EXPECT_EQ(spin_options(settings).yield, SpinYield::kNever);
  Status wrong = settings.load_text("spin_us = 1000001\n", "file");
  EXPECT_EQ(wrong.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(wrong, "a whole number, 0..1000000")) << wrong.message();
  wrong = settings.load_text("spin_yield = always\n", "file");
  EXPECT_EQ(wrong.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(wrong, "one of auto, on, off")) << wrong.message();
}

Endpoint at(const char* machine, uint32_t core) {
  Endpoint endpoint;
  endpoint.machine = machine;
  endpoint.cores = on({core});
  return endpoint;
}

// Given ranks of one machine that say they are of several hosts, or are in several network
// namespaces, expect them all, this one first; of other machines none.
TEST(SpinChoice, RanksOfAMachineAreThoseOfOneBoot) {
  const std::vector<Endpoint> all = {at("boot/net:[1]", 0), at("other/net:[1]", 1),
                                     at("boot/net:[2]", 2), at("boot/net:[1]", 3)};
  const std::vector<uint32_t> host_of = {0, 0, 1, 2};
  EXPECT_EQ(cores_on_machine(all, host_of, 2),
            (std::vector<UsableCores>{on({2}), on({0}), on({3})}));
  EXPECT_EQ(cores_on_machine(all, host_of, 1), std::vector<UsableCores>{on({1})});
}

// Given a kernel that hides its boot, expect the ranks of the host.
TEST(SpinChoice, WithoutABootTheHostHolds) {
  const std::vector<Endpoint> all = {at("/net:[1]", 0), at("/net:[1]", 1), at("/net:[1]", 2)};
  EXPECT_EQ(cores_on_machine(all, std::vector<uint32_t>{0, 1, 0}, 0),
            (std::vector<UsableCores>{on({0}), on({2})}));
}

TEST(SpinChoice, TheReportSaysWhatHoldsAndWhatWasFound) {
  const UsableCores rank = within({0, 1, 2}, 1500, 7);
  nlohmann::json report = spin_report(choose({rank, rank}));
  EXPECT_EQ(report["spin_us"], 50);
  EXPECT_EQ(report["spin_yield"], "on");
  EXPECT_EQ(report["ranks"], 2);
  EXPECT_EQ(report["cores"], 3);
  EXPECT_EQ(report["cores_quota"], 1.5);
  EXPECT_TRUE(has(report["why"].get<std::string>(), "control groups"));
  report = spin_report(choose({on({0})}));
  EXPECT_EQ(report["spin_yield"], "auto");
  EXPECT_EQ(report["cores_quota"], nullptr);
}

}  // namespace
}  // namespace parallax
