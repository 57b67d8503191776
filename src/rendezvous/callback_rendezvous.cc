// SPDX-License-Identifier: Apache-2.0
// CallbackRendezvous: see the header. What comes back is input: rank, round and length are checked.
#include "rendezvous/callback_rendezvous.h"

#include <cstring>

#include "base/check.h"
#include "transport/endpoint.h"

namespace parallax {

namespace {

constexpr uint32_t kCellMagic = 0x4c45434c;

// Little-endian hosts only, as all of the wire format is.
struct CellHead {
  uint32_t magic;
  uint32_t rank;
  uint32_t round;
  uint32_t bytes;
};
constexpr size_t kCellBytes = sizeof(CellHead) + kEndpointBytesMax;

}  // namespace

Status CallbackRendezvous::allgather(std::span<const std::byte> mine, int64_t /*deadline_ns*/,
                                     std::vector<std::string>* all) {
  PARALLAX_CHECK(mine.size() <= kEndpointBytesMax);
  const uint32_t round = round_++;
  std::string cell(kCellBytes, '\0');
  const CellHead head{.magic = kCellMagic,
                      .rank = options_.rank,
                      .round = round,
                      .bytes = static_cast<uint32_t>(mine.size())};
  std::memcpy(cell.data(), &head, sizeof head);
  if (!mine.empty()) std::memcpy(cell.data() + sizeof head, mine.data(), mine.size());
  std::string cells(kCellBytes * options_.world, '\0');
  const int failure = allgather_(context_, cell.data(), cells.data(), kCellBytes);
  if (failure != 0) {
    return io_error("options.allgather returned " + std::to_string(failure) + " in round " +
                    std::to_string(round));
  }
  all->resize(options_.world);
  for (uint32_t rank = 0; rank < options_.world; ++rank) {
    const char* at = cells.data() + rank * kCellBytes;
    CellHead got;
    std::memcpy(&got, at, sizeof got);
    if (got.magic != kCellMagic || got.rank != rank || got.round != round ||
        got.bytes > kEndpointBytesMax) {
      return io_error("options.allgather put something else where rank " + std::to_string(rank) +
                      "'s bytes of round " + std::to_string(round) +
                      " belong: it must fill recv with every rank's bytes, rank by rank");
    }
    (*all)[rank].assign(at + sizeof got, got.bytes);
  }
  return {};
}

}  // namespace parallax
