// SPDX-License-Identifier: Apache-2.0
// Censuses between outboxes over inproc, without an engine: nobody is answered before all have
// joined, everybody then, by one report and one answer each; and what a peer should not have sent
// is refused and changes nothing.
#include "collectives/census.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/seeded_random.h"
#include "support/outbox_world.h"

namespace parallax {
namespace {

constexpr uint32_t kVariable = 5;

// A rank's part in the census of one column.
class Member {
 public:
  Member(const Columns& columns, Outbox& outbox, CensusOptions options)
      : census_(columns, outbox, std::move(options)) {
    census_.open(1);
    census_.open(2);
  }
  Census& census() { return census_; }
  bool on_section(uint32_t from, const Section& section) {
    return section.header.kind == SectionKind::kCensusUp ? census_.on_report(from, section)
                                                         : census_.on_answer(from, section);
  }

 private:
  Census census_;
};

// One column of a world: its owners join, by their place among them; every other rank listens.
class CensusWorld {
 public:
  explicit CensusWorld(const std::vector<std::string>& host_names, uint32_t column = 0)
      : hosts_(map_hosts(host_names)),
        column_(column),
        ranks_(static_cast<uint32_t>(host_names.size()), [this](uint32_t rank, Outbox& outbox) {
          const Columns& columns = columns_.emplace_back(hosts_, rank);
          CensusOptions options = {.variable = kVariable,
                                   .stage = 1,
                                   .column = column_,
                                   .marks = static_cast<uint32_t>(joining().size())};
          for (const uint32_t local : columns.locals()) {
            if (local == columns.leader(columns.host(), column_)) continue;
            options.listeners.push_back(local);
            if (columns.column_of(local) == column_) options.reporters.push_back(local);
          }
          return std::make_unique<Member>(columns, outbox, options);
        }) {}

  uint32_t size() const { return ranks_.size(); }
  const std::vector<uint32_t>& joining() const { return hosts_.owners_of_column[column_]; }
  Census& at(uint32_t rank) { return ranks_.at(rank).census(); }
  bool inject(uint32_t from, uint32_t to, const Section& section) {
    return ranks_.at(to).on_section(from, section);
  }
  void settle() { ranks_.settle(); }
  uint64_t refused_count() const { return ranks_.refused_count(); }
  uint64_t sections(SectionKind kind) const { return ranks_.packed(kind).sections; }
  bool answered_somewhere(uint64_t step) {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (at(rank).answered(step)) return true;
    }
    return false;
  }

 private:
  const HostMap hosts_;
  const uint32_t column_;
  std::deque<Columns> columns_;
  testkit::OutboxWorld<Member> ranks_;
};

template <typename T>
void shuffle(std::vector<T>& items, SeededRandom& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

// Every rank that is not answered names ranks, or has not joined itself; following the names from
// rank to rank always leads to `late`.
void expect_leads_to(CensusWorld& world, uint64_t step, uint32_t late) {
  std::vector<bool> leads(world.size());
  leads[late] = true;
  for (uint32_t round = 0; round < world.size(); ++round) {
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      for (const uint32_t missed : world.at(rank).missing(step)) {
        if (leads[missed]) leads[rank] = true;
      }
    }
  }
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    EXPECT_TRUE(leads[rank]) << "rank " << rank;
    for (const uint32_t missed : world.at(rank).missing(step)) {
      EXPECT_TRUE(leads[missed]) << "rank " << rank << " names rank " << missed;
    }
  }
}

// Given ranks that join in any order, expect no answer before the last has, its name to be found
// by asking who is missed, and then the answer at every rank, with the marks of those who gave one,
// and whether somebody contributed; two steps at a time.
TEST(Census, AllAreAnsweredOnceAllHaveJoined) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const std::vector<std::string> hosts = testkit::draw_hosts(random, 60);
    CensusWorld world(hosts, static_cast<uint32_t>(random.below(map_hosts(hosts).column_count)));
    const std::vector<uint32_t>& joining = world.joining();
    std::array<std::vector<bool>, 3> marks;
    std::array<bool, 3> contributed = {};
    std::vector<std::pair<uint64_t, uint32_t>> order;  // step, place
    for (const uint64_t step : {1, 2}) {
      for (uint32_t place = 0; place < joining.size(); ++place) order.emplace_back(step, place);
      marks[step].resize(joining.size());
    }
    shuffle(order, random);
    std::array<size_t, 3> left = {0, joining.size(), joining.size()};
    for (const auto& [step, place] : order) {
      if (left[step] == 1) {
        world.settle();
        EXPECT_FALSE(world.answered_somewhere(step));
        expect_leads_to(world, step, joining[place]);
      }
      --left[step];
      marks[step][place] = random.chance(30);
      const bool gives = random.chance(5);
      contributed[step] = contributed[step] || gives;
      world.at(joining[place]).join(step, marks[step][place] ? place : Census::kNoMark, gives);
    }
    world.settle();
    EXPECT_EQ(world.refused_count(), 0u);
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      for (const uint64_t step : {1, 2}) {
        ASSERT_TRUE(world.at(rank).answered(step)) << "rank " << rank;
        EXPECT_TRUE(world.at(rank).missing(step).empty());
        EXPECT_EQ(world.at(rank).contributed(step), contributed[step]);
        for (uint32_t place = 0; place < joining.size(); ++place) {
          EXPECT_EQ(world.at(rank).marked(step, place), marks[step][place]);
        }
      }
    }
    // One word up of each who joins, but for the root, one down to each rank but for it.
    EXPECT_EQ(world.sections(SectionKind::kCensusUp), 2 * (joining.size() - 1));
    EXPECT_EQ(world.sections(SectionKind::kCensusDown), 2 * (world.size() - 1));
  }
}

