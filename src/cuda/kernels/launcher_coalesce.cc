// SPDX-License-Identifier: Apache-2.0
// Coalescing: the kernels of coalesce_kernels.h one after the other, and their work memory. It has
// keys and places twice, to sort from one into the other; a number for each key; the counts of
// digits by tile; totals of digits and tiles; where segments begin; and
// those of many rows.
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
    heads = take(uint64_t{count} * 4);
    counts = take(uint64_t{tiles_of(count)} * kDigits * 4);
    totals = take(uint64_t{std::max(tiles_of(count), kDigits)} * 4);
    starts = take((uint64_t{count} + 1) * 4);
    long_count = take(4);
    long_ones = take((uint64_t{count} / kLongRows + 1) * 4);
  }
  CUdeviceptr end() const { return end_; }

  CUdeviceptr keys[2] = {}, order[2] = {};
  CUdeviceptr heads = 0, counts = 0, totals = 0, starts = 0;
  CUdeviceptr long_count = 0, long_ones = 0;

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

// Keys are as narrow as they may be: most of the sort is their way through memory.
template <typename Key>
CUresult Launcher::coalesce_keys(CUstream stream, const DeviceIds& ids, const DeviceRows& rows,
                                 const Coalesced& to) {
  const Work work(to.work, ids.count, ids.width_bytes);
  const std::string key = sizeof(Key) == 4 ? "_u32" : "_u64";
  const std::string both = (ids.width_bytes == 4 ? "_i32" : "_i64") + key;
  const uint32_t bits = bits_of_keys(ids.table_rows), tiles = tiles_of(ids.count);
  const Key padding = static_cast<Key>(~Key{0} >> (8 * sizeof(Key) - bits));
  CUdeviceptr order = 0;
  uint32_t from = 0;
  CUresult code = CUDA_SUCCESS;
  for (uint32_t shift = 0; code == CUDA_SUCCESS && shift < bits; shift += kDigitBits) {
    code = shift == 0 ? launch(stream, "parallax_keys" + both, tiles, ids.ids, ids.table_rows,
                               ids.count, padding, work.keys[from], work.counts, ids.bad)
                      : launch(stream, "parallax_digits" + key, tiles, work.keys[from], ids.count,
                               shift, work.counts);
    if (code != CUDA_SUCCESS) break;
    code = launch(stream, "parallax_scan_counts", kDigits, work.counts, tiles, work.totals);
    if (code != CUDA_SUCCESS) break;
    code = launch(stream, "parallax_move" + key, tiles, work.keys[from], order, ids.count, shift,
                  work.counts, work.totals, work.keys[from ^ 1], work.order[from ^ 1]);
    from ^= 1;
    order = work.order[from];
  }
  if (code == CUDA_SUCCESS) {
    code = launch(stream, "parallax_heads" + key, tiles, work.keys[from], ids.count, padding,
                  work.heads, work.totals);
  }
  if (code == CUDA_SUCCESS) code = launch(stream, "parallax_scan_totals", 1, work.totals, tiles);
  if (code == CUDA_SUCCESS) {
    code = launch(stream, "parallax_segments" + both, blocks_of(ids.count), work.keys[from],
                  ids.count, padding, work.heads, work.totals, to.unique_ids, work.starts,
                  to.unique_count, work.long_count);
  }
  if (code != CUDA_SUCCESS || rows.elements == 0) return code;
  return sum_segments(stream, rows,
                      {ids.count, order, work.starts, work.long_ones, work.long_count}, to);
}

// Four elements at once where rows and sums lie so that they may be loaded so.
CUresult Launcher::sum_segments(CUstream stream, const DeviceRows& rows, const Segments& segments,
                                const Coalesced& to) {
  constexpr uint32_t kPack = 4;
  const uint64_t pack_bytes = std::min<uint64_t>(uint64_t{kPack} * bytes_of_dtype(rows.dtype), 16);
  const bool fit = rows.elements % kPack == 0 && rows.rows % pack_bytes == 0 && to.sums % 16 == 0;
  const uint32_t width = fit ? kPack : 1, packs = rows.elements / width;
  const Shape shape = shape_of_rows(segments.count, packs);
  const std::string type = std::string(dtype_name(rows.dtype)) + "_" + std::to_string(width);
  const CUresult code = launch(stream, "parallax_sum_" + type, shape.blocks, rows.rows,
                               segments.order, segments.starts, to.unique_count, to.sums, packs,
                               shape.lane_bits, segments.long_ones, segments.long_count);
  const uint64_t slices = (packs + kSlicePacks - 1) / kSlicePacks;
  const uint64_t long_most = segments.count / kLongRows * slices;
  if (code != CUDA_SUCCESS || long_most == 0) return code;
  return launch(stream, "parallax_sum_long_" + type,
                static_cast<uint32_t>(std::min<uint64_t>(long_most, blocks_max_)), rows.rows,
                segments.order, segments.starts, segments.long_ones, segments.long_count, to.sums,
                packs);
}

CUresult Launcher::coalesce(CUstream stream, const DeviceIds& ids, const DeviceRows& rows,
                            const Coalesced& to) {
  const bool taken = is_floating(rows.dtype);
  const bool fits = ids.width_bytes == 8
                        ? std::bit_width(ids.table_rows) < 64
                        : ids.width_bytes == 4 && std::bit_width(ids.table_rows) <= 32;
  // Loops over rows go beyond the last in steps of some hundreds.
  const bool counted = ids.count <= INT32_MAX;
  if (!taken || !fits || !counted) return CUDA_ERROR_INVALID_VALUE;
  if (ids.count == 0) {
    last_call_ = "cuMemsetD8Async";
    return driver_.cuMemsetD8Async(to.unique_count, 0, sizeof(uint32_t), stream);
  }
  return bits_of_keys(ids.table_rows) <= 32 ? coalesce_keys<uint32_t>(stream, ids, rows, to)
                                            : coalesce_keys<uint64_t>(stream, ids, rows, to);
}

}  // namespace parallax::kernels
