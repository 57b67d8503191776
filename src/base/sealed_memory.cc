// SPDX-License-Identifier: Apache-2.0
// The system calls behind sealed pages. See sealed_memory.h.
#include "base/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

#include "base/huge_pages.h"
#include "base/signal_block.h"

namespace parallax {

namespace {

Status refused(uint64_t bytes, const char* call, const char* remedy) {
  return limit("no memory for " + std::to_string(bytes) + " bytes: " + call + ": " +
               std::strerror(errno) + "; " + remedy);
}

// After our own mapping, which writes. Of kOwner, whoever gets the descriptor afterwards can only
// read.
bool seal(const UniqueFd& fd, SealedMemory::Writers writers) {
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  constexpr int kFutureWrite = 0x10;  // F_SEAL_FUTURE_WRITE, of which an older header knows nothing
  const bool owner = writers == SealedMemory::Writers::kOwner;
  return (owner && ::fcntl(fd.get(), F_ADD_SEALS, kSize | kFutureWrite) == 0) ||
         ::fcntl(fd.get(), F_ADD_SEALS, kSize) == 0;
}

}  // namespace

uint64_t bytes_of_page() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

SealedMemory::SealedMemory(SealedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      base_(std::exchange(other.base_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

SealedMemory& SealedMemory::operator=(SealedMemory&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  fd_ = std::move(other.fd_);
  base_ = std::exchange(other.base_, nullptr);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  return *this;
}

Status SealedMemory::make(uint64_t bytes, SealedMemory* memory, Writers writers) {
  const uint64_t page = bytes_of_page();
  if (bytes > INT64_MAX - page) {
    errno = ENOMEM;
    return refused(bytes, "as one file", "no machine has as much");
  }
  SealedMemory made;
  const auto mapped_bytes = static_cast<size_t>((bytes + page - 1) / page * page);
  made.fd_.reset(::memfd_create("parallax-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.fd_.valid()) {
    return refused(bytes, "memfd_create", "each takes a descriptor: raise ulimit -n, or free some");
  }
  {
    const SignalBlock too_large(SIGXFSZ);  // ulimit -f: an error, not the end of the process
    if (::ftruncate(made.fd_.get(), static_cast<off_t>(mapped_bytes)) != 0) {
      return refused(bytes, "ftruncate", "raise ulimit -f, or ask for less");
    }
  }
  void* const base =
      map_for_huge_pages(mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd_.get());
  if (base == MAP_FAILED) return refused(bytes, "mmap", "raise ulimit -v, or ask for less");
  made.base_ = base;
  made.mapped_bytes_ = mapped_bytes;
  if (!seal(made.fd_, writers)) {
    return refused(bytes, "sealing", "allow memfd_create and its seals (seccomp)");
  }
  *memory = std::move(made);
  return {};
}

void SealedMemory::unmap() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
  base_ = nullptr;
}

}  // namespace parallax
