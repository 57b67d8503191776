// SPDX-License-Identifier: Apache-2.0
// PullLeader: takes what the ranks of its host want of its column, asks the owners for what it does
// not have yet, and gives each rank what it wanted as soon as that is here. So an owner has one
// peer per host, a row crosses the wire once per host and step as a rule (LedVariable), and no pull
// waits for what another rank of the host does. A rank that leads no column has one of these too,
// and takes nothing. Part of PullExchange.
//
// Pulls are taken in the order in which they are here whole. One that cannot be asked for before
// what is under way is answered keeps those behind it waiting, so that it is never starved; it
// waits for owners alone. A pull of a step whose predecessor this rank does not know to be decided
// waits for that too, or, early, for all ranks of the host to have ended it: until then they may
// pull for the step before. With staleness it waits for neither, but where rows of another step are
// held, for these to be answered and out of the way.
#ifndef PARALLAX_SERVER_PULL_LEADER_H_
#define PARALLAX_SERVER_PULL_LEADER_H_

#include <cstdint>
#include <vector>

#include "message/outbox.h"
#include "server/pull_source.h"
#include "server/pulled_variable.h"
#include "world/patterns.h"

namespace parallax {

class PullLeader {
 public:
  // All outlive this object.
  // `several_steps`: ranks of the host pull for several steps at a time. `own`: the pull of this
  // rank.
  PullLeader(const Columns& columns, Outbox& outbox, const PulledVariables& variables, bool early,
             bool several_steps, PullSource& own);

  // As PullExchange has them.
  [[nodiscard]] bool end_local(uint32_t from, uint64_t step);
  void decided(uint64_t step);
  void open(uint64_t step);
  void advance() {
    if (several_steps_ && !whole_.empty()) ask_those_whole();
  }
  void add_missing(std::vector<uint32_t>* owners) const;

  // Its memory of rows is, or is no longer, such that owners may place values there, where the
  // transport can (RemoteWrites). Without a call places are not offered.
  void know_places(PulledVariable& variable);
  void forget_places(PulledVariable& variable);

  // What the pull of this rank that has begun wants here.
  void take_own(uint64_t step);
  [[nodiscard]] bool on_pull_local(uint32_t from, const Section& section);
  [[nodiscard]] bool on_early_rows(uint32_t from, const Section& section);
  [[nodiscard]] bool on_values_host(uint32_t from, const Section& section);

 private:
  // The pull of a rank of the host, as far as it is this column's.
  struct Pull {
    enum class Phase : uint8_t { kNone, kComing, kWhole, kAsked };
    Phase phase = Phase::kNone;
    uint64_t number = 0;  // counts the rank's pulls
    uint64_t step = 0;
    uint64_t ended = 0;  // the last step that the rank has ended
    uint32_t asked = 0;  // of its variables: the owners were asked for these
    uint32_t left = 0;   // of its variables: values of these are to come
    std::vector<uint32_t> variables = {};
  };

  [[nodiscard]] bool begin(Pull& pull, uint64_t step) const;
  void end_taking(uint32_t local);
  bool may_ask(uint64_t step) const;
  // Where owners may place values: not with staleness, where an owner may be asked for another step
  // before it knows that what it has placed is read.
  RemoteWrites* remote_writes() const { return several_steps_ ? nullptr : outbox_.remote_writes(); }
  void ask_those_whole();
  [[nodiscard]] bool ask(uint32_t local);
  void ask_owners(PulledVariable& variable, LedVariable::HostList& list);
  void offer_place(PulledVariable& variable, uint32_t owner, const LedVariable::Ask& ask,
                   const Send& asking);
  void answer_if_complete(uint32_t local, PulledVariable& variable);
  void answer(uint32_t local);
  [[nodiscard]] bool give_own(PulledVariable& variable, uint32_t count);
  void answer_rows(PulledVariable& variable, uint32_t local);
  void answer_elements(PulledVariable& variable, uint32_t local);

  const Columns& columns_;
  Outbox& outbox_;
  const PulledVariables& variables_;
  const bool early_;
  const bool several_steps_;
  PullSource& own_;
  uint64_t startable_ = 1;       // the step that ranks may pull for
  uint64_t opened_ = 2;          // the last step that has counters
  std::vector<Pull> pulls_;      // by local rank
  std::vector<uint32_t> whole_;  // local ranks whose pulls wait to be asked for, in order
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_PULL_LEADER_H_
