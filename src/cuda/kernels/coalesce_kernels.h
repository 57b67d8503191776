// SPDX-License-Identifier: Apache-2.0
// Coalescing on a device: the ids of a slice sorted, stably, and the rows of each id summed in the
// order in which they occur. So a sum has one value, that of aggregate's accumulators: +0, plus the
// first row, plus the second, each in float; f16 and bf16 are widened.
//
// The sort is by digits of kDigitBits, least first. Each digit takes three kernels: a tile's block
// counts the digits of its keys, the counts are summed over tiles, and the tile moves its keys to
// where theirs begin. Then a key that differs from the one before it heads a segment, and the
// number of heads before it is its place among the rows that come out, in ascending order of ids.
// Padding has the greatest key and comes last; it heads nothing.
#ifndef PARALLAX_CUDA_KERNELS_COALESCE_KERNELS_H_
#define PARALLAX_CUDA_KERNELS_COALESCE_KERNELS_H_

#include "cuda/kernels/row_kernels.h"
#include "cuda/kernels/shapes.h"

namespace parallax::kernels {

// Keys in any order of threads; each id's place in the slice beside it.
template <typename Id, typename Key>
PARALLAX_DEVICE void make_keys(const Id* ids, uint64_t table_rows, uint32_t count, Key padding,
                               Key* keys, uint32_t* order, uint32_t* bad) {
  each_index(count, [&](uint64_t i) {
    const bool there = is_row(ids, i, table_rows, bad, true);
    keys[i] = there ? static_cast<Key>(ids[i]) : padding;
    order[i] = static_cast<uint32_t>(i);
  });
}

template <typename Key>
PARALLAX_DEVICE uint32_t digit_of(Key key, uint32_t shift) {
  return static_cast<uint32_t>(key >> shift) & (kDigits - 1);
}

// counts[digit * tiles + tile], a block a tile.
template <typename Key>
PARALLAX_DEVICE void count_digits(const Key* keys, uint32_t count, uint32_t shift,
                                  uint32_t* counts) {
  PARALLAX_SHARED uint32_t here[kDigits];
  const uint32_t tile = block_index(), tiles = block_count();
  each_thread([&](uint32_t thread) {
    if (thread < kDigits) here[thread] = 0;
  });
  each_thread([&](uint32_t thread) {
    for (uint32_t k = 0; k < kTileRows; k += kBlockThreads) {
      const uint64_t i = static_cast<uint64_t>(tile) * kTileRows + k + thread;
      if (i < count) add_atomically(&here[digit_of(keys[i], shift)], 1);
    }
  });
  each_thread([&](uint32_t thread) {
    if (thread < kDigits) counts[thread * tiles + tile] = here[thread];
  });
}

// Moves the keys of a tile behind the ones of their digit that lie in earlier tiles, and, within
// the tile, earlier: a thread has neighbouring keys, so that threads in their order have them in
// theirs.
template <typename Key>
PARALLAX_DEVICE void move_keys(const Key* keys, const uint32_t* order, uint32_t count,
                               uint32_t shift, const uint32_t* offsets, Key* keys_out,
                               uint32_t* order_out) {
  // Of each digit the keys of each thread; then of the threads before it.
  PARALLAX_SHARED uint16_t before[kDigits][kBlockThreads];
  PARALLAX_SHARED uint16_t part[kBlockThreads];
  constexpr uint32_t kEach = kTileRows / kBlockThreads;
  constexpr uint32_t kParts = kBlockThreads / kDigits;  // of a digit's counts
  constexpr uint32_t kPart = kBlockThreads / kParts;
  const uint32_t tile = block_index(), tiles = block_count();
  const uint64_t tile_first = static_cast<uint64_t>(tile) * kTileRows;
  each_thread([&](uint32_t thread) {
    for (uint32_t digit = 0; digit < kDigits; ++digit) before[digit][thread] = 0;
    for (uint32_t k = 0; k < kEach; ++k) {
      const uint64_t i = tile_first + thread * kEach + k;
      if (i < count) ++before[digit_of(keys[i], shift)][thread];
    }
  });
  each_thread([&](uint32_t thread) {
    const uint32_t digit = thread / kParts, first = thread % kParts * kPart;
    uint32_t sum = 0;
    for (uint32_t k = 0; k < kPart; ++k) sum += before[digit][first + k];
    part[thread] = static_cast<uint16_t>(sum);
  });
  each_thread([&](uint32_t thread) {
    const uint32_t digit = thread / kParts, first = thread % kParts * kPart;
    uint32_t sum = 0;
    for (uint32_t k = digit * kParts; k < thread; ++k) sum += part[k];
    for (uint32_t k = 0; k < kPart; ++k) {
      const uint32_t own = before[digit][first + k];
      before[digit][first + k] = static_cast<uint16_t>(sum);
      sum += own;
    }
  });
  each_thread([&](uint32_t thread) {
    for (uint32_t k = 0; k < kEach; ++k) {
      const uint64_t i = tile_first + thread * kEach + k;
      if (i >= count) break;
      const uint32_t digit = digit_of(keys[i], shift);
      const uint32_t to = offsets[digit * tiles + tile] + before[digit][thread]++;
      keys_out[to] = keys[i];
      order_out[to] = order[i];
    }
  });
}

// In place: each number becomes the sum of those before it in its tile; *totals[tile] of them all.
PARALLAX_DEVICE void scan_tile(uint32_t* numbers, uint32_t count, uint64_t first, uint32_t* total) {
  PARALLAX_SHARED uint32_t sums[2][kBlockThreads];
  constexpr uint32_t kEach = kTileRows / kBlockThreads;
  each_thread([&](uint32_t thread) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < kEach; ++k) {
      const uint64_t i = first + thread * kEach + k;
      if (i < count) sum += numbers[i];
    }
    sums[0][thread] = sum;
  });
  uint32_t from = 0;
  for (uint32_t step = 1; step < kBlockThreads; step *= 2, from ^= 1) {
    each_thread([&](uint32_t thread) {
      const uint32_t before = thread >= step ? sums[from][thread - step] : 0;
      sums[from ^ 1][thread] = sums[from][thread] + before;
    });
  }
  each_thread([&](uint32_t thread) {
    uint32_t sum = thread == 0 ? 0 : sums[from][thread - 1];
    for (uint32_t k = 0; k < kEach; ++k) {
      const uint64_t i = first + thread * kEach + k;
      if (i >= count) break;
      const uint32_t own = numbers[i];
      numbers[i] = sum;
      sum += own;
    }
    if (thread == kBlockThreads - 1) *total = sums[from][thread];
  });
}

