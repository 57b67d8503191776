// SPDX-License-Identifier: Apache-2.0
// The two rounds of a split. See split_calls.h.
#include "engine/split_calls.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace parallax {

namespace {

// FNV-1a over the numbers and how many there are, so that no list begins another.
uint64_t digest_of(std::span<const uint32_t> ranks) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](uint32_t number) {
    for (uint32_t shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (number >> shift & 0xff)) * 0x100000001b3;
    }
  };
  add(static_cast<uint32_t>(ranks.size()));
  for (const uint32_t rank : ranks) add(rank);
  return hash;
}

}  // namespace

// ---- the call

Status SplitCalls::split(std::span<const uint32_t> ranks, Request** request) {
  const auto world = static_cast<uint32_t>(hosts_.host_of.size());
  std::vector<uint8_t> named(world);
  uint32_t place = UINT32_MAX;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string name =
        "split: ranks[" + std::to_string(i) + "] is " + std::to_string(ranks[i]);
    if (ranks[i] >= world) {
      return invalid(name + ", the job has " + std::to_string(world) + " ranks")
          .about_field("ranks");
    }
    if (named[ranks[i]]++ != 0) {
      return invalid(name + ", which stands there before; name each rank once")
          .about_field("ranks");
    }
    if (ranks[i] == rank_) place = static_cast<uint32_t>(i);
  }
  if (place == UINT32_MAX) {
    return invalid("split: this rank, " + std::to_string(rank_) +
                   ", is not among the ranks; only those that are named call it")
        .about_field("ranks");
  }
  if (!maker_.open) return unsupported("split: this job cannot be split");
  TakenRequest taken(requests_);
  PARALLAX_RETURN_IF_ERROR(taken.take(RequestKind::kSplit, 0));
  auto split = std::make_unique<Split>();
  split->ranks.assign(ranks.begin(), ranks.end());
  split->place = place;
  split->request = &*taken;
  split->key.digest = digest_of(ranks);
  uint32_t& ordinal = ordinals_[split->key.digest];
  split->key.ordinal = ordinal;
  for (std::vector<uint8_t>& reported : split->reported) reported.resize(children(*split).size());
  splits_.reserve(splits_.size() + 1);
  // From here on nothing throws: a call that is not made takes no number.
  ++ordinal;
  take_early(*split);
  splits_.push_back(std::move(split));
  *request = taken.keep();
  return {};
}

// ---- the tree of its ranks

std::span<const uint32_t> SplitCalls::children(const Split& split) {
  const size_t first = std::min(size_t{split.place} * kArity + 1, split.ranks.size());
  const size_t count = std::min(split.ranks.size() - first, size_t{kArity});
  return std::span(split.ranks).subspan(first, count);
}

SplitCalls::Split* SplitCalls::find(const Key& key) {
  const auto found = std::find_if(splits_.begin(), splits_.end(),
                                  [&](const auto& split) { return split->key == key; });
  return found == splits_.end() ? nullptr : found->get();
}

SplitCalls::Split* SplitCalls::find_called(const Key& key) {
  Split* split = find(key);
  return split == nullptr || split->left ? nullptr : split;
}

// Once of each child and round.
bool SplitCalls::note_report(Split& split, Round round, uint32_t from) {
  const std::span<const uint32_t> below = children(split);
  const auto child = std::find(below.begin(), below.end(), from);
  if (child == below.end()) return false;
  std::vector<uint8_t>& reported = split.reported[static_cast<size_t>(round)];
  return reported[static_cast<size_t>(child - below.begin())]++ == 0;
}

// Those of ranks that are no children of ours in this list stay: it is told as a timeout, not here,
// that their list differs.
void SplitCalls::take_early(Split& split) {
  std::erase_if(early_, [&](const Early& early) {
    return early.key == split.key && ((split.place != 0 && parent(split) == early.from) ||
                                      note_report(split, Round::kCall, early.from));
  });
}

