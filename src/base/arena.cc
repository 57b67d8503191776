// SPDX-License-Identifier: Apache-2.0
// The arena's reservation: anonymous memory without commitment. In a Binding::Scope of the thread
// that reserves, its pages prefer that binding's NUMA nodes.
#include "base/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/binding.h"
#include "base/check.h"
#include "base/huge_pages.h"

namespace parallax {

Arena::~Arena() {
  if (heap_ != nullptr) {
    std::free(heap_);
  } else if (base_ != nullptr && sealed() == nullptr && other_ == nullptr) {
    munmap(base_, reserved_bytes_);
  }
}

Status Arena::reserve(size_t bytes, bool huge) {
  PARALLAX_CHECK(base_ == nullptr);
  bytes = std::max(bytes, kArenaAlignmentBytes);
  if (bytes <= kHeapBytesMax) return reserve_of_heap(bytes);
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const base = huge ? map_for_huge_pages(bytes, kAccess, kFlags, -1)
                          : mmap(nullptr, bytes, kAccess, kFlags, -1, 0);
  if (base == MAP_FAILED) {
    return limit("cannot reserve " + std::to_string(bytes) +
                 " bytes of address space: " + std::strerror(errno));
  }
  Binding::place_reserved(base, bytes);
  huge_ = huge;
  base_ = static_cast<std::byte*>(base);
  reserved_bytes_ = bytes;
  used_bytes_ = 0;
  return {};
}

Status Arena::reserve_sealed(size_t bytes, SealedMemory::Writers writers) {
  PARALLAX_CHECK(base_ == nullptr);
  PARALLAX_RETURN_IF_ERROR(
      SealedMemory::make(std::max(bytes, kArenaAlignmentBytes), &sealed_, writers));
  Binding::place_reserved(sealed_.base(), sealed_.mapped_bytes());
  huge_ = true;
  base_ = static_cast<std::byte*>(sealed_.base());
  reserved_bytes_ = bytes;
  used_bytes_ = 0;
  return {};
}

void Arena::reserve_in(Arena& other, size_t bytes) {
  PARALLAX_CHECK(base_ == nullptr);
  bytes = bytes_for<std::byte>(std::max<size_t>(bytes, 1));
  base_ = other.take<std::byte>(bytes).data();
  other_ = &other;
  reserved_bytes_ = bytes;
  used_bytes_ = 0;
}

Status Arena::reserve_of_heap(size_t bytes) {
  heap_ = std::calloc(1, bytes + kArenaAlignmentBytes);
  if (heap_ == nullptr) {
    return limit("cannot reserve " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
  }
  const auto start = reinterpret_cast<uintptr_t>(heap_);
  base_ = static_cast<std::byte*>(heap_) + (kArenaAlignmentBytes - start % kArenaAlignmentBytes);
  reserved_bytes_ = bytes;
  used_bytes_ = 0;
  return {};
}

void Arena::will_be_written(std::span<const std::byte> bytes) {
  if (other_ != nullptr) return other_->will_be_written(bytes);
  if (!huge_) return;
  const uint64_t mapped_bytes = sealed() == nullptr ? reserved_bytes_ : sealed_.mapped_bytes();
  huge_ = have_huge_pages(ByteRange::at(bytes.data(), bytes.size()),
                          ByteRange::at(base_, mapped_bytes), &had_);
}

size_t Arena::touched_bytes() const {
  if (heap_ != nullptr || other_ != nullptr)
    return reserved_bytes_;  // it shares its pages with others
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  constexpr size_t kPagesAtOnce = 4096;
  std::array<unsigned char, kPagesAtOnce> there;
  size_t touched = 0;
  for (size_t at = 0; at < reserved_bytes_; at += kPagesAtOnce * page) {
    const size_t bytes = std::min(kPagesAtOnce * page, reserved_bytes_ - at);
    if (mincore(base_ + at, bytes, there.data()) != 0) return 0;
    const size_t pages = (bytes + page - 1) / page;
    touched += page * static_cast<size_t>(std::count_if(
                          there.begin(), there.begin() + static_cast<ptrdiff_t>(pages),
                          [](unsigned char each) { return (each & 1) != 0; }));
  }
  return std::min(touched, reserved_bytes_);
}

void* Arena::take_bytes(size_t bytes) {
  if (base_ == nullptr) {  // measuring
    used_bytes_ += bytes;
    return nullptr;
  }
  PARALLAX_CHECK(bytes <= reserved_bytes_ - used_bytes_);
  void* taken = base_ + used_bytes_;
  used_bytes_ += bytes;
  return taken;
}

}  // namespace parallax
