// SPDX-License-Identifier: Apache-2.0
// What is checked before it is mapped. See peer_buffers.h.
#include "transport/shm/peer_buffers.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/huge_pages.h"

namespace parallax {

namespace {

// Using a mapping ends the process by SIGBUS where the file has become shorter, or has no pages
// to give. So: a size that is what was said, a seal that it stays so, and the kernel's own tmpfs,
// on which memfd lies: huge pages (hugetlbfs) can be sealed too, and run out. *writable: no seal
// says that its owner alone writes there.
Status check_memory(int fd, uint64_t bytes, bool* writable) {
  constexpr int kFutureWrite = 0x10;  // F_SEAL_FUTURE_WRITE, of which an older header knows nothing
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  struct stat status;
  if (bytes == 0 || bytes % page != 0 || ::fstat(fd, &status) != 0 ||
      static_cast<uint64_t>(status.st_size) != bytes) {
    return io_error("a peer's buffer has not the size it said");
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return io_error("a peer's buffer is not sealed");
  struct statfs system;
  if (::fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return io_error("a peer's buffer is not of ordinary shared memory");
  }
  *writable = (seals & (F_SEAL_WRITE | kFutureWrite)) == 0;
  return {};
}

}  // namespace

Status PeerBuffers::map(uint64_t buffer, const UniqueFd& fd, uint64_t bytes) {
  if (mapped_.count(buffer) != 0) return invalid("a peer's buffer has the number of another");
  if (mapped_.size() >= limits_.buffers || bytes > limits_.bytes - bytes_) {
    return limit("a peer shares more buffers than are mapped of one");
  }
  bool writable = false;
  PARALLAX_RETURN_IF_ERROR(check_memory(fd.get(), bytes, &writable));
  const auto entry = mapped_.emplace(buffer, Mapping{}).first;  // may throw, and is to be first
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const base = map_for_huge_pages(bytes, access, MAP_SHARED | MAP_NORESERVE, fd.get());
  if (base == MAP_FAILED) {
    mapped_.erase(entry);
    return limit(std::string("mmap for a peer's buffer failed: ") + std::strerror(errno));
  }
  // A child of this process would hold the peer's memory for as long as it lives.
  [[maybe_unused]] const int apart = ::madvise(base, bytes, MADV_DONTFORK);
  [[maybe_unused]] const int undumped = ::madvise(base, bytes, MADV_DONTDUMP);
  entry->second = {base, bytes, writable};
  bytes_ += bytes;
  return {};
}

bool PeerBuffers::unmap(uint64_t buffer) {
  const auto found = mapped_.find(buffer);
  if (found == mapped_.end()) return false;
  ::munmap(found->second.base, found->second.bytes);
  bytes_ -= found->second.bytes;
  mapped_.erase(found);
  return true;
}

void PeerBuffers::clear() {
  for (const auto& [buffer, mapping] : mapped_) ::munmap(mapping.base, mapping.bytes);
  mapped_.clear();
  bytes_ = 0;
}

const PeerBuffers::Mapping* PeerBuffers::mapping_of(const BufferPlace& place,
                                                    uint64_t bytes) const {
  const auto found = mapped_.find(place.buffer);
  if (found == mapped_.end()) return nullptr;
  const Mapping& mapping = found->second;
  // Both are a peer's word: no sum of them is taken.
  if (place.offset > mapping.bytes || bytes > mapping.bytes - place.offset) return nullptr;
  return &mapping;
}

const std::byte* PeerBuffers::find(const BufferPlace& place, uint64_t bytes) const {
  const Mapping* const mapping = mapping_of(place, bytes);
  return mapping == nullptr ? nullptr : static_cast<const std::byte*>(mapping->base) + place.offset;
}

std::byte* PeerBuffers::find_writable(const BufferPlace& place, uint64_t bytes) const {
  const Mapping* const mapping = mapping_of(place, bytes);
  if (mapping == nullptr || !mapping->writable) return nullptr;
  return static_cast<std::byte*>(mapping->base) + place.offset;
}

}  // namespace parallax
