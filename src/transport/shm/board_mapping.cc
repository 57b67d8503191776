// SPDX-License-Identifier: Apache-2.0
// What is checked before a board is mapped. See board_mapping.h.
#include "transport/shm/board_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace parallax {

Status BoardMapping::attach(const UniqueFd& fd, BoardMapping* mapping) {
  struct stat status;
  if (::fstat(fd.get(), &status) != 0 || status.st_size != static_cast<off_t>(kBoardBytes)) {
    return io_error("a peer's board has not the size that boards have");
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return io_error("a peer's board is not sealed");
  void* const base = ::mmap(nullptr, kBoardBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) {
    return limit(std::string("mmap for a peer's board failed: ") + std::strerror(errno));
  }
  mapping->unmap();
  mapping->base_ = base;
  return {};
}

void BoardMapping::unmap() {
  if (base_ != nullptr) ::munmap(base_, kBoardBytes);
  base_ = nullptr;
}

}  // namespace parallax
