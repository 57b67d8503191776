// SPDX-License-Identifier: Apache-2.0
// InitialStream: values of PARALLAX_INIT_BROADCAST on their way from rank 0 to the others, within a
// commit, once the ranks agree on the variables. They go number by number, of fused tables those of
// one behind those of another, and piece by piece through Broadcast: every rank holds one piece
// beside its tables, and takes of each what lies here. The caller's buffers are read while a piece
// is copied and never between calls of advance(). Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_INITIAL_STREAM_H_
#define PARALLAX_ENGINE_INITIAL_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/broadcast.h"
#include "group/group.h"
#include "variable/registry.h"

namespace parallax {

class InitialStream {
 public:
  static constexpr uint64_t kPieceBytes = 1 << 20;

  // All of them outlive this; nobody else broadcasts between the first advance() and the one that
  // says that all is here.
  InitialStream(const Registry& registry, Group& group, Broadcast& broadcast)
      : registry_(registry), group_(group), broadcast_(broadcast) {}

  // Whether variables of this commit come this way.
  bool needed() const;
  // Moves on what can be moved. True once all is here and was passed on.
  [[nodiscard]] bool advance();

 private:
  void begin();
  const Variable& variable() const { return *registry_.numbered()[coming_[current_]]; }
  // Elements of the piece under way.
  uint64_t piece_elements() const;
  void send_piece();

  const Registry& registry_;
  Group& group_;
  Broadcast& broadcast_;
  std::vector<uint32_t> coming_;  // by number
  size_t current_ = 0;            // of those
  uint64_t element_ = 0;          // of it, where the piece begins
  std::vector<std::byte> piece_;
  bool begun_ = false;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_INITIAL_STREAM_H_
