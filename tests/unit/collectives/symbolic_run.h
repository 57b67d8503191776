// SPDX-License-Identifier: Apache-2.0
// SymbolicRun: the schedules of a whole job run on symbols. What a rank contributes is a vector
// with a 1 at its own place, sums add vectors, and messages are taken in any order that the data
// allow; at the end it tells whether everything that should have happened did, once. Tests only.
#ifndef PARALLAX_TESTS_UNIT_COLLECTIVES_SYMBOLIC_RUN_H_
#define PARALLAX_TESTS_UNIT_COLLECTIVES_SYMBOLIC_RUN_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/schedule.h"

namespace parallax::schedules {

// How often each rank's contribution is in a value, and the value in doubles, added in the order of
// turns where a sum is complete.
struct Value {
  std::vector<uint8_t> times;
  double number = 0;
  bool ends_with_step = false;  // as its sender's operation says
  uint32_t rounds = 0;          // sends, one after the other, until it was here
};

class SymbolicRun {
 public:
  // numbers[r]: what rank r contributes, of every element the same.
  SymbolicRun(std::vector<Schedule> schedules, uint64_t elements, std::vector<double> numbers)
      : schedules_(std::move(schedules)), elements_(elements), numbers_(std::move(numbers)) {
    received_.resize(size_t{world()} * world());
    cut_into_atoms();
    for (uint32_t rank = 0; rank < world(); ++rank) prepare(rank);
  }

