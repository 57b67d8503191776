// SPDX-License-Identifier: Apache-2.0
// PullSource: the pull of this rank itself, one at a time. It tells those leaders of its host which
// distinct rows of their columns it wants, and gives out to the caller's buffers what they answer,
// each the next piece of its own answer. Several slices of a variable are asked for as one: a row
// that more than one of them names travels once. All is here when as much came as was wanted: what
// it wants nothing of is not in it. Variables whose tables can all be read here it leaves to a
// TableReader, and of others the rows that are in tables of this host. Of slices on the device of
// its own table only what others own is asked for, and comes to host memory; then the table writes
// the slices. The caller's ids and buffers are borrowed from start() to finish(). Part of
// PullExchange.
#ifndef PARALLAX_SERVER_PULL_SOURCE_H_
#define PARALLAX_SERVER_PULL_SOURCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/row_copies.h"
#include "message/outbox.h"
#include "server/pulled_variable.h"
#include "server/table_reader.h"
#include "world/patterns.h"

namespace parallax {

class PullSource final : private TableReader::User {
 public:
  // All outlive this object.
  PullSource(const Columns& columns, Outbox& outbox, const PulledVariables& variables,
             TableReader::Use tables);

  // As PullExchange has them.
  void start(uint64_t step, std::span<const PullSlice> slices);
  bool finished() const { return active_ && left_ == 0 && reader_.finished(); }
  void finish();
  void give_to_tables(uint32_t* left) const;
  PullSlice start_alone(const PullSlice& slice);
  void give_alone(uint32_t* left) const;
  bool active() const { return active_; }
  // Of the pull under way.
  std::span<const uint32_t> variables() const { return active_variables_; }
  // That owe this rank values.
  std::vector<uint32_t> missing_leaders() const;
  TableReader& reader() { return reader_; }
  const TableReader& reader() const { return reader_; }

  [[nodiscard]] bool on_values_local(uint32_t from, const Section& section);
  // The same of this rank itself, which leads its column: of a variable of the step's pull the
  // first rows that it wants there, or all, in the order in which it asked, each where `values` has
  // it by slot, of that type; those that were given before are passed over. False: it is not what
  // is due, or of another type. Nobody is told that the pull may be over: it is asked in every
  // pass, and this is called in front of that, or by a message.
  [[nodiscard]] bool take_held(PulledVariable& variable, uint64_t step, uint32_t dtype,
                               const std::byte* values, std::span<const uint32_t> slots);

 private:
  void add(const PullSlice& slice);
  static PullSlice others_of(PulledVariable& variable, const PullSlice& slice, uint32_t before);
  static void give_to_table(const PulledVariable& variable, const PulledSlice& of, uint32_t* left);
  void read_all(PulledVariable& variable);
  void coalesce(PulledVariable& variable);
  void group(PulledVariable& variable);
  void send_local(PulledVariable& variable);
  void on_hosts_rows(PulledVariable& variable) override { advance_front(variable); }
  void advance_front(PulledVariable& variable);
  void fill_in(const PulledVariable& variable);
  void fill_rows(const PulledVariable& variable, const PulledSlice& of, uint32_t first,
                 uint32_t end) const;
  void copy_elements(const PulledVariable& variable);
  const std::byte* row_at(uint32_t row, const RowCopies& copies) const;
  [[nodiscard]] bool take_rows(PulledVariable& variable, uint32_t column, const Section& section);
  template <typename RowAt>
  void put_rows(PulledVariable& variable, uint32_t column, const Range& rows, RowAt row_at);
  [[nodiscard]] bool take_elements(PulledVariable& variable, uint32_t column,
                                   const Section& section);

  const Columns& columns_;
  Outbox& outbox_;
  const PulledVariables& variables_;
  TableReader reader_;
  bool active_ = false;
  uint64_t active_step_ = 0;
  uint64_t left_ = 0;           // rows and elements to come
  std::vector<uint8_t> asked_;  // by column: its leader was asked for something
  std::vector<PulledSlice> slices_;
  std::vector<uint32_t> active_variables_;
  PulledSlice alone_;                     // start_alone()'s
  std::vector<const PulledSlice*> tied_;  // while a variable is filled in: its slices so far
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULL_SOURCE_H_
