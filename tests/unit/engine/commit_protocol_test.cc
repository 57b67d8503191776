// SPDX-License-Identifier: Apache-2.0
// Commits of whole jobs over a network of sections, without engines: ranks that agree, ranks that
// differ in an option or a variable, and answers that a root should not give.
#include "engine/commit_protocol.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "support/registries.h"
#include "support/words.h"
#include "unit/server/layouts.h"
#include "unit/server/section_network.h"

namespace parallax::testkit {
namespace {

Variable variable_named(const std::string& name, uint64_t rows) {
  Variable variable;
  variable.name = name;
  variable.rows = rows;
  variable.row_elements = 2;
  return variable;
}

class Commits {
 public:
  struct Rank {
    Rank(const HostMap& hosts, const CommitTerms& terms, const std::vector<Variable>& variables,
         Outbox& outbox)
        : trees(hosts, terms.rank, outbox),
          broadcast(hosts, terms.rank, outbox),
          protocol(terms, registry, hosts, trees, broadcast, kStandardCosts) {
      add_all(registry, variables);
      registry.number_new();
    }
    Registry registry;
    Trees trees;
    Broadcast broadcast;
    CommitProtocol protocol;
    JobFailure failure;
  };
  // Changes what single ranks say.
  using Adjust = std::function<void(CommitTerms* terms, std::vector<Variable>* registry)>;

  Commits(const std::vector<uint32_t>& hosts, uint64_t seed, const Adjust& adjust = {})
      : hosts_(host_map(hosts)), network_(static_cast<uint32_t>(hosts.size()), seed) {
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      CommitTerms terms = {.rank = rank, .plan_after_steps = 8};
      std::vector<Variable> registry = {variable_named("a", 5), variable_named("b", 7)};
      if (adjust) adjust(&terms, &registry);
      ranks_.push_back(std::make_unique<Rank>(hosts_, terms, registry, network_.outbox(rank)));
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      const bool fits = take(*ranks_[to], from, section);
      advance(*ranks_[to]);
      return fits;
    });
    network_.on_packed([this](uint32_t rank) { advance(*ranks_[rank]); });
  }

  uint32_t world() const { return static_cast<uint32_t>(ranks_.size()); }
  Rank& rank(uint32_t rank) { return *ranks_[rank]; }
  SectionNetwork& network() { return network_; }
  void start(uint32_t rank) {
    ranks_[rank]->protocol.start();
    advance(*ranks_[rank]);
  }
  void run() {
    for (uint32_t rank = 0; rank < world(); ++rank) start(rank);
    network_.settle();
    EXPECT_TRUE(network_.refusals().empty()) << told(network_.refusals());
  }

 private:
  static void note(Rank& rank, const JobFailure& failure) {
    if (rank.failure.status.ok()) rank.failure = failure;
  }
  static void advance(Rank& rank) {
    if (rank.failure.status.ok()) note(rank, rank.protocol.advance());
  }
  static bool take(Rank& rank, uint32_t from, const Section& section) {
    if (section.header.kind == SectionKind::kTreeUp) {
      return rank.trees.take_report(from, section) && rank.protocol.merge_report(section.payload);
    }
    if (section.header.kind != SectionKind::kTreeDown) {
      return rank.broadcast.on_section(from, section);
    }
    if (!rank.trees.take_answer(from, section)) return false;
    note(rank, rank.protocol.on_answer(section.payload));
    return true;
  }