  // "" or what is wrong with the schedules.
  std::string run() {
    for (const std::string& wrong : wrong_) return wrong;
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t rank = 0; rank < world(); ++rank) moved |= advance(rank);
      if (!wrong_.empty()) return wrong_[0];
    }
    for (uint32_t rank = 0; rank < world(); ++rank) {
      if (!ranks_[rank].left.empty()) return say(rank, *ranks_[rank].left[0].op) + " never runs";
    }
    return under_way_.empty() ? "" : "a message is never received";
  }

  // Null: never came.
  const Value* result(uint32_t rank, uint64_t element) const {
    const std::optional<Value>& value = ranks_[rank].result[atom_of(element)];
    return value.has_value() ? &*value : nullptr;
  }
  const Value* total(uint32_t rank, uint64_t element) const {
    const Schedule& schedule = schedules_[rank];
    const Sum& sum = ranks_[rank].sums[schedule.owned_sum][atom_of(element)];
    return sum.complete() ? &sum.value : nullptr;
  }
  const std::vector<uint64_t>& starts() const { return starts_; }
  uint64_t messages() const { return messages_; }
  // Elements that `to` received from `from`.
  uint64_t received(uint32_t to, uint32_t from) const { return received_[to * world() + from]; }
  uint64_t added() const { return added_; }    // elements, to what sums of any rank had already
  uint32_t rounds() const { return rounds_; }  // the longest chain of sends

 private:
  struct Sum {
    std::map<uint32_t, std::optional<Value>> addends;  // by turn
    Value value;
    bool summed = false;
    bool complete() const { return summed; }
  };
  struct Task {
    const Op* op;
    size_t atom;
  };
  struct Rank {
    std::vector<std::vector<Sum>> sums;  // [sum][atom]
    std::vector<std::optional<Value>> result;
    std::vector<Task> left;
  };

  uint32_t world() const { return static_cast<uint32_t>(schedules_.size()); }

  // Between two of these bounds every operation treats all elements alike.
  void cut_into_atoms() {
    std::set<uint64_t> bounds = {0, elements_};
    for (const Schedule& schedule : schedules_) {
      for (const Op& op : schedule.ops) bounds.insert({op.range.first, op.range.end()});
    }
    bounds.erase(elements_);
    starts_.assign(bounds.begin(), bounds.end());
  }
  size_t atom_of(uint64_t element) const {
    return static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), element) -
                               starts_.begin()) -
           1;
  }

  uint64_t atom_elements(size_t atom) const {
    return (atom + 1 < starts_.size() ? starts_[atom + 1] : elements_) - starts_[atom];
  }

  void prepare(uint32_t rank) {
    Rank& state = ranks_.emplace_back();
    const Schedule& schedule = schedules_[rank];
    check_places(rank, schedule);
    state.sums.assign(schedule.sum_count, std::vector<Sum>(starts_.size()));
    state.result.resize(starts_.size());
    for (const Op& op : schedule.ops) {
      if (op.range.count == 0 || op.range.end() > elements_) {
        wrong_.push_back(say(rank, op) + ": no such range");
        continue;
      }
      for (size_t atom = atom_of(op.range.first); atom < starts_.size(); ++atom) {
        if (starts_[atom] >= op.range.end()) break;
        state.left.push_back({&op, atom});
        if (op.kind != OpKind::kReceiveSum && op.kind != OpKind::kAdd) continue;
        auto& addends = state.sums.at(op.to)[atom].addends;
        if (!addends.try_emplace(op.turn).second) wrong_.push_back(say(rank, op) + ": turn taken");
      }
    }
    for (const std::vector<Sum>& atoms : state.sums) {
      for (const Sum& sum : atoms) {
        if (!sum.addends.empty() && sum.addends.rbegin()->first + 1 != sum.addends.size()) {
          wrong_.push_back("rank " + std::to_string(rank) + ": a turn that nobody takes");
        }
      }
    }
  }

  // What reads or writes one place covers the same range of it, or has no element in common.
  void check_places(uint32_t rank, const Schedule& schedule) {
    std::map<std::pair<uint8_t, uint64_t>, uint64_t> ends;  // of ranges, by place and first
    const auto touch = [&](const Op& op, uint8_t place) {
      const auto [at, fresh] = ends.try_emplace({place, op.range.first}, op.range.end());
      if (!fresh && at->second != op.range.end()) wrong_.push_back(say(rank, op) + ": cut anew");
    };
    for (const Op& op : schedule.ops) {
      const bool adds = op.kind == OpKind::kReceiveSum || op.kind == OpKind::kAdd;
      if (op.kind != OpKind::kSend) touch(op, adds ? op.to : kResult);
      const bool receives = op.kind == OpKind::kReceiveSum || op.kind == OpKind::kReceiveCopy;
      if (!receives && op.from != kInput) touch(op, op.from);
    }
    uint64_t end = 0;
    uint8_t place = 0;
    for (const auto& [at, range_end] : ends) {
      if (at.first == place && at.second < end) {
        wrong_.push_back("rank " + std::to_string(rank) + ": ranges overlap at element " +
                         std::to_string(at.second));
      }
      place = at.first;
      end = range_end;
    }
  }

  bool advance(uint32_t rank) {
    std::vector<Task>& left = ranks_[rank].left;
    const size_t before = left.size();
    std::erase_if(left, [&](const Task& task) { return attempt(rank, task); });
    return left.size() < before;
  }

  const Value* source(uint32_t rank, uint8_t from, size_t atom) {
    Rank& state = ranks_[rank];
    if (from == kInput) {
      own_ = {.times = std::vector<uint8_t>(world(), 0), .number = numbers_[rank]};
      own_.times[rank] = 1;
      return &own_;
    }
    if (from == kResult) return state.result[atom].has_value() ? &*state.result[atom] : nullptr;
    const Sum& sum = state.sums.at(from)[atom];
    return sum.complete() ? &sum.value : nullptr;
  }

  bool attempt(uint32_t rank, const Task& task) {
    const Op& op = *task.op;
    Value value;
    if (op.kind == OpKind::kReceiveSum || op.kind == OpKind::kReceiveCopy) {
      const auto found = under_way_.find({op.peer, rank, op.stage, task.atom});
      if (found == under_way_.end()) return false;
      value = std::move(found->second);
      under_way_.erase(found);
      received_[rank * world() + op.peer] += atom_elements(task.atom);
      if (value.ends_with_step != op.ends_with_step) {
        wrong_.push_back(say(rank, op) + ": its sender sees its end otherwise");
      }
    } else {
      const Value* from = source(rank, op.from, task.atom);
      if (from == nullptr) return false;
      value = *from;
    }
    switch (op.kind) {
      case OpKind::kSend:
        ++messages_;
        if (op.peer == rank || !sent_.insert({rank, op.peer, op.stage, task.atom}).second) {
          wrong_.push_back(say(rank, op) + ": to itself, or twice");
        }
        if (op.ends_with_step && op.from != kInput) {
          wrong_.push_back(say(rank, op) + ": a sum does not end with the step");
        }
        value.ends_with_step = op.ends_with_step;
        rounds_ = std::max(rounds_, ++value.rounds);
        under_way_[{rank, op.peer, op.stage, task.atom}] = std::move(value);
        return true;
      case OpKind::kReceiveSum:
      case OpKind::kAdd:
        if (op.turn > 0) added_ += atom_elements(task.atom);
        add(ranks_[rank].sums[op.to][task.atom], op.turn, std::move(value));
        return true;
      case OpKind::kReceiveCopy:
      case OpKind::kCopy:
        if (ranks_[rank].result[task.atom].has_value()) {
          wrong_.push_back(say(rank, op) + ": there already");
        }
        ranks_[rank].result[task.atom] = std::move(value);
        return true;
    }
    return false;
  }

  void add(Sum& sum, uint32_t turn, Value value) {
    sum.addends[turn] = std::move(value);
    for (const auto& [at, addend] : sum.addends) {
      if (!addend.has_value()) return;
    }
    sum.summed = true;
    sum.value.times.assign(world(), 0);
    for (const auto& [at, addend] : sum.addends) {
      for (uint32_t rank = 0; rank < world(); ++rank) {
        sum.value.times[rank] = static_cast<uint8_t>(sum.value.times[rank] + addend->times[rank]);
      }
      sum.value.number += addend->number;
      sum.value.rounds = std::max(sum.value.rounds, addend->rounds);
    }
  }

  static std::string say(uint32_t rank, const Op& op) {
    static constexpr const char* kNames[] = {"send", "receive_sum", "receive_copy", "add", "copy"};
    return "rank " + std::to_string(rank) + ": " + kNames[static_cast<size_t>(op.kind)] + " " +
           std::to_string(op.range.first) + " +" + std::to_string(op.range.count) + ", peer " +
           std::to_string(op.peer);
  }

  std::vector<Schedule> schedules_;
  const uint64_t elements_;
  const std::vector<double> numbers_;
  std::vector<uint64_t> starts_;
  std::vector<Rank> ranks_;
  using Key = std::tuple<uint32_t, uint32_t, uint8_t, size_t>;  // from, to, stage, atom
  std::map<Key, Value> under_way_;
  std::set<Key> sent_;
  uint64_t messages_ = 0;
  std::vector<uint64_t> received_;  // [to][from]
  uint64_t added_ = 0;
  uint32_t rounds_ = 0;
  Value own_;
  std::vector<std::string> wrong_;
};

}  // namespace parallax::schedules

#endif  // PARALLAX_TESTS_UNIT_COLLECTIVES_SYMBOLIC_RUN_H_
