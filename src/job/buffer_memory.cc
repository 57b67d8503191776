// SPDX-License-Identifier: Apache-2.0
// The system calls behind a buffer. See buffer_memory.h.
#include "job/buffer_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/signal_block.h"
#include "topology/pu_list.h"
#include "topology/topology.h"

namespace parallax {

namespace {

// More than any kernel counts (MAX_NUMNODES).
constexpr uint32_t kNumaNodesMax = 1024;

Status refused(uint64_t bytes, const char* call, const char* remedy) {
  return limit("buffer_alloc: no memory for " + std::to_string(bytes) + " bytes: " + call + ": " +
               std::strerror(errno) + "; " + remedy)
      .about_field("bytes");
}

// After our own mapping, which writes: whoever gets the descriptor afterwards can only read.
bool seal(const UniqueFd& fd) {
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  constexpr int kFutureWrite = 0x10;  // F_SEAL_FUTURE_WRITE, of which an older header knows nothing
  return ::fcntl(fd.get(), F_ADD_SEALS, kSize | kFutureWrite) == 0 ||
         ::fcntl(fd.get(), F_ADD_SEALS, kSize) == 0;
}

Status check_options(const parallax_buffer_options_t& options) {
  if (options.device != 0) {
    return invalid(
               "buffer_alloc: device is given, and memory is PARALLAX_MEMORY_HOST, which has none; "
               "set memory to PARALLAX_MEMORY_CUDA, or leave it zero")
        .about_field("device");
  }
  if (options.huge_pages > 1) {
    return invalid("buffer_alloc: huge_pages is " + std::to_string(options.huge_pages) +
                   "; it must be 0 or 1")
        .about_field("huge_pages");
  }
  if (options.numa_node == 0) return {};
  const uint32_t node = options.numa_node - 1;
  const std::vector<uint32_t> nodes = online_numa_nodes();
  const bool there = nodes.empty() ? node < kNumaNodesMax
                                   : std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  if (there) return {};
  return invalid("buffer_alloc: numa_node is PARALLAX_NUMA_NODE(" + std::to_string(node) +
                 "); this machine has " +
                 (nodes.empty() ? "fewer" : "nodes " + pu_list_text(nodes)) +
                 "; 0 is where this rank's own memory lies")
      .about_field("numa_node");
}

}  // namespace

BufferMemory::BufferMemory(BufferMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

BufferMemory& BufferMemory::operator=(BufferMemory&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  fd_ = std::move(other.fd_);
  base_ = std::exchange(other.base_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  return *this;
}

Status BufferMemory::make(uint64_t bytes, const parallax_buffer_options_t& options,
                          Binding& binding, BufferMemory* memory) {
  if (bytes == 0) return invalid("buffer_alloc: bytes is 0").about_field("bytes");
  PARALLAX_RETURN_IF_ERROR(check_options(options));
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes > INT64_MAX - page) {
    errno = ENOMEM;
    return refused(bytes, "as one file", "no machine has as much");
  }
  BufferMemory made;
  made.bytes_ = bytes;
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
      ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd_.get(), 0);
  if (base == MAP_FAILED) return refused(bytes, "mmap", "raise ulimit -v, or ask for less");
  made.base_ = base;
  made.mapped_bytes_ = mapped_bytes;
  if (!seal(made.fd_)) {
    return refused(bytes, "sealing", "allow memfd_create and its seals (seccomp)");
  }
  if (options.numa_node == 0) {
    binding.place_memory(base, mapped_bytes);
  } else {
    Binding({}, {options.numa_node - 1}).place_memory(base, mapped_bytes);
  }
  // As far as the kernel gives them to shared memory: without, pages are as everywhere.
  if (options.huge_pages != 0) {
    [[maybe_unused]] const int advised = ::madvise(base, mapped_bytes, MADV_HUGEPAGE);
  }
  *memory = std::move(made);
  return {};
}

uint64_t BufferMemory::touched_bytes() const {
  constexpr uint64_t kBlockBytes = 512;  // what st_blocks counts, whatever the pages
  struct stat status;
  if (::fstat(fd_.get(), &status) != 0) return 0;
  return std::min<uint64_t>(static_cast<uint64_t>(status.st_blocks) * kBlockBytes, bytes_);
}

void BufferMemory::unmap() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
  base_ = nullptr;
}

}  // namespace parallax
