// SPDX-License-Identifier: Apache-2.0
// Adding up what a step of row ids does. See row_time.h.
#include "planner/row_time.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "planner/cost.h"

namespace parallax::cost {
namespace {

// Of what it takes to put a row in order, of 4,096 (row_sort_ps): that its key is checked and it is
// packed, and that it is found among rows that nobody gave.
constexpr double kCheckShare = 1.0 / 8, kFindShare = 1.0 / 32;
constexpr double kDoublingsSorted = 12;
constexpr double kCacheLineBytes = 64;

// What is counted of one variable, with the constants in nanoseconds.
class Count {
 public:
  Count(const VariableFacts& facts, const TopologyFacts& topology)
      : facts_(facts),
        costs_(topology.costs),
        hosts_(topology.hosts),
        ranks_(topology.ranks),
        locals_(ranks_ / hosts_),
        row_bytes_(static_cast<double>(facts.row_elements) * facts.element_bytes),
        rows_(static_cast<double>(facts.rows)),
        touched_(facts.touched_rows_per_host),
        union_(facts.union_rows) {}

  RowTime of(Method method) {
    do_alike();
    if (method == Method::kMadeDense) {
      go_made_dense();
    } else if (method == Method::kReduceRows) {
      go_reduced();
    } else {
      go_gathered();
    }
    go_in_chunks(static_cast<double>(chunks_of(method, facts_).count));
    return time_;
  }

 private:
  bool one_host() const { return hosts_ == 1; }
  double sum_byte() const {
    const size_t type = (facts_.integer ? 2 : 0) + (facts_.element_bytes == 8 ? 1 : 0);
    return static_cast<double>(costs_.sum_byte_ps[type]) / 1000;
  }
  double sort_row() const { return static_cast<double>(costs_.row_sort_ps) / 1000; }
  double copy_byte() const { return static_cast<double>(costs_.copy_byte_ps) / 1000; }

  void sum(double rows) {
    time_.rows += rows * static_cast<double>(costs_.row_sum_ps) / 1000;
    time_.memory += rows * row_bytes_ * sum_byte();
  }
  void copy(double rows) {
    check(rows);
    time_.memory += rows * (row_bytes_ + kRowIdBytes) * copy_byte();
  }
  void check(double rows) { time_.rows += rows * sort_row() * kCheckShare; }
  void copy_bytes(double bytes) { time_.memory += bytes * copy_byte(); }
  void wire_bytes(double bytes) {
    time_.wire += bytes * static_cast<double>(costs_.between.byte_ps) / 1000;
  }
  void wire_rows(double rows) { wire_bytes(rows * (row_bytes_ + kRowIdBytes)); }
  // A round: to so many others, one after the other, and from as many.
  void send(const LinkCost& link, double others) {
    if (others <= 0) return;
    time_.messages +=
        2 * others * static_cast<double>(link.overhead_ns) + static_cast<double>(link.latency_ns);
  }
  void inside_bytes(double bytes) {
    time_.memory += bytes * static_cast<double>(costs_.inside.byte_ps) / 1000;
  }

  // A rank's own rows, its part of the host's, and the result in order, however it comes.
  void do_alike() {
    const double own = one_host() ? touched_ : touched_ / locals_;
    sum(own);
    sum(own);
    send(costs_.inside, locals_ - 1);
    const auto doublings = static_cast<double>(std::bit_width(static_cast<uint64_t>(union_)));
    time_.rows += union_ * sort_row() * doublings / kDoublingsSorted;
    copy_bytes(union_ * row_bytes_);
  }

  void go_gathered() {
    const double to_others = (hosts_ - 1) * touched_;
    wire_rows(to_others);
    send(costs_.between, hosts_ - 1);
    copy(to_others / locals_);
    if (!one_host()) sum(hosts_ * touched_ / locals_);
    hand_out_rows();
  }

  void go_reduced() {
    const double others = others_share();
    wire_rows(one_host() ? 0 : others * (touched_ + union_));
    if (!one_host()) {
      send(costs_.between, hosts_ - 1);
      copy(others * touched_ / locals_);
      sum(touched_ / locals_);
      send(costs_.between, hosts_ - 1);
      copy(others * union_ / locals_);
    } else {
      send(costs_.inside, 1);  // to itself, before the others
    }
    copy(union_ / locals_);
    hand_out_rows();
  }

  void go_made_dense() {
    const ScheduleCost& dense = facts_.to_all;
    PARALLAX_CHECK(dense.algorithm != nullptr);
    const LinkCost& link = one_host() ? costs_.inside : costs_.between;
    const double bytes = rows_ * row_bytes_;
    copy_bytes(bytes / locals_);
    copy((one_host() ? union_ : touched_) / locals_);
    time_.memory += dense.summed_bytes * sum_byte();
    time_.messages += 2 * dense.sent_messages * static_cast<double>(link.overhead_ns) +
                      dense.rounds * static_cast<double>(link.latency_ns);
    if (one_host()) {
      inside_bytes(dense.received_bytes);
    } else {
      wire_bytes(dense.received_bytes);
      inside_bytes(bytes * (locals_ - 1) / locals_);
    }
    find_rows();
  }

  // All that is sent in each, one after the other; and each rank's rows and the result are copied
  // once more.
  void go_in_chunks(double chunks) {
    if (chunks <= 1) return;
    time_.messages *= chunks;
    copy(one_host() ? touched_ : touched_ / locals_);
    copy(union_);
  }

  // The union, of each column its leader.
  void hand_out_rows() {
    const double from_others = union_ * (locals_ - 1) / locals_;
    send(costs_.inside, locals_ - 1);
    check(from_others);
    inside_bytes(from_others * (row_bytes_ + kRowIdBytes));
  }
  // Of a row of all that are looked at, its first element.
  void find_rows() {
    time_.rows += rows_ * sort_row() * kFindShare;
    copy_bytes(rows_ * std::min(row_bytes_, kCacheLineBytes));
  }
  double others_share() const { return (hosts_ - 1) / hosts_; }

  const VariableFacts& facts_;
  const CostConstants& costs_;
  const double hosts_, ranks_, locals_;
  const double row_bytes_, rows_, touched_, union_;
  RowTime time_;
};

}  // namespace

RowTime row_time(Method method, const VariableFacts& facts, const TopologyFacts& topology) {
  PARALLAX_CHECK(carries_rows(facts) && facts.measured);
  if (topology.ranks == 1) return {};
  return Count(facts, topology).of(method);
}

std::string time_text(const RowTime& time) {
  const auto us = [](double ns) { return figure(ns / 1000); };
  return us(time.microseconds() * 1000) + " us (wire " + us(time.wire) + ", memory " +
         us(time.memory) + ", rows " + us(time.rows) + ", messages " + us(time.messages) + ")";
}

}  // namespace parallax::cost
