// SPDX-License-Identifier: Apache-2.0
// Votes on boards and in messages. See all_votes.h.
#include "group/all_votes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "base/check.h"

namespace parallax {

namespace {

// A vote as it lies on a board, in the cache line of its entry's word. What every vote of its
// sender's says of itself is left out. Rates follow, as RatesBallot has them.
struct EntryVote {
  uint32_t learning_rate_bits, clip_norm_bits;
  uint32_t rates_count;
  uint32_t contributors, found_inf;
  std::array<uint32_t, kStepPhases> own_us;
  uint32_t part_bytes;  // of the rates; 0: none
};
constexpr size_t kPartAt = 56;
static_assert(sizeof(EntryVote) <= kPartAt);
constexpr size_t kEntryBytes = kPartAt + kVoteBytesMax;

}  // namespace

AllVotes::AllVotes(Group& group, Outbox& outbox, Ballots& ballots)
    : group_(group),
      outbox_(outbox),
      ballots_(ballots),
      voters_(group.columns().world()),
      own_(group.columns().rank()),
      all_(group.columns().world(), group.columns().rank()),
      place_(group.entries().reserve_votes(kEntryBytes)) {
  std::iota(voters_.begin(), voters_.end(), 0u);
}

void AllVotes::begin_at(uint64_t round, Voters voters) {
  of_hosts_ = voters == Voters::kHosts;
  const Columns& columns = group_.columns();
  voters_.resize(of_hosts_ ? columns.host_count() : columns.world());
  for (uint32_t i = 0; i < voters_.size(); ++i) {
    voters_[i] = of_hosts_ ? columns.map().ranks_of[i][0] : i;
  }
  own_ = voter_of(rank());
  all_ = AllSync(static_cast<uint32_t>(voters_.size()), own_);
  all_.begin_at(round);
  for (Ballot& each : others_) each.clear();
}

uint32_t AllVotes::voter_of(uint32_t rank) const {
  const auto found = std::lower_bound(voters_.begin(), voters_.end(), rank);
  const bool votes = found != voters_.end() && *found == rank;
  return votes ? static_cast<uint32_t>(found - voters_.begin()) : kNoVoter;
}

void Ballot::take(Ballot& other, uint32_t world) {
  votes.merge(other.votes);
  // As they came.
  other.rates.for_each_part([this, world](std::span<const std::byte> part) {
    PARALLAX_CHECK(rates.merge_part(part, world));
  });
  other.clear();
}

// ---- this rank

void AllVotes::tell(const Vote& vote, const StepRates& rates) {
  const uint64_t step = all_.round();
  if (on_boards()) {
    write(step, vote, rates);
  } else {
    RatesBallot own;
    if (rates.count > 0) own.say(rates, rank());
    send(step, vote, own);
  }
  all_.join();
}

void AllVotes::tell_of_host() {
  const Ballot& own = ballots_[StepWindow::slot(all_.round())];
  send(all_.round(), own.votes, own.rates);
  all_.join();
}

void AllVotes::write(uint64_t step, const Vote& vote, const StepRates& rates) {
  PARALLAX_CHECK(!vote.disagree && vote.norm_kinds == 0 && vote.counts_size == 0);
  Entries& entries = group_.entries();
  std::byte* const bytes = entries.own(place_, step);
  EntryVote said = {.learning_rate_bits = vote.scalars.learning_rate_bits,
                    .clip_norm_bits = vote.scalars.clip_norm_bits,
                    .rates_count = vote.scalars.rates_count,
                    .contributors = vote.contributors,
                    .found_inf = vote.found_inf,
                    .own_us = vote.pace.longest_us,
                    .part_bytes = 0};
  if (rates.count > 0) {
    RatesBallot own;
    own.say(rates, rank());
    own.for_each_part([&](std::span<const std::byte> part) {
      PARALLAX_CHECK(said.part_bytes == 0);  // norms would be more, and nobody has any
      said.part_bytes = static_cast<uint32_t>(part.size());
      std::memcpy(bytes + kPartAt, part.data(), part.size());
    });
  }
  std::memcpy(bytes, &said, sizeof said);
  entries.publish(place_, step, EntryKind::kValues);
}

// As it is: each merges all.
void AllVotes::send(uint64_t step, const Vote& vote, const RatesBallot& rates) {
  SectionHeader header = {.kind = SectionKind::kVote, .part = 1, .tag = kNoVariable};
  header.step = step;
  const auto to_all = [&](std::span<const std::byte> payload) {
    for (size_t i = 1; i < voters_.size(); ++i) {
      outbox_.send_bytes(voters_[(own_ + i) % voters_.size()], header, payload);
    }
  };
  rates.for_each_part(to_all);
  header.part = 0;
  std::array<std::byte, kVoteBytesMax> bytes;
  to_all(std::span(bytes).first(encode_vote(vote, bytes)));
}

// ---- the others

bool AllVotes::take(uint32_t from, const Section& section) {
  const uint64_t step = section.header.step;
  const uint32_t voter = voter_of(from);
  if (on_boards() || section.header.part > 1 || voter == kNoVoter || !is_voter()) return false;
  // Control of a peer comes in the order of its sending, so parts are there before their vote.
  if (section.header.part != 0) {
    return all_.awaits(voter, step) && ballot(step).rates.merge_part(section.payload, world());
  }
  if (!all_.arrive(voter, step) || !decode_vote(section.payload, world(), &said_)) return false;
  ballot(step).votes.merge(said_);
  return true;
}

EntryReader::News AllVotes::read_entries() {
  News news;
  const uint64_t step = all_.round();
  if (all_.joined()) {
    for (uint32_t from = 0; from < world(); ++from) {
      if (!all_.awaits(from, step)) continue;
      if (!on_board(from, step)) {
        news.awaits = true;
        continue;
      }
      if (!read(from, step)) garbled_ = from;
      news.moved = true;
    }
  }
  awaits_ = news.awaits;
  return news;
}

// A copy is looked at: a peer may write there at any time, if it should not.
bool AllVotes::read(uint32_t from, uint64_t step) {
  EntryVote entry;
  const std::byte* const bytes = group_.entries().of(from, place_, step);
  std::memcpy(&entry, bytes, sizeof entry);
  if (!all_.arrive(from, step) || entry.contributors > 1 || entry.found_inf > 1) return false;
  if (entry.part_bytes > kVoteBytesMax || (entry.part_bytes == 0) != (entry.rates_count == 0)) {
    return false;
  }
  said_.clear();
  said_.any = true;
  said_.contributors = entry.contributors;
  said_.found_inf = entry.found_inf;
  said_.scalars = {entry.learning_rate_bits, entry.clip_norm_bits, from, entry.rates_count};
  said_.pace.rank = from;
  said_.pace.longest_us = entry.own_us;
  std::copy(entry.own_us.begin(), entry.own_us.end(), said_.pace.sum_us.begin());
  ballot(step).votes.merge(said_);
  if (entry.part_bytes == 0) return true;
  std::array<std::byte, kVoteBytesMax> part;
  std::memcpy(part.data(), bytes + kPartAt, entry.part_bytes);
  return ballot(step).rates.merge_part(std::span(part).first(entry.part_bytes), world());
}

Status AllVotes::take_complete(bool* complete) {
  if (on_boards() && all_.joined() && !awaits_) {
    awaits_ = read_entries().awaits;
    if (awaits_) group_.entries().await(this);
  }
  if (garbled_ != UINT32_MAX) {
    return internal(rank_name(group_.columns().map(), garbled_) +
                    " wrote a vote that is none; check that all ranks run the same version")
        .about_peer(garbled_);
  }
  const uint64_t step = all_.round();
  *complete = all_.take_complete();
  if (*complete && of_hosts_) ballots_[StepWindow::slot(step)].take(ballot(step), world());
  return {};
}

// ---- what is known

std::vector<uint32_t> AllVotes::missing() const {
  std::vector<uint32_t> ranks = all_.missing();
  for (uint32_t& each : ranks) each = voters_[each];
  std::erase_if(ranks, [this](uint32_t each) { return on_board(each, all_.round()); });
  return ranks;
}

uint64_t AllVotes::told_in() const {
  if (!on_boards()) return all_.told_in();
  for (const uint64_t step : {all_.round() + 1, all_.round()}) {
    for (uint32_t each = 0; each < world(); ++each) {
      if (each != rank() && on_board(each, step)) return step;
    }
  }
  return 0;
}

}  // namespace parallax
