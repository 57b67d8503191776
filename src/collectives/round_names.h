// SPDX-License-Identifier: Apache-2.0
// RoundNames: what the rounds of an exchange that goes in chunks (chunked_rows.h) are called in
// messages. Such an exchange runs another through several rounds for a step, each of which is a
// step to it. Whoever takes a message looks at its step before the exchange does, so there it is
// the step of the job, and which chunk of it is in the bits of `part` that censuses leave: as many
// as tell apart the rounds that may be open at a time, which are neighbours.
//
// Set by the exchange that has the rounds, before anything is sent in one. Engine's owner only.
#ifndef PARALLAX_COLLECTIVES_ROUND_NAMES_H_
#define PARALLAX_COLLECTIVES_ROUND_NAMES_H_

#include <array>
#include <cstdint>

#include "message/wire.h"

namespace parallax {

class RoundNames {
 public:
  // Below them is the stage of a census.
  static constexpr uint8_t kShift = 1;
  static constexpr uint8_t kStageMask = (1u << kShift) - 1;

  static constexpr uint8_t bits_of(uint32_t chunk) { return static_cast<uint8_t>(chunk << kShift); }
  // A part without its chunk, and the chunk's bits alone.
  static constexpr uint8_t stage_of(uint8_t part) { return part & kStageMask; }
  static constexpr uint8_t chunk_bits_of(uint8_t part) {
    return part & static_cast<uint8_t>(~kStageMask);
  }

  void set(uint64_t round, uint64_t step, uint32_t chunk) {
    names_[round & 1] = {.round = round, .step = step, .bits = bits_of(chunk)};
  }
  // By a peer. False: it has another name.
  [[nodiscard]] bool hear(uint64_t round, uint64_t step, uint32_t chunk) {
    const Name& name = names_[round & 1];
    if (name.round == round && (name.step != step || name.bits != bits_of(chunk))) return false;
    set(round, step, chunk);
    return true;
  }
  void name(SectionHeader* header) const {
    const Name& name = names_[header->step & 1];
    header->step = name.step;
    header->part |= name.bits;
  }

 private:
  struct Name {
    uint64_t round = UINT64_MAX;  // none yet
    uint64_t step = 0;
    uint8_t bits = 0;
  };
  std::array<Name, 2> names_;  // by round: two are open at a time
};

// Of a header whose step is a round.
inline void name_round(const RoundNames* rounds, SectionHeader* header) {
  if (rounds != nullptr) rounds->name(header);
}

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_ROUND_NAMES_H_