void SplitCalls::tell(uint32_t to, SectionKind kind, Round round, const Split& split) {
  SectionHeader header;
  header.kind = kind;
  header.part = static_cast<uint8_t>(round);
  header.tag = kind == SectionKind::kSplitDown ? split.number : 0;
  header.step = split.key.digest;
  header.first = split.key.ordinal;
  outbox_.send_bytes(to, header, {});
}

void SplitCalls::tell_children(Round round, const Split& split) {
  for (const uint32_t child : children(split)) tell(child, SectionKind::kSplitDown, round, split);
}

bool SplitCalls::all_reported(const Split& split, Round round) {
  const std::vector<uint8_t>& reported = split.reported[static_cast<size_t>(round)];
  return std::find(reported.begin(), reported.end(), 0) == reported.end();
}

// ---- messages

bool SplitCalls::on_section(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (header.part > static_cast<uint8_t>(Round::kLeft) || !section.payload.empty() ||
      header.first > UINT32_MAX) {
    return false;
  }
  const auto round = static_cast<Round>(header.part);
  const Key key = {header.step, static_cast<uint32_t>(header.first)};
  if (round == Round::kLeft) return header.tag == 0 && take_left(from, key);
  if (header.kind == SectionKind::kSplitUp) {
    return round != Round::kWait && take_report(from, round, key);
  }
  return round == Round::kWait ? header.tag == 0 && take_wait(from, key)
                               : take_answer(from, round, header);
}

bool SplitCalls::take_report(uint32_t from, Round round, const Key& key) {
  Split* split = find_called(key);
  if (split != nullptr) {
    // A child opens its part once this rank has told it the number.
    if (round == Round::kOpen && split->stage != Stage::kOpening) return false;
    return note_report(*split, round, from);
  }
  return round == Round::kCall && keep_early(from, key);
}

bool SplitCalls::keep_early(uint32_t from, const Key& key) {
  const auto kept = std::count_if(early_.begin(), early_.end(),
                                  [&](const Early& early) { return early.from == from; });
  if (kept >= kEarlyMax) return false;
  early_.push_back({from, key});
  return true;
}

// Of the rank above this one, which had not heard from it then.
bool SplitCalls::take_wait(uint32_t from, const Key& key) {
  const Split* split = find_called(key);
  if (split == nullptr) return keep_early(from, key);
  return split->place != 0 && parent(*split) == from && split->stage <= Stage::kCalled;
}

// Up or down the tree. Where this rank has gone on with a number already, it comes too late.
bool SplitCalls::take_left(uint32_t from, const Key& key) {
  std::erase_if(early_, [&](const Early& early) { return early.from == from && early.key == key; });
  Split* split = find(key);
  if (split != nullptr && split->stage == Stage::kCalling) {
    const std::span<const uint32_t> below = children(*split);
    const auto child = std::find(below.begin(), below.end(), from);
    if (child != below.end()) {
      split->reported[static_cast<size_t>(Round::kCall)]
                     [static_cast<size_t>(child - below.begin())] = 0;
    }
  }
  return true;
}

bool SplitCalls::take_answer(uint32_t from, Round round, const SectionHeader& header) {
  Split* split = find({header.step, static_cast<uint32_t>(header.first)});
  if (split == nullptr || split->place == 0 || parent(*split) != from) return false;
  if (round == Round::kCall) {
    if (split->stage != Stage::kCalled) return false;
    split->number = header.tag;
    split->stage = split->number == 0 ? Stage::kRefused : Stage::kNumbered;
    return true;
  }
  if (split->stage != Stage::kOpened || header.tag != split->number) return false;
  split->stage = Stage::kOver;
  return true;
}

// ---- the pass

Status SplitCalls::advance() {
  for (const auto& split : splits_) {
    bool moved = true;
    while (moved) {
      moved = false;
      PARALLAX_RETURN_IF_ERROR(advance(*split, &moved));
    }
  }
  // Completed last, one by one: what a completion leads to may look at the others.
  for (size_t i = 0; i < splits_.size();) {
    const bool refused = splits_[i]->stage == Stage::kRefused;
    if (splits_[i]->stage != Stage::kOver && !refused) {
      ++i;
      continue;
    }
    const std::unique_ptr<Split> over = std::move(splits_[i]);
    splits_.erase(splits_.begin() + static_cast<std::ptrdiff_t>(i));
    tell_children(refused ? Round::kCall : Round::kOpen, *over);
    over->request->part = over->number;
    requests_.finish(over->request, outcome(*over));
  }
  return {};
}