Section section_of(SectionKind kind, std::span<const std::byte> marks) {
  SectionHeader header;
  header.kind = kind;
  header.tag = kVariable;
  header.step = 1;
  header.count = static_cast<uint32_t>(marks.size());
  header.payload_bytes = header.count;
  return {header, marks};
}

// Given reports and answers of the wrong size, with marks of nobody, of ranks that send none, too
// early, or again, expect each refused, and the census to end as if it had not come.
TEST(Census, GarbageIsRefused) {
  // Four hosts of a rank each: for variable 5 the second is the root, the others its children.
  CensusWorld world({"a", "b", "c", "d"});
  const uint32_t root = kVariable % 4;
  const uint32_t child = (root + 1) % 4, other = (root + 2) % 4;
  const std::array<std::byte, 2> none = {};
  const std::array<std::byte, 1> spare = {std::byte{0x10}};
  const std::span<const std::byte> one = std::span(none).first(1);
  const auto up = [&](uint32_t from, std::span<const std::byte> marks) {
    return world.inject(from, root, section_of(SectionKind::kCensusUp, marks));
  };
  const auto down = [&](uint32_t from, std::span<const std::byte> marks) {
    return world.inject(from, child, section_of(SectionKind::kCensusDown, marks));
  };
  EXPECT_FALSE(up(child, {})) << "without marks";
  EXPECT_FALSE(up(child, none)) << "with too many";
  EXPECT_FALSE(up(child, spare)) << "a mark of nobody";
  EXPECT_FALSE(up(root, one)) << "of itself";
  Section wrong = section_of(SectionKind::kCensusUp, one);
  wrong.header.encoding = Encoding::kRows;
  EXPECT_FALSE(world.inject(child, root, wrong));
  wrong = section_of(SectionKind::kCensusUp, one);
  ++wrong.header.count;
  EXPECT_FALSE(world.inject(child, root, wrong)) << "more than there is";
  EXPECT_FALSE(down(root, one)) << "an answer before the report";
  EXPECT_FALSE(world.inject(child, root, section_of(SectionKind::kCensusDown, one)))
      << "an answer to who answers";
  world.at(child).join(1, Census::kNoMark, false);
  world.settle();
  EXPECT_FALSE(up(child, one)) << "twice";
  EXPECT_FALSE(down(other, one)) << "of another than the parent";
  EXPECT_FALSE(down(root, none));
  EXPECT_FALSE(world.answered_somewhere(1));
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    if (rank != child) world.at(rank).join(1, rank, true);
  }
  world.settle();
  EXPECT_EQ(world.refused_count(), 0u);
  EXPECT_FALSE(down(root, one)) << "twice";
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    EXPECT_TRUE(world.at(rank).answered(1));
    EXPECT_FALSE(world.at(rank).marked(1, child));
    EXPECT_TRUE(world.at(rank).marked(1, other));
  }
}

// Given a rank that reports to the leader of its host, expect an answer before its report refused,
// and the one after it taken once.
TEST(Census, WhoReportsIsNotAnsweredBefore) {
  CensusWorld world({"a", "a", "b"});
  const std::array<std::byte, 1> none = {};
  const auto down = [&] { return world.inject(0, 1, section_of(SectionKind::kCensusDown, none)); };
  EXPECT_FALSE(down());
  EXPECT_FALSE(world.at(1).answered(1));
  EXPECT_TRUE(world.at(1).missing(1).empty()) << "it waits for nobody but itself";
  world.at(1).join(1, Census::kNoMark, false);
  EXPECT_EQ(world.at(1).missing(1), std::vector<uint32_t>{0});
  EXPECT_TRUE(down());
  EXPECT_FALSE(down()) << "twice";
}

TEST(Census, JoiningTwiceIsOurBug) {
  CensusWorld world({"a", "b"});
  world.at(0).join(1, 0, false);
  EXPECT_THROW(world.at(0).join(1, 0, false), InternalError);
}

}  // namespace
}  // namespace parallax
