// SPDX-License-Identifier: Apache-2.0
// Copying out of a mirror. See mirror.h.
#include "group/mirror.h"

#include <algorithm>
#include <cstring>

namespace parallax {

namespace {

// Of a slice that leaves as it is read: told of in such pieces.
constexpr uint64_t kToldBytes = 256 * 1024;

void read_store(const VariableRuntime& runtime, const PullSlice& slice, uint32_t* left) {
  StoreRead read = {
      .to = slice.values, .dtype = slice.dtype, .on_device = slice.on_device, .left = left};
  if (runtime.variable->ids_declared()) {
    read.units = runtime.table->device()->rows_by_ids(slice.ids, slice.count);
  } else {
    read.units = {.count = runtime.variable->elements()};
  }
  ++*left;
  runtime.table->store()->read(read);
}

}  // namespace

void read_mirror(const VariableRuntime& runtime, const PullSlice& slice, uint32_t* left) {
  const Table& table = *runtime.table;
  if (table.store() != nullptr) return read_store(runtime, slice, left);
  const size_t bytes = bytes_of_dtype(slice.dtype);
  const Convert convert = converter(table.dtype(0), slice.dtype);
  if (!runtime.variable->ids_declared()) {
    const uint64_t all = runtime.variable->elements();
    for (uint64_t at = 0, count = 0; at < all; at += count) {
      count = slice.leaving == nullptr ? all : std::min(all - at, kToldBytes / bytes);
      convert_or_copy(convert, table.element(at), slice.values + at * bytes, count, bytes);
      tell_there(slice.leaving, at, count);
    }
    return;
  }
  const uint64_t width = table.row_elements();
  const uint64_t rows_told = std::max<uint64_t>(1, kToldBytes / (width * bytes));
  uint64_t told = 0;
  for (uint32_t i = 0; i < slice.count; ++i) {
    if (i - told == rows_told) {
      tell_there(slice.leaving, told, rows_told);
      told = i;
    }
    std::byte* out = slice.values + i * width * bytes;
    const int64_t id = slice.ids.at(i);
    if (id == kPaddingId) {
      std::memset(out, 0, width * bytes);
      continue;
    }
    const uint32_t row_key = runtime.partition.row_key_of(static_cast<uint64_t>(id));
    convert_or_copy(convert, table.row(row_key), out, width, bytes);
  }
  tell_there(slice.leaving, told, slice.count - told);
}

}  // namespace parallax
