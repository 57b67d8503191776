// SPDX-License-Identifier: Apache-2.0
// Coalescing: the kernels of coalesce_kernels.h one after the other, and their work memory. It has
// keys and places twice, to sort from one into the other; a number for each key; the counts of
// digits by tile; totals of what is scanned; and where segments begin.
#include <algorithm>
#include <bit>

#include "cuda/kernels/launch.h"
#include "cuda/kernels/launcher.h"

namespace parallax::kernels {

namespace {

constexpr size_t kAlignment = 256;

uint32_t tiles_of(uint64_t count) {
  return static_cast<uint32_t>((count + kTileRows - 1) / kTileRows);
}

// Places within the work memory.
class Work {
 public:
  Work(CUdeviceptr first, uint32_t count, uint32_t width_bytes) : end_(first) {
    keys[0] = take(uint64_t{count} * width_bytes);
    keys[1] = take(uint64_t{count} * width_bytes);
    order[0] = take(uint64_t{count} * 4);
    order[1] = take(uint64_t{count} * 4);
    numbers = take(uint64_t{count} * 4);
    counts = take(uint64_t{tiles_of(count)} * kDigits * 4);
    const uint64_t scanned = std::max<uint64_t>(count, uint64_t{tiles_of(count)} * kDigits);
    totals = take(uint64_t{tiles_of(scanned)} * 4);
    starts = take((uint64_t{count} + 1) * 4);
  }
  CUdeviceptr end() const { return end_; }

  CUdeviceptr keys[2] = {}, order[2] = {};
  CUdeviceptr numbers = 0, counts = 0, totals = 0, starts = 0;

 private:
  CUdeviceptr take(uint64_t bytes) {
    const CUdeviceptr first = end_;
    end_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return first;
  }
  CUdeviceptr end_;
};

// As few bits as tell the rows apart from each other and from padding, which has them all set.
uint32_t bits_of_keys(uint64_t table_rows) {
  return std::max<uint32_t>(1, static_cast<uint32_t>(std::bit_width(table_rows)));
}

}  // namespace

size_t coalesce_work_bytes(uint32_t count, uint32_t width_bytes) {
  return Work(0, count, width_bytes).end();
}

CUresult Launcher::scan(CUstream stream, CUdeviceptr numbers, uint32_t count, CUdeviceptr totals) {
  const uint32_t tiles = tiles_of(count);
  if (const CUresult code = launch(stream, "parallax_scan_tiles", tiles, numbers, count, totals)) {
    return code;
  }
  if (tiles == 1) return CUDA_SUCCESS;
  if (const CUresult code = launch(stream, "parallax_scan_totals", 1, totals, tiles)) return code;
  return launch(stream, "parallax_scan_add", blocks_of(count), numbers, count, totals);
}

template <typename Key>
CUresult Launcher::coalesce_keys(CUstream stream, const DeviceIds& ids, const DeviceRows& rows,
                                 const Coalesced& to) {
  const Work work(to.work, ids.count, sizeof(Key));
  const std::string type = sizeof(Key) == 4 ? "_i32" : "_i64";
  const uint32_t bits = bits_of_keys(ids.table_rows), tiles = tiles_of(ids.count);
  const Key padding = static_cast<Key>(~Key{0} >> (8 * sizeof(Key) - bits));
  CUresult code = launch(stream, "parallax_keys" + type, blocks_of(ids.count), ids.ids,
                         ids.table_rows, ids.count, padding, work.keys[0], work.order[0], ids.bad);
  uint32_t from = 0;
  for (uint32_t shift = 0; code == CUDA_SUCCESS && shift < bits; shift += kDigitBits, from ^= 1) {
    code = launch(stream, "parallax_digits" + type, tiles, work.keys[from], ids.count, shift,
                  work.counts);
    if (code == CUDA_SUCCESS) code = scan(stream, work.counts, tiles * kDigits, work.totals);
    if (code != CUDA_SUCCESS) break;
    code = launch(stream, "parallax_move" + type, tiles, work.keys[from], work.order[from],
                  ids.count, shift, work.counts, work.keys[from ^ 1], work.order[from ^ 1]);
  }
  if (code == CUDA_SUCCESS) {
    code = launch(stream, "parallax_heads" + type, blocks_of(ids.count), work.keys[from], ids.count,
                  padding, work.numbers);
  }
  if (code == CUDA_SUCCESS) code = scan(stream, work.numbers, ids.count, work.totals);
  if (code == CUDA_SUCCESS) {
    code = launch(stream, "parallax_segments" + type, blocks_of(ids.count), work.keys[from],
                  ids.count, padding, work.numbers, to.unique_ids, work.starts, to.unique_count);
  }
  if (code != CUDA_SUCCESS || rows.elements == 0) return code;
  const Shape shape = shape_of_rows(ids.count, rows.elements);
  return launch(stream, "parallax_sum_" + std::string(dtype_name(rows.dtype)), shape.blocks,
                rows.rows, work.order[from], work.starts, to.unique_count, to.sums, rows.elements,
                shape.lane_bits);
}

CUresult Launcher::coalesce(CUstream stream, const DeviceIds& ids, const DeviceRows& rows,
                            const Coalesced& to) {
  const bool taken = is_floating(rows.dtype);
  const bool fits = ids.width_bytes == 8
                        ? std::bit_width(ids.table_rows) < 64
                        : ids.width_bytes == 4 && std::bit_width(ids.table_rows) <= 32;
  if (!taken || !fits) return CUDA_ERROR_INVALID_VALUE;
  if (ids.count == 0) {
    last_call_ = "cuMemsetD8Async";
    return driver_.cuMemsetD8Async(to.unique_count, 0, sizeof(uint32_t), stream);
  }
  return ids.width_bytes == 4 ? coalesce_keys<uint32_t>(stream, ids, rows, to)
                              : coalesce_keys<uint64_t>(stream, ids, rows, to);
}

}  // namespace parallax::kernels
