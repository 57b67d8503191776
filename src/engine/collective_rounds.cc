// SPDX-License-Identifier: Apache-2.0
// Reports, answers and what follows from them. See collective_rounds.h.
#include "engine/collective_rounds.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace parallax {

namespace {

template <typename Head>
std::span<const std::byte> bytes_of(const Head& head) {
  return std::as_bytes(std::span(&head, 1));
}

// They follow one another in one section.
static_assert(sizeof(CollectiveReport) + kFusedBytesMax <= Outbox::kControlBytesMax);

}  // namespace

CollectiveRounds::CollectiveRounds(const Parts& parts)
    : parts_(parts),
      algorithms_(parts.columns.map()),
      parent_(tree_parent(parts.columns.map(), 0, parts.columns.rank())),
      children_(tree_children(parts.columns.map(), 0, parts.columns.rank())),
      held_(children_.size(), 0) {}

Status CollectiveRounds::post(Collective what, uint64_t tag, Request** request) {
  what.key = key_of(tag);
  TakenRequest taken(parts_.requests);
  PARALLAX_RETURN_IF_ERROR(taken.take(RequestKind::kCollective, 0));
  auto call = std::make_unique<Call>(std::move(what), &*taken);
  const Collective& kept = call->what;
  if (!kept.terms.fused(kept.world)) {
    call->run = std::make_unique<CollectiveRun>(parts_.columns, parts_.outbox, kept, algorithms_,
                                                parts_.ordered);
    Status room = call->run->reserve(&taken->pending);
    if (!room.ok()) {
      taken.give_back();
      return refuse(tag, std::move(room));
    }
  }
  *request = keep(std::move(call), taken);
  return {};
}

Status CollectiveRounds::refuse(uint64_t tag, Status why) {
  TakenRequest taken(parts_.requests);
  // Without a request left the call counts as not made.
  PARALLAX_RETURN_IF_ERROR(taken.take(RequestKind::kCollective, 0));
  // Any terms that may be: what differs is said.
  Collective nothing;
  nothing.terms.kind = PARALLAX_ALLREDUCE;
  nothing.key = key_of(tag);
  nothing.rank = rank();
  nothing.world = parts_.columns.world();
  auto call = std::make_unique<Call>(std::move(nothing), &*taken);
  call->refused = refusal(rank(), why.facts().field);
  keep(std::move(call), taken);
  return why;
}

// What it sends is the next pass's: a call that throws has no place, and one that has a place does
// not throw.
Request* CollectiveRounds::keep(std::unique_ptr<Call> call, TakenRequest& taken) {
  const CollectiveKey key = call->what.key;
  posted_.push_back(key);  // if the rest throws: of nothing
  slot_of(key).calls.push_back(std::move(call));
  if (!key.tagged) ++next_;
  return taken.keep();
}

CollectiveRounds::Slot& CollectiveRounds::slot_of(const CollectiveKey& key) {
  return slots_.try_emplace(key, children_.size()).first->second;
}

// ---- what comes

bool CollectiveRounds::on_section(uint32_t from, const Section& section) {
  const SectionHeader& header = section.header;
  if (header.tag > 1) return false;
  const CollectiveKey key = {header.tag == 1, header.step};
  if (header.kind == SectionKind::kCollectiveReport) return on_report(from, key, section.payload);
  const auto found = slots_.find(key);
  if (found == slots_.end() || found->second.calls.empty()) return false;
  Slot& slot = found->second;
  Call& call = *slot.calls.front();
  switch (header.kind) {
    case SectionKind::kCollectiveAnswer:
      return on_answer(from, key, slot, section.payload);
    case SectionKind::kCollectiveCounts:
      return on_counts(from, key, slot, section.payload);
    case SectionKind::kCollectiveReduce:
    case SectionKind::kCollectiveGather:
    case SectionKind::kCollectivePlace:
      return takes_numbers(call) && call.run->on_section(from, section);
    default:
      return false;
  }
}

// Also of a rank that was answered before this one.
bool CollectiveRounds::takes_numbers(const Call& call) {
  return (call.phase == Phase::kReported || call.phase == Phase::kMoving) && call.run != nullptr;
}