  const HostMap hosts_;
  SectionNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST(CommitProtocol, RanksThatAgreeAllKnowIt) {
  for (const auto& hosts : layouts()) {
    Commits commits(hosts, hosts.size());
    for (uint32_t rank = 1; rank < commits.world(); ++rank) commits.start(rank);
    commits.network().settle();
    for (uint32_t rank = 0; rank < commits.world(); ++rank) {
      EXPECT_FALSE(commits.rank(rank).protocol.agreed()) << "rank 0 has not come";
    }
    EXPECT_FALSE(commits.rank(0).protocol.started());
    commits.start(0);
    commits.network().settle();
    for (uint32_t rank = 0; rank < commits.world(); ++rank) {
      EXPECT_TRUE(commits.rank(rank).protocol.agreed()) << "rank " << rank;
      EXPECT_TRUE(commits.rank(rank).failure.status.ok());
    }
    EXPECT_TRUE(commits.network().refusals().empty()) << told(commits.network().refusals());
  }
}

TEST(CommitProtocol, AnOptionThatDiffersFailsEveryRankInOneSentence) {
  for (const auto& hosts : layouts()) {
    const auto odd = static_cast<uint32_t>(hosts.size() - 1);
    if (odd == 0) continue;
    Commits commits(hosts, 1, [&](CommitTerms* terms, std::vector<Variable>*) {
      if (terms->rank == odd) terms->plan_after_steps = 9;
    });
    commits.run();
    for (uint32_t rank = 0; rank < commits.world(); ++rank) {
      const JobFailure& failure = commits.rank(rank).failure;
      EXPECT_EQ(failure.status.code(), PARALLAX_MISMATCH) << "rank " << rank;
      EXPECT_TRUE(has(failure.status, "option plan_after_steps")) << failure.status.message();
      EXPECT_TRUE(has(failure.status, rank_name(host_map(hosts), odd) + " has 9"))
          << failure.status.message();
      EXPECT_EQ(failure.culprit, rank) << "each rank ends the job for itself";
      EXPECT_FALSE(commits.rank(rank).protocol.agreed());
    }
  }
}

// Digests tell no more than that registries differ: the second round finds where.
TEST(CommitProtocol, AVariableThatDiffersIsNamedWithItsField) {
  for (const auto& hosts : layouts()) {
    const auto odd = static_cast<uint32_t>(hosts.size() - 1);
    if (odd == 0) continue;
    Commits commits(hosts, 2, [&](CommitTerms* terms, std::vector<Variable>* registry) {
      if (terms->rank == odd) (*registry)[1].rows = 8;
    });
    commits.run();
    for (uint32_t rank = 0; rank < commits.world(); ++rank) {
      const Status& status = commits.rank(rank).failure.status;
      EXPECT_EQ(status.code(), PARALLAX_MISMATCH) << "rank " << rank;
      EXPECT_EQ(status.message(), "commit: ranks disagree: variable 'b', field rows: " +
                                      rank_name(host_map(hosts), 0) + " has 7, " +
                                      rank_name(host_map(hosts), odd) + " has 8");
      EXPECT_EQ(status.facts().variable, 1u);
      EXPECT_EQ(status.facts().field, "rows");
    }
  }
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(CommitProtocol, AnAnswerThatCannotBeReadIsTheRootsFault) {
  Commits commits({0, 0}, 3);
  commits.start(1);
  const JobFailure failure = commits.rank(1).protocol.on_answer(bytes_of("short"));
  EXPECT_EQ(failure.status.code(), PARALLAX_INTERNAL);
  EXPECT_EQ(failure.culprit, 0u);
  EXPECT_FALSE(commits.rank(0).protocol.merge_report(bytes_of("short")));
}

// Given a root that announces more than any registry may have: refused before it is allocated.
TEST(CommitProtocol, ARegistryOfAnyPeersSizeIsNotAllocated) {
  Commits commits({0, 0}, 4);
  commits.start(1);
  commits.network().settle();
  CommitReport closer;
  closer.verdict = CommitVerdict::kLookCloser;
  ASSERT_TRUE(commits.rank(1).protocol.on_answer(bytes_of(closer.encode())).status.ok());
  uint64_t announced = uint64_t{1} << 60;
  commits.rank(0).broadcast.start(0, reinterpret_cast<std::byte*>(&announced), sizeof announced);
  commits.network().settle();
  const JobFailure& failure = commits.rank(1).failure;
  EXPECT_EQ(failure.status.code(), PARALLAX_INTERNAL);
  EXPECT_TRUE(has(failure.status, std::to_string(announced))) << failure.status.message();
}

}  // namespace
}  // namespace parallax::testkit
