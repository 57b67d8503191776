// SPDX-License-Identifier: Apache-2.0
// PullOwner: what the leaders of this rank's column ask it for, each for its host, and the answers.
// An answer is as of the step before the pull's applied here, or, with staleness, of one that is so
// many before that; what is asked earlier waits for it.
// What a host asks for is listed until it is answered. The list goes on while any of it is not, up
// to its bound, and begins anew when all is: a leader that keeps to what it has room for
// (asked_rows_max) always finds room here.
//
// Early, of what waits: once all that a step changes here is known, rows that it leaves alone are
// as they will be, whether it is committed or discarded, and are answered (docs/adr/0089). Which
// ones is said first, a bit a row (kEarlyRows), so that answers stay in an order that both ends
// know.
//
// Ranks of this host are told where tables lie that they may read themselves (TableReader), once
// each, and then with each step that is applied that the tables are as the next one reads them.
// Part of PullExchange.
#ifndef PARALLAX_SERVER_PULL_OWNER_H_
#define PARALLAX_SERVER_PULL_OWNER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "aggregate/row_index.h"
#include "message/outbox.h"
#include "server/pulled_variable.h"
#include "world/patterns.h"

namespace parallax {

class PullOwner {
 public:
  // All outlive this object.
  // `early_bytes_min`: so many bytes of rows of a variable and host are worth a message of their
  // own; kNeverEarly: none are.
  static constexpr uint64_t kNeverEarly = UINT64_MAX;
  PullOwner(const Columns& columns, Outbox& outbox, const PulledVariables& variables,
            uint64_t early_bytes_min, uint32_t staleness)
      : columns_(columns),
        outbox_(outbox),
        variables_(variables),
        early_bytes_min_(early_bytes_min),
        staleness_(staleness) {}

  // Makes room for what may wait of so many variables, and of the one that was added.
  void reserve(size_t variables, const PulledVariable& added);
  // As PullExchange has them.
  [[nodiscard]] bool hold();
  void applied(uint64_t step);
  void has_table(const PulledVariable& variable) { untold_.push_back(variable.id); }
  // changed(variable): the rows that `step`, the one after the last that was applied, changes here
  // (const RowIndex*); null: not all of them are known. It is asked of lists alone that were not
  // sifted yet, so that a call costs nothing when all are.
  template <typename Changed>
  void answer_early(uint64_t step, Changed changed) {
    size_t kept = 0;
    for (size_t i = 0; i < unsifted_.size(); ++i) {
      const auto [number, host] = unsifted_[i];
      PulledVariable* const variable = variables_.find(number);
      if (variable == nullptr || !variable->asked[host].unsifted) continue;  // as in applied()
      if (!variable->asked[host].waiting) {
        variable->asked[host].unsifted = false;
        continue;
      }
      const bool may = may_answer_early(*variable, host, step);
      const RowIndex* const rows = may ? changed(number) : nullptr;
      if (rows == nullptr) {
        unsifted_[kept++] = unsifted_[i];
      } else {
        answer_early(*variable, host, *rows);
      }
    }
    unsifted_.resize(kept);
  }
  uint64_t early_rows() const { return early_rows_; }  // so far

  [[nodiscard]] bool on_place(uint32_t from, const Section& section);
  [[nodiscard]] bool on_pull_host(uint32_t from, const Section& section);

 private:
  using Asked = PulledVariable::Asked;

  bool may_answer(uint64_t step) const { return !held_ && applied_ + 1 + staleness_ >= step; }
  [[nodiscard]] bool go_on(const PulledVariable& variable, Asked& asked,
                           const SectionHeader& header);
  [[nodiscard]] bool list_rows(PulledVariable& variable, uint32_t host, const Section& section);
  bool has_early(const PulledVariable& variable, uint32_t host) const;
  bool may_answer_early(const PulledVariable& variable, uint32_t host, uint64_t step) const;
  void answer_early(PulledVariable& variable, uint32_t host, const RowIndex& changed);
  bool sift(PulledVariable& variable, uint32_t host, const RowIndex& changed);
  Send new_answer(const PulledVariable& variable, uint32_t host) const;
  void answer(PulledVariable& variable, uint32_t host);
  void answer_rows(PulledVariable& variable, uint32_t host, Send send, uint32_t count);
  uint32_t leader_of(uint32_t host) const {  // of this rank's column
    return columns_.leader(host, columns_.column_of(columns_.rank()));
  }
  PulledVariable* asked_variable(uint32_t from, const Section& section) const;
  void tell_neighbours(const SectionHeader& header, std::span<const std::byte> payload);
  void tell_of_tables();
  void answer_from(DeviceStore& store, PulledVariable& variable, uint32_t host, Send send);

  const Columns& columns_;
  Outbox& outbox_;
  const PulledVariables& variables_;
  const uint64_t early_bytes_min_;
  const uint32_t staleness_;
  uint64_t early_rows_ = 0;
  std::vector<uint32_t> late_;  // while a list is parted
  uint64_t applied_ = 0;
  bool held_ = false;                                                // since hold()
  using VariableHosts = std::vector<std::pair<uint32_t, uint32_t>>;  // (variable, host)
  VariableHosts waiting_;                                            // held back
  VariableHosts unsifted_;        // of those: early rows are to be looked for
  VariableHosts answering_;       // with staleness: answers may not all be packed
  std::vector<uint32_t> untold_;  // variables of whose tables here nobody knows yet
  bool lets_read_ = false;        // some table, at some time
  uint64_t told_ = 0;             // the last step that they were said to be current for
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULL_OWNER_H_