std::byte* CollectiveRounds::place_of(uint32_t from, const Section& section) {
  const CollectiveKey key = {section.header.tag == 1, section.header.step};
  const auto found = slots_.find(key);
  if (section.header.tag > 1 || found == slots_.end() || found->second.calls.empty()) {
    return nullptr;
  }
  Call& call = *found->second.calls.front();
  return takes_numbers(call) ? call.run->place_of(from, section) : nullptr;
}

bool CollectiveRounds::on_report(uint32_t from, const CollectiveKey& key,
                                 std::span<const std::byte> payload) {
  const auto child = std::find(children_.begin(), children_.end(), from);
  CollectiveReport report;
  std::span<const std::byte> values;
  if (child == children_.end() || !read_report(payload, parts_.columns.world(), &report, &values)) {
    return false;
  }
  const auto index = static_cast<size_t>(child - children_.begin());
  if (!may_hold(index, key)) return false;
  Slot& slot = slot_of(key);
  slot.reports[index].assign(payload.begin(), payload.end());
  ++slot.reported;
  ++held_[index];
  pass_on_if_complete(key, slot);
  return true;
}

// A child has no more calls under way than requests, one report for each.
bool CollectiveRounds::may_hold(size_t child, const CollectiveKey& key) const {
  if (held_[child] >= PARALLAX_REQUESTS_MAX || (key.tagged && key.number == 0)) return false;
  const auto found = slots_.find(key);
  if (found == slots_.end()) return key.tagged || key.number >= next_;
  const Slot& slot = found->second;
  // Of no tag there is no next one to report.
  if (!key.tagged && !slot.calls.empty() && !slot.gathers()) return false;
  return slot.reports[child].empty();
}

bool CollectiveRounds::on_answer(uint32_t from, const CollectiveKey& key, Slot& slot,
                                 std::span<const std::byte> payload) {
  const Call& call = *slot.calls.front();
  CollectiveAnswer given;
  std::span<const std::byte> values;
  if (from != parent_ || call.phase != Phase::kReported ||
      !read_answer(payload, call.what, &given, &values)) {
    return false;
  }
  const bool moves = !given.mismatch.found() && given.counts_differ == 0;
  // Not after a peer has sent of it, nor of what this rank has refused.
  if (moves ? call.refused.found() : call.run != nullptr && call.run->took()) return false;
  answer(key, slot, given, values);
  return true;
}

// ---- up

void CollectiveRounds::pass_on_if_complete(const CollectiveKey& key, Slot& slot) {
  if (!slot.gathers() || slot.reported < children_.size()) return;
  const CollectiveReport all = gather(slot);
  Call& call = *slot.calls.front();
  const std::span<const std::byte> values =
      all.mismatch.found() ? std::span<const std::byte>() : call.values.bytes();
  call.phase = Phase::kReported;
  if (parent_ != kNoRank) {
    send(parent_, SectionKind::kCollectiveReport, key, bytes_of(all), values);
    return;
  }
  const bool differ = !all.mismatch.found() && all.sent != all.expected;
  answer(key, slot, {.mismatch = all.mismatch, .counts_differ = differ ? 1u : 0u}, values);
}

// Of this rank and those below, which it takes in the order of the tree.
CollectiveReport CollectiveRounds::gather(Slot& slot) {
  Call& call = *slot.calls.front();
  CollectiveReport all = {.terms = call.what.terms,
                          .mismatch = call.refused,
                          .sent = counts_sent(call.what),
                          .expected = counts_expected(call.what)};
  for (size_t i = 0; i < children_.size(); ++i) {
    CollectiveReport below;
    std::span<const std::byte> values;
    PARALLAX_CHECK(read_report(slot.reports[i], parts_.columns.world(), &below, &values));
    all.sent += below.sent;
    all.expected += below.expected;
    if (!all.mismatch.found()) {
      all.mismatch = below.mismatch.found()
                         ? below.mismatch
                         : difference(rank(), all.terms, children_[i], below.terms);
    }
    if (!all.mismatch.found()) call.values.add(call.what, values);
    slot.reports[i].clear();
    --held_[i];
  }
  slot.reported = 0;
  return all;
}