Status SplitCalls::advance(Split& split, bool* moved) {
  const Stage before = split.stage;
  switch (split.stage) {
    case Stage::kPosted:
      tell_those_to_call(Round::kWait, split);
      split.stage = Stage::kCalling;
      break;
    case Stage::kCalling:
      if (all_reported(split, Round::kCall)) take_call(split);
      break;
    case Stage::kNumbered:
      PARALLAX_RETURN_IF_ERROR(open(split));
      break;
    case Stage::kOpening:
      if (all_reported(split, Round::kOpen)) take_opened(split);
      break;
    case Stage::kCalled:
    case Stage::kOpened:
    case Stage::kOver:
    case Stage::kRefused:
      break;
  }
  *moved = split.stage != before;
  return {};
}

void SplitCalls::tell_those_to_call(Round round, const Split& split) {
  const std::span<const uint32_t> below = children(split);
  const std::vector<uint8_t>& called = split.reported[static_cast<size_t>(Round::kCall)];
  for (size_t i = 0; i < below.size(); ++i) {
    if (called[i] == 0) tell(below[i], SectionKind::kSplitDown, round, split);
  }
}

// All below have called, and this rank.
void SplitCalls::take_call(Split& split) {
  if (split.place != 0) {
    tell(parent(split), SectionKind::kSplitUp, Round::kCall, split);
    split.stage = Stage::kCalled;
    return;
  }
  split.number = maker_.next_number();
  split.stage = split.number == 0 ? Stage::kRefused : Stage::kNumbered;
}

Status SplitCalls::outcome(const Split& split) const {
  if (split.stage == Stage::kOver) return {};
  return limit("split: " + rank_name(hosts_, split.ranks[0]) +
               " has been the first of as many parts as one rank can be; split once, and use the "
               "part again")
      .about_peer(split.ranks[0]);
}

Status SplitCalls::open(Split& split) {
  PARALLAX_RETURN_IF_ERROR(maker_.open(split.number, split.ranks));
  tell_children(Round::kCall, split);
  split.stage = Stage::kOpening;
  return {};
}

// It is open here and everywhere below.
void SplitCalls::take_opened(Split& split) {
  if (split.place == 0) {
    split.stage = Stage::kOver;
    return;
  }
  tell(parent(split), SectionKind::kSplitUp, Round::kOpen, split);
  split.stage = Stage::kOpened;
}

void SplitCalls::leave(const Request& request) {
  for (const auto& split : splits_) {
    if (split->request != &request || split->stage > Stage::kCalled) continue;
    split->left = true;
    if (split->stage == Stage::kCalling) tell_those_to_call(Round::kLeft, *split);
    if (split->stage == Stage::kCalled) {
      tell(parent(*split), SectionKind::kSplitUp, Round::kLeft, *split);
    }
  }
}

// ---- reports, and the end of the job

std::vector<uint32_t> SplitCalls::missing_ranks(const Request& request) const {
  for (const auto& split : splits_) {
    if (split->request != &request) continue;
    if (split->stage == Stage::kCalled || split->stage == Stage::kOpened) return {parent(*split)};
    const Round round = split->stage <= Stage::kCalling ? Round::kCall : Round::kOpen;
    const std::vector<uint8_t>& reported = split->reported[static_cast<size_t>(round)];
    const std::span<const uint32_t> below = children(*split);
    std::vector<uint32_t> missing;
    for (size_t i = 0; i < below.size(); ++i) {
      if (reported[i] == 0) missing.push_back(below[i]);
    }
    return missing;
  }
  return {};
}

void SplitCalls::finish_all(const Status& status) {
  for (const auto& split : splits_) requests_.finish(split->request, status);
  splits_.clear();
}

}  // namespace parallax
