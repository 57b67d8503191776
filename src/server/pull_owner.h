// SPDX-License-Identifier: Apache-2.0
// PullOwner: what the leaders of this rank's column ask it for, each for its host, and the answers.
// An answer is as of the step before the pull's applied here; what is asked earlier waits for that.
// What a host asks for is listed until it is answered. The list goes on while any of it is not, up
// to its bound, and begins anew when all is: a leader that keeps to what it has room for
// (asked_rows_max) always finds room here.
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

#include "message/outbox.h"
#include "server/pulled_variable.h"
#include "world/patterns.h"

namespace parallax {

class PullOwner {
 public:
  // All outlive this object.
  PullOwner(const Columns& columns, Outbox& outbox, const PulledVariables& variables)
      : columns_(columns), outbox_(outbox), variables_(variables) {}

  // Makes room for what may wait of so many variables.
  void reserve(size_t variables) {
    // At most one list of a host and variable waits.
    waiting_.reserve(variables * columns_.host_count());
  }
  // As PullExchange has them.
  void applied(uint64_t step);
  void has_table(const PulledVariable& variable) { untold_.push_back(variable.id); }

  [[nodiscard]] bool on_place(uint32_t from, const Section& section);
  [[nodiscard]] bool on_pull_host(uint32_t from, const Section& section);

 private:
  using Asked = PulledVariable::Asked;

  [[nodiscard]] bool go_on(const PulledVariable& variable, Asked& asked,
                           const SectionHeader& header);
  [[nodiscard]] bool list_rows(PulledVariable& variable, uint32_t host, const Section& section);
  void answer(PulledVariable& variable, uint32_t host);
  void answer_rows(PulledVariable& variable, uint32_t host, Send send);
  PulledVariable* asked_variable(uint32_t from, const Section& section) const;
  void tell_neighbours(const SectionHeader& header, std::span<const std::byte> payload);
  void tell_of_tables();
  void answer_from(DeviceStore& store, PulledVariable& variable, uint32_t host, Send send);

  const Columns& columns_;
  Outbox& outbox_;
  const PulledVariables& variables_;
  uint64_t applied_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> waiting_;  // (variable, host) held back
  std::vector<uint32_t> untold_;  // variables of whose tables here nobody knows yet
  bool lets_read_ = false;        // some table, at some time
  uint64_t told_ = 0;             // the last step that they were said to be current for
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULL_OWNER_H_