// ---- and down

// To the children, and then to this rank, whose call may be over with it.
void CollectiveRounds::answer(const CollectiveKey& key, Slot& slot, const CollectiveAnswer& given,
                              std::span<const std::byte> values) {
  for (const uint32_t child : children_) {
    send(child, SectionKind::kCollectiveAnswer, key, bytes_of(given), values);
  }
  Call& call = *slot.calls.front();
  if (given.mismatch.found()) {
    finish(key, slot, describe(parts_.columns.map(), key, given.mismatch));
  } else if (given.counts_differ != 0) {
    call.phase = Phase::kComparing;
    tell_counts(key, call);
    finish_if_told(key, slot);
  } else if (call.run != nullptr) {
    call.phase = Phase::kMoving;
    moving_.push_back(key);
    call.run->start();
  } else {
    if (parent_ != kNoRank) call.values.assign(values);
    call.values.give(call.what);
    finish(key, slot, {});
  }
}

void CollectiveRounds::advance() {
  for (const CollectiveKey& key : posted_) {
    const auto found = slots_.find(key);
    if (found != slots_.end()) pass_on_if_complete(key, found->second);
  }
  posted_.clear();
  for (size_t i = 0; i < moving_.size();) {
    const CollectiveKey key = moving_[i];
    Slot& slot = slots_.at(key);
    Call& call = *slot.calls.front();
    if (!call.run->moved() || call.request->pending > 0 || giving_) {
      ++i;
      continue;
    }
    // One piece in a run, whosesoever.
    giving_ = !call.run->give();
    if (giving_) continue;
    moving_.erase(moving_.begin() + static_cast<std::ptrdiff_t>(i));
    finish(key, slot, {});
  }
}

void CollectiveRounds::finish(const CollectiveKey& key, Slot& slot, const Status& status) {
  const std::unique_ptr<Call> call = std::move(slot.calls.front());
  slot.calls.pop_front();
  complete(*call, status);
  if (!slot.calls.empty()) {
    pass_on_if_complete(key, slot);
  } else if (slot.reported == 0) {
    slots_.erase(key);
  }
}

void CollectiveRounds::complete(const Call& call, const Status& status) {
  // A send would read buffers that are the caller's again.
  PARALLAX_CHECK(call.request->pending == 0);
  if (call.refused.found()) {
    parts_.requests.take_back(call.request);
  } else {
    parts_.requests.finish(call.request, status);
  }
}

void CollectiveRounds::send(uint32_t to, SectionKind kind, const CollectiveKey& key,
                            std::span<const std::byte> head, std::span<const std::byte> values) {
  std::array<std::byte, sizeof(CollectiveReport) + kFusedBytesMax> payload;
  std::memcpy(payload.data(), head.data(), head.size());
  if (!values.empty()) std::memcpy(payload.data() + head.size(), values.data(), values.size());
  parts_.outbox.send_bytes(to, {.kind = kind, .tag = key.tagged ? 1u : 0u, .step = key.number},
                           std::span(payload).first(head.size() + values.size()));
}

// ---- whose counts differ

void CollectiveRounds::tell_counts(const CollectiveKey& key, const Call& call) {
  for (uint32_t to = 0; to < call.what.world; ++to) {
    if (to == rank()) continue;
    const PairCounts counts = {call.what.send_counts[to], call.what.recv_counts[to]};
    send(to, SectionKind::kCollectiveCounts, key, bytes_of(counts), {});
  }
}

