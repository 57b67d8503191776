// SPDX-License-Identifier: Apache-2.0
// Census: how those who are sent something in a step learn that nothing more comes, without a word
// from those who send them nothing. Where hosts are few, who has no rows for an owner says so, by a
// section that rides with others. Of hundreds of hosts most have none for most owners, and those
// words would be most of what is sent. So the members of a column count together, up a tree of
// their hosts, and the answer goes down to all of them. What joining means is the caller's, one of:
//
//   - All that this member sent has arrived: its receivers said so. Then the answer is that
//     everything has, everywhere (nonblocking consensus; Hoefler, Siebert, Lumsdaine, PPoPP 2010).
//   - It is known whether this member sends, and if so to everyone. Then the answer marks those who
//     do, and the others need not be waited for.
//
// Members are the leaders of a column, and ranks of their hosts that report to them. One census is
// of one variable and one stage, two steps of it at a time, as in exchange.h. Owned by the engine's
// owner; a step allocates nothing.
#ifndef PARALLAX_COLLECTIVES_CENSUS_H_
#define PARALLAX_COLLECTIVES_CENSUS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "message/outbox.h"
#include "world/patterns.h"

namespace parallax {

class RoundNames;

struct CensusOptions {
  uint32_t variable = 0;
  uint8_t stage = 0;  // tells the censuses of a variable apart
  uint32_t column = 0;
  const RoundNames* rounds = nullptr;  // as ExchangeOptions has them
  uint32_t marks = 0;                  // members that may be marked, by their number; 0: none
  // Ranks of this host beside its leader: those who join there, and those who are told. Whoever
  // joins knows of it, leader or not.
  std::vector<uint32_t> reporters = {}, listeners = {};
};

class Census {
 public:
  static constexpr uint32_t kNoMark = UINT32_MAX;
  // A report or an answer is never cut.
  static constexpr uint32_t kMarksMax = 8 * Outbox::kControlBytesMax;

  // The references outlive it.
  Census(const Columns& columns, Outbox& outbox, CensusOptions options);

  uint32_t column() const { return options_.column; }
  void open(uint64_t step);
  // This rank, a leader or a reporter, joins, once in a step; `mark` is its number if it sends.
  void join(uint64_t step, uint32_t mark, bool contributed);
  // False: not what that rank may send now.
  [[nodiscard]] bool on_report(uint32_t from, const Section& section);
  [[nodiscard]] bool on_answer(uint32_t from, const Section& section);

  bool answered(uint64_t step) const { return round(step).answered; }
  // Once answered.
  bool marked(uint64_t step, uint32_t mark) const;
  bool contributed(uint64_t step) const { return round(step).contributed; }
  // Whose word keeps this rank from being answered, perhaps for want of another's; empty if it is
  // answered, or if only this rank has not joined.
  std::vector<uint32_t> missing(uint64_t step) const;

 private:
  struct Round {
    bool joined = false;
    bool reported = false;  // to the parent
    bool answered = false;
    bool contributed = false;
    uint32_t reports_left = 0;
    std::vector<uint8_t> reported_by;  // by child
    std::vector<std::byte> marks;
  };

  Round& round(uint64_t step) { return rounds_[step & 1]; }
  const Round& round(uint64_t step) const { return rounds_[step & 1]; }
  bool leads() const { return columns_.is_leader() && columns_.my_column() == options_.column; }
  bool well_formed(const Section& section) const;
  void take(Round& round, const Section& section) const;
  void report_if_complete(uint64_t step);
  void answer(uint64_t step);
  void send(uint32_t to, SectionKind kind, uint64_t step);

  const Columns& columns_;
  Outbox& outbox_;
  const CensusOptions options_;
  bool joins_ = false;              // else this rank is told, and no more
  uint32_t parent_ = kNoRank;       // kNoRank: the root
  std::vector<uint32_t> children_;  // who reports here
  std::vector<uint32_t> told_;      // whom the answer goes on to
  std::array<Round, 2> rounds_;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_CENSUS_H_
