// SPDX-License-Identifier: Apache-2.0
// Copying out of a mirror. See mirror.h.
#include "group/mirror.h"

#include <cstring>

namespace parallax {

namespace {

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
  const Convert convert = converter(dtype_of(runtime.variable->sum_type()), slice.dtype);
  if (!runtime.variable->ids_declared()) {
    convert_or_copy(convert, table.element(0), slice.values, runtime.variable->elements(), bytes);
    return;
  }
  const uint64_t width = table.row_elements();
  for (uint32_t i = 0; i < slice.count; ++i) {
    std::byte* out = slice.values + i * width * bytes;
    const int64_t id = slice.ids.at(i);
    if (id == kPaddingId) {
      std::memset(out, 0, width * bytes);
      continue;
    }
    const uint32_t row_key = runtime.partition.row_key_of(static_cast<uint64_t>(id));
    convert_or_copy(convert, table.row(row_key), out, width, bytes);
  }
}

}  // namespace parallax