bool CollectiveRounds::on_counts(uint32_t from, const CollectiveKey& key, Slot& slot,
                                 std::span<const std::byte> payload) {
  Call& call = *slot.calls.front();
  const bool due = call.phase == Phase::kReported || call.phase == Phase::kComparing;
  PairCounts counts;
  if (!due || call.what.terms.kind != PARALLAX_ALLTOALLV || from == rank() ||
      payload.size() != sizeof counts) {
    return false;
  }
  std::memcpy(&counts, payload.data(), sizeof counts);
  call.told_counts.resize(call.what.world);
  if (call.told_counts[from] != 0) return false;
  call.told_counts[from] = 1;
  ++call.told;
  const auto compare = [this, &call](uint32_t sender, uint32_t receiver, uint64_t sent,
                                     uint64_t expected) {
    if (sent == expected || !call.wrong_counts.empty()) return;
    const HostMap& map = parts_.columns.map();
    call.wrong_counts = "send_counts of " + rank_name(map, sender) + " has " +
                        std::to_string(sent) + " numbers for " + rank_name(map, receiver) +
                        ", whose recv_counts has " + std::to_string(expected);
  };
  compare(from, rank(), counts.sent, call.what.recv_counts[from]);
  compare(rank(), from, call.what.send_counts[from], counts.expected);
  finish_if_told(key, slot);
  return true;
}

void CollectiveRounds::finish_if_told(const CollectiveKey& key, Slot& slot) {
  const Call& call = *slot.calls.front();
  if (call.phase != Phase::kComparing || call.told + 1 < call.what.world) return;
  const std::string wrong = call.wrong_counts.empty()
                                ? "send_counts and recv_counts of other ranks differ"
                                : call.wrong_counts;
  finish(key, slot,
         Status(PARALLAX_MISMATCH, name_of(key) + ": " + wrong + "; nothing of it was exchanged")
             .about_field("recv_counts"));
}

// ---- who closes

bool CollectiveRounds::said() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const auto& each) {
    const Slot& slot = each.second;
    return slot.calls.empty() || (slot.calls.size() == 1 && !slot.gathers());
  });
}

Status CollectiveRounds::check_leaving(bool closing) const {
  const TreeSync& closes = parts_.trees[TreeKind::kClose];
  if (!closing && !closes.any_arrived()) return {};
  const auto left_out = [this](uint32_t leaver, const CollectiveKey& key) {
    return peer_lost(rank_name(parts_.columns.map(), leaver) + " closed the job before " +
                     name_of(key) + ", which other ranks wait for")
        .about_peer(leaver);
  };
  for (const auto& [key, slot] : slots_) {
    // Reports that no call of this rank will ever take.
    const size_t past = slot.gathers() || slot.calls.empty() ? 0 : 1;
    if (closing && slot.reported > 0 && slot.calls.size() <= past) return left_out(rank(), key);
    if (!slot.gathers()) continue;
    for (size_t i = 0; i < children_.size(); ++i) {
      if (slot.reports[i].empty() && closes.has_arrived(children_[i])) {
        return left_out(children_[i], key);
      }
    }
  }
  return {};
}

// ---- what is asked of it

CollectiveWait CollectiveRounds::waiting(const Request& request) const {
  CollectiveWait wait;
  for (const auto& [key, slot] : slots_) {
    for (const auto& call : slot.calls) {
      if (call->request != &request) continue;
      wait.key = key;
      wait.kind = call->what.terms.kind;
      wait.behind = call != slot.calls.front();
      if (wait.behind) return wait;
      for (size_t i = 0; slot.gathers() && i < children_.size(); ++i) {
        if (slot.reports[i].empty()) wait.to_call.push_back(children_[i]);
      }
      if (call->phase == Phase::kReported) wait.to_answer = {parent_};
      if (call->phase == Phase::kMoving) {
        const MissingRanks missing = call->run->missing();
        wait.to_send = missing.to_give.empty() ? missing.to_return : missing.to_give;
      }
      for (uint32_t of = 0; call->phase == Phase::kComparing && of < call->what.world; ++of) {
        const bool told = !call->told_counts.empty() && call->told_counts[of] != 0;
        if (!told && of != rank()) wait.to_send.push_back(of);
      }
      return wait;
    }
  }
  return wait;
}

void CollectiveRounds::finish_all(const Status& status) {
  giving_ = false;
  posted_.clear();
  moving_.clear();
  for (auto& [key, slot] : slots_) {
    for (auto each = slot.calls.begin(); each != slot.calls.end();) {
      if ((*each)->request->pending > 0) {
        ++each;
        continue;
      }
      const std::unique_ptr<Call> call = std::move(*each);
      each = slot.calls.erase(each);
      complete(*call, status);
    }
  }
}

}  // namespace parallax
