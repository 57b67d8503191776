// SPDX-License-Identifier: Apache-2.0
// BoardMapping: another rank's board (transport/boards.h), mapped to be read. Its descriptor is
// that rank's word: size and seals are checked, since memory that shrinks under its reader ends the
// process (SIGBUS). The descriptor is not kept. Movable; not thread-safe; nothing blocks.
#ifndef PARALLAX_TRANSPORT_SHM_BOARD_MAPPING_H_
#define PARALLAX_TRANSPORT_SHM_BOARD_MAPPING_H_

#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/boards.h"

namespace parallax {

class BoardMapping {
 public:
  BoardMapping() = default;
  ~BoardMapping() { unmap(); }
  BoardMapping(BoardMapping&& other) noexcept : base_(std::exchange(other.base_, nullptr)) {}
  BoardMapping& operator=(BoardMapping&& other) noexcept {
    if (this == &other) return *this;
    unmap();
    base_ = std::exchange(other.base_, nullptr);
    return *this;
  }

  // IO: it is not memory as said. LIMIT: the kernel's.
  static Status attach(const UniqueFd& fd, BoardMapping* mapping);

  const BoardHead* head() const { return static_cast<const BoardHead*>(base_); }
  const std::byte* bytes() const { return static_cast<const std::byte*>(base_) + kBoardHeadBytes; }

 private:
  void unmap();

  void* base_ = nullptr;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SHM_BOARD_MAPPING_H_
