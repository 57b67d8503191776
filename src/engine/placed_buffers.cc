// SPDX-License-Identifier: Apache-2.0
// Prints of buffers. See placed_buffers.h.
#include "engine/placed_buffers.h"

#include <algorithm>

namespace parallax {

namespace {

void append_number(std::string* out, uint64_t value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// FNV-1a.
uint64_t print_of(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  return std::max(hash, PlaceTerms::kFirstPrint);
}

}  // namespace

size_t PlacedBuffers::index_of(const DeviceBuffer& memory) const {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& each) {
    return each.memory.range.first == memory.range.first;
  });
  return static_cast<size_t>(found - buffers_.begin());
}

// Where one end lies is noted with the other's buffer, too: which two are used together is the same
// on ranks that agree on one of them.
PlacedBuffers::PlacedBuffers(std::span<const Variable* const> variables,
                             std::span<const Variable* const> earlier) {
  for (uint64_t number = 0; number < variables.size(); ++number) {
    const Place& place = variables[number]->place;
    if (!place.given()) continue;
    size_t at[Place::kEnds];
    for (size_t end = 0; end < Place::kEnds; ++end) {
      at[end] = index_of(place.buffers[end]);
      if (at[end] < buffers_.size()) continue;
      buffers_.push_back({.memory = place.buffers[end], .contents = {}});
      append_number(&buffers_.back().contents, place.buffers[end].range.bytes);
    }
    for (size_t end = 0; end < Place::kEnds; ++end) {
      std::string* const contents = &buffers_[at[end]].contents;
      const uintptr_t first = place.buffers[end].range.first;
      for (const uint64_t value :
           {number, uint64_t{end}, place.range(end).first - first, uint64_t{at[1 - end]}}) {
        append_number(contents, value);
      }
    }
  }
  for (const Variable* const variable : earlier) {
    if (!variable->place.given()) continue;
    for (const DeviceBuffer& memory : variable->place.buffers) {
      const size_t at = index_of(memory);
      if (at < buffers_.size()) buffers_[at].earlier = true;
    }
  }
}

PlaceTerms PlacedBuffers::terms(uint32_t rank, uint32_t device) const {
  PlaceTerms terms;
  terms.rank = rank;
  terms.more = buffers_.size() > PlaceTerms::kWindowsMax;
  for (const Buffer& each : buffers_) {
    if (terms.windows.size() == PlaceTerms::kWindowsMax) break;
    const uint64_t print = each.memory.device != device ? PlaceTerms::kOtherDevice
                           : !each.memory.symmetric     ? PlaceTerms::kPlain
                           : each.earlier               ? PlaceTerms::kEarlier
                                                        : print_of(each.contents);
    terms.windows.push_back({.print = print, .rank = rank});
  }
  return terms;
}

std::vector<ByteRange> PlacedBuffers::windows(const PlaceTerms& agreed) const {
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (agreed.agreed(i)) ranges.push_back(buffers_[i].memory.range);
  }
  return ranges;
}

size_t PlacedBuffers::ends_in_windows(const Variable& variable, const PlaceTerms& agreed) const {
  size_t ends = 0;
  for (const DeviceBuffer& each : variable.place.buffers) {
    ends += variable.place.given() && agreed.agreed(index_of(each)) ? 1 : 0;
  }
  return ends;
}

}  // namespace parallax
