// SPDX-License-Identifier: Apache-2.0
// Reports up and answers down one column's tree of hosts. See census.h.
#include "collectives/census.h"

#include <algorithm>
#include <utility>

#include "base/bits.h"
#include "base/check.h"
#include "collectives/round_names.h"

namespace parallax {

namespace {

constexpr size_t bytes_of_marks(uint32_t marks) { return (size_t{marks} + 7) / 8; }

}  // namespace

Census::Census(const Columns& columns, Outbox& outbox, CensusOptions options)
    : columns_(columns), outbox_(outbox), options_(std::move(options)) {
  PARALLAX_CHECK(options_.marks <= kMarksMax);
  const std::vector<uint32_t>& reporters = options_.reporters;
  joins_ =
      leads() || std::find(reporters.begin(), reporters.end(), columns.rank()) != reporters.end();
  if (leads()) {
    const uint32_t hosts = columns.host_count();
    // Another root for each variable and column, so that no host is the root of all.
    const uint32_t root = (options_.variable + options_.column) % hosts;
    if (columns.host() != root) {
      parent_ = columns.leader(host_tree_parent(hosts, root, columns.host()), options_.column);
    }
    for (const uint32_t host : host_tree_children(hosts, root, columns.host())) {
      children_.push_back(columns.leader(host, options_.column));
    }
    told_ = children_;
    children_.insert(children_.end(), reporters.begin(), reporters.end());
    told_.insert(told_.end(), options_.listeners.begin(), options_.listeners.end());
  } else {
    parent_ = columns.leader(columns.host(), options_.column);
  }
  for (Round& round : rounds_) {
    round.reported_by.resize(children_.size());
    round.marks.resize(bytes_of_marks(options_.marks));
  }
}

void Census::open(uint64_t step) {
  Round& opened = round(step);
  opened.joined = opened.reported = opened.answered = opened.contributed = false;
  opened.reports_left = static_cast<uint32_t>(children_.size());
  std::fill(opened.reported_by.begin(), opened.reported_by.end(), uint8_t{0});
  std::fill(opened.marks.begin(), opened.marks.end(), std::byte{0});
}

void Census::join(uint64_t step, uint32_t mark, bool contributed) {
  Round& joining = round(step);
  PARALLAX_CHECK(joins_ && !joining.joined);
  joining.joined = true;
  joining.contributed |= contributed;
  if (mark != kNoMark) set_bit(joining.marks, mark);
  report_if_complete(step);
}

bool Census::on_report(uint32_t from, const Section& section) {
  Round& reporting = round(section.header.step);
  const auto child = std::find(children_.begin(), children_.end(), from);
  if (child == children_.end() || !well_formed(section)) return false;
  uint8_t& reported = reporting.reported_by[static_cast<size_t>(child - children_.begin())];
  if (reported != 0) return false;
  reported = 1;
  --reporting.reports_left;
  take(reporting, section);
  report_if_complete(section.header.step);
  return true;
}

bool Census::on_answer(uint32_t from, const Section& section) {
  Round& answering = round(section.header.step);
  // Who joins is answered for its report. Who only listens has none.
  if (from != parent_ || answering.answered || (joins_ && !answering.reported)) return false;
  if (!well_formed(section)) return false;
  take(answering, section);
  answer(section.header.step);
  return true;
}

// Of the right size, and marks nobody that there is not.
bool Census::well_formed(const Section& section) const {
  const SectionHeader& header = section.header;
  const size_t bytes = bytes_of_marks(options_.marks);
  if (header.encoding != Encoding::kBytes || header.count != bytes ||
      section.payload.size() != bytes) {
    return false;
  }
  const uint32_t used = options_.marks % 8;
  return used == 0 || (section.payload.back() >> used) == std::byte{0};
}

void Census::take(Round& round, const Section& section) const {
  round.contributed |= (section.header.flags & kSectionContributed) != 0;
  for (size_t i = 0; i < round.marks.size(); ++i) round.marks[i] |= section.payload[i];
}

void Census::report_if_complete(uint64_t step) {
  Round& complete = round(step);
  if (!complete.joined || complete.reports_left > 0 || complete.reported) return;
  complete.reported = true;
  if (parent_ == kNoRank) {
    answer(step);
  } else {
    send(parent_, SectionKind::kCensusUp, step);
  }
}

void Census::answer(uint64_t step) {
  round(step).answered = true;
  for (const uint32_t each : told_) send(each, SectionKind::kCensusDown, step);
}

void Census::send(uint32_t to, SectionKind kind, uint64_t step) {
  const Round& sent = round(step);
  SectionHeader header;
  header.kind = kind;
  header.flags = sent.contributed ? kSectionContributed : uint8_t{0};
  header.part = options_.stage;
  header.tag = options_.variable;
  header.step = step;
  name_round(options_.rounds, &header);
  header.first = options_.column;
  outbox_.send_bytes(to, header, sent.marks);
}

bool Census::marked(uint64_t step, uint32_t mark) const { return bit_at(round(step).marks, mark); }

std::vector<uint32_t> Census::missing(uint64_t step) const {
  const Round& waiting = round(step);
  std::vector<uint32_t> missing;
  if (waiting.answered) return missing;
  for (size_t i = 0; i < children_.size(); ++i) {
    if (waiting.reported_by[i] == 0) missing.push_back(children_[i]);
  }
  const bool waits_for_answer = waiting.reported || !joins_;
  if (waits_for_answer && parent_ != kNoRank) missing.push_back(parent_);
  return missing;
}

}  // namespace parallax
