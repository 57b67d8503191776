// SPDX-License-Identifier: Apache-2.0
// The system calls behind a buffer. See buffer_memory.h.
#include "job/buffer_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "topology/pu_list.h"
#include "topology/topology.h"

namespace parallax {

namespace {

// More than any kernel counts (MAX_NUMNODES).
constexpr uint32_t kNumaNodesMax = 1024;

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

Status BufferMemory::make(uint64_t bytes, const parallax_buffer_options_t& options,
                          Binding& binding, BufferMemory* memory) {
  if (bytes == 0) return invalid("buffer_alloc: bytes is 0").about_field("bytes");
  PARALLAX_RETURN_IF_ERROR(check_options(options));
  BufferMemory made;
  made.bytes_ = bytes;
  const Status pages = SealedMemory::make(bytes, &made.pages_, SealedMemory::Writers::kAll);
  if (!pages.ok()) return pages.prefixed("buffer_alloc: ").about_field("bytes");
  void* const base = made.base();
  const size_t mapped_bytes = made.pages_.mapped_bytes();
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
  if (::fstat(pages_.fd(), &status) != 0) return 0;
  return std::min<uint64_t>(static_cast<uint64_t>(status.st_blocks) * kBlockBytes, bytes_);
}

}  // namespace parallax
