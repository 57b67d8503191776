// SPDX-License-Identifier: Apache-2.0
// What may be wrong with a place, and with slices of it. See place.h.
#include "variable/place.h"

#include <cinttypes>
#include <cstdio>

#include "base/number.h"

namespace parallax {

namespace {

constexpr const char* kFields[Place::kEnds] = {"place_values", "place_into"};

std::string shown(const void* address) {
  std::array<char, 24> text;
  std::snprintf(text.data(), text.size(), "0x%" PRIxPTR, reinterpret_cast<uintptr_t>(address));
  return text.data();
}

}  // namespace

Status check_place(const parallax_variable_t& in, const std::string& name, Place* place) {
  *place = {};
  if (in.place_values == nullptr) {
    if (in.place_into == nullptr) return {};
    return invalid(name + ": place_into is given, and place_values is NULL; give both, or neither")
        .about_field("place_into");
  }
  const char* why = nullptr;
  if (in.memory == PARALLAX_MEMORY_HOST) {
    why = "its memory is PARALLAX_MEMORY_HOST, of which no windows are made";
  } else if (in.rule != PARALLAX_RULE_NONE) {
    why = "it has an update rule, and such gradients are summed by the host";
  } else if (in.rows_max > 0) {
    why = "it has row ids, and rows are summed by the host";
  }
  if (why != nullptr) {
    return unsupported(name + ": place_values is given, and " + why + "; leave it NULL")
        .about_field("place_values");
  }
  place->ends = {static_cast<std::byte*>(in.place_values), static_cast<std::byte*>(in.place_into)};
  if (in.place_into == nullptr) place->ends[1] = place->ends[0];
  const uint32_t element_bytes = bytes_of_dtype(in.dtype);
  place->bytes = in.rows * in.row_elements * element_bytes;
  for (size_t end = 0; end < Place::kEnds; ++end) {
    const auto address = reinterpret_cast<uintptr_t>(place->ends[end]);
    if (address % element_bytes == 0 && address <= UINTPTR_MAX - place->bytes) continue;
    return invalid(name + ": " + kFields[end] + " is " + shown(place->ends[end]) + ", where no " +
                   std::to_string(place->bytes) + " bytes aligned to " +
                   std::to_string(element_bytes) + " lie")
        .about_field(kFields[end]);
  }
  if (place->in_place() || !place->range(0).overlaps(place->range(1))) return {};
  return invalid(name +
                 ": place_into overlaps place_values in part; give the same address, or one apart "
                 "from it")
      .about_field("place_into");
}

Status keep_place(BufferKeeper* keeper, const std::string& name, Place* place) {
  for (size_t end = 0; end < Place::kEnds; ++end) {
    const ByteRange range = place->range(end);
    if (keeper != nullptr && keeper->keep(range, name, &place->buffers[end])) continue;
    if (end > 0) keeper->let_go(place->range(0));
    return invalid("variable '" + name + "': of the " + std::to_string(range.bytes) + " bytes of " +
                   kFields[end] + ", at " + shown(place->ends[end]) +
                   ", not all lie in one buffer of this job's on a device "
                   "(parallax_buffer_alloc with memory PARALLAX_MEMORY_CUDA)")
        .about_field(kFields[end]);
  }
  if (place->buffers[0].device == place->buffers[1].device) return {};
  let_go(keeper, *place);
  return invalid("variable '" + name + "': place_values lies on device " +
                 std::to_string(place->buffers[0].device) + ", place_into on device " +
                 std::to_string(place->buffers[1].device) + "; give both on one")
      .about_field("place_into");
}

void let_go(BufferKeeper* keeper, const Place& place) {
  for (size_t end = 0; end < Place::kEnds; ++end) keeper->let_go(place.range(end));
}

Status check_slice(const parallax_slice_t& slice, const Place& place, uint32_t dtype) {
  const void* const given[] = {slice.values, slice.into == nullptr ? slice.values : slice.into};
  constexpr const char* kNames[] = {"values", "into"};
  for (size_t end = 0; end < Place::kEnds; ++end) {
    if (given[end] == place.ends[end]) continue;
    const bool same = end == 1 && slice.into == nullptr;
    return invalid(std::string(kNames[end]) + " is " +
                   (same ? "NULL, which is values" : shown(given[end])) +
                   ", and the variable was "
                   "registered with " +
                   kFields[end] + " " + shown(place.ends[end]) +
                   ", where this rank promised that it lies in every step")
        .about_field(kNames[end]);
  }
  if (slice.device != place.device()) {
    return invalid("device is " + std::to_string(slice.device) +
                   ", and its place is in memory of device " + std::to_string(place.device()))
        .about_field("device");
  }
  if (slice.as_dtype == 0 || slice.as_dtype - 1 == dtype) return {};
  return invalid(std::string("as_dtype is ") + dtype_name(slice.as_dtype - 1) +
                 ", and what lies at its place is " + dtype_name(dtype) + "; set it to 0")
      .about_field("as_dtype");
}

}  // namespace parallax