PARALLAX_DEVICE void scan_tiles(uint32_t* numbers, uint32_t count, uint32_t* totals) {
  const uint32_t tile = block_index();
  scan_tile(numbers, count, static_cast<uint64_t>(tile) * kTileRows, &totals[tile]);
}

// The totals themselves, by one block.
PARALLAX_DEVICE void scan_totals(uint32_t* totals, uint32_t tiles) {
  PARALLAX_SHARED uint32_t sum_here, sum_before;
  each_thread([&](uint32_t thread) {
    if (thread == 0) sum_before = 0;
  });
  for (uint64_t first = 0; first < tiles; first += kTileRows) {
    scan_tile(totals, tiles, first, &sum_here);
    each_thread([&](uint32_t thread) {
      for (uint64_t i = first + thread; i < tiles && i < first + kTileRows; i += kBlockThreads) {
        totals[i] += sum_before;
      }
    });
    each_thread([&](uint32_t thread) {
      if (thread == 0) sum_before += sum_here;
    });
  }
}

PARALLAX_DEVICE void add_totals(uint32_t* numbers, uint32_t count, const uint32_t* totals) {
  each_index(count, [&](uint64_t i) { numbers[i] += totals[i / kTileRows]; });
}

template <typename Key>
PARALLAX_DEVICE bool is_head(const Key* keys, uint64_t i, Key padding) {
  return keys[i] != padding && (i == 0 || keys[i - 1] != keys[i]);
}

template <typename Key>
PARALLAX_DEVICE void mark_heads(const Key* keys, uint32_t count, Key padding, uint32_t* heads) {
  each_index(count, [&](uint64_t i) { heads[i] = is_head(keys, i, padding) ? 1 : 0; });
}

// `places`: heads before each key. The ids that come out, where their rows begin in the sorted
// order, one place more for the end of the last, and how many there are.
template <typename Id, typename Key>
PARALLAX_DEVICE void lay_out_segments(const Key* keys, uint32_t count, Key padding,
                                      const uint32_t* places, Id* unique_ids, uint32_t* starts,
                                      uint32_t* unique_count) {
  each_index(count, [&](uint64_t i) {
    const bool pads = keys[i] == padding;
    const uint32_t here = static_cast<uint32_t>(i);
    if (is_head(keys, i, padding)) {
      unique_ids[places[i]] = static_cast<Id>(keys[i]);
      starts[places[i]] = here;
    } else if (pads && (i == 0 || keys[i - 1] != padding)) {
      starts[places[i]] = here;  // where the last segment ends
    }
    if (i + 1 < count) return;
    const uint32_t all = places[i] + (is_head(keys, i, padding) ? 1 : 0);
    *unique_count = all;
    if (!pads) starts[all] = count;
  });
}

template <typename T>
PARALLAX_DEVICE void sum_segments(const T* rows, const uint32_t* order, const uint32_t* starts,
                                  const uint32_t* unique_count, float* sums, uint32_t elements,
                                  uint32_t lane_bits) {
  each_element(*unique_count, elements, lane_bits, [&](uint64_t unique, uint32_t e) {
    float sum = 0;
    for (uint32_t k = starts[unique]; k < starts[unique + 1]; ++k) {
      sum += addend(rows[static_cast<uint64_t>(order[k]) * elements + e]);
    }
    sums[unique * elements + e] = sum;
  });
}

}  // namespace parallax::kernels

#endif  // PARALLAX_CUDA_KERNELS_COALESCE_KERNELS_H_
