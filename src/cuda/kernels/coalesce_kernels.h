// SPDX-License-Identifier: Apache-2.0
// Coalescing on a device: the ids of a slice sorted, stably, and the rows of each id summed in the
// order in which they occur. So a sum has one value, that of aggregate's accumulators: +0, plus the
// first row, plus the second, each in float; f16 and bf16 are widened.
//
// The sort is by digits of kDigitBits, least first. Each digit takes three kernels: a tile's block
// counts the digits of its keys, a digit's block sums its counts over tiles, and the tile moves its
// keys to where theirs begin. Then a key that differs from the one before it heads a segment, and
// the number of heads before it is its place among the rows that come out, in ascending order of
// ids. Padding has the greatest key and comes last; it heads nothing.
#ifndef PARALLAX_CUDA_KERNELS_COALESCE_KERNELS_H_
#define PARALLAX_CUDA_KERNELS_COALESCE_KERNELS_H_

#include "cuda/kernels/row_kernels.h"
#include "cuda/kernels/shapes.h"

namespace parallax::kernels {

template <typename Key>
PARALLAX_DEVICE uint32_t digit_of(Key key, uint32_t shift) {
  return static_cast<uint32_t>(key >> shift) & (kDigits - 1);
}

// counts[digit * tiles + tile], a block a tile; key_at(i) is called once for each key. Loads come
// before what would wait for each of them.
template <typename Key, typename KeyAt>
PARALLAX_DEVICE void count_tile(KeyAt key_at, uint32_t count, uint32_t shift, uint32_t* counts) {
  PARALLAX_SHARED uint32_t here[kDigits];
  const uint32_t tile = block_index(), tiles = block_count();
  each_thread([&](uint32_t thread) {
    if (thread < kDigits) here[thread] = 0;
  });
  each_thread([&](uint32_t thread) {
    constexpr uint32_t kEach = kTileRows / kBlockThreads;
    const uint64_t first = static_cast<uint64_t>(tile) * kTileRows + thread;
    Key own[kEach] = {};
    for (uint32_t k = 0; k < kEach; ++k) {
      if (first + k * kBlockThreads < count) own[k] = key_at(first + k * kBlockThreads);
    }
    for (uint32_t k = 0; k < kEach; ++k) {
      if (first + k * kBlockThreads < count) add_atomically(&here[digit_of(own[k], shift)], 1);
    }
  });
  each_thread([&](uint32_t thread) {
    if (thread < kDigits) counts[thread * tiles + tile] = here[thread];
  });
}

// The keys of ids, and the counts of their first digits.
template <typename Id, typename Key>
PARALLAX_DEVICE void make_keys(const Id* __restrict ids, uint64_t table_rows, uint32_t count,
                               Key padding, Key* keys, uint32_t* counts, uint32_t* bad) {
  const auto make = [&](uint64_t i) {
    const bool there = is_row(ids, i, table_rows, bad, true);
    return keys[i] = there ? static_cast<Key>(ids[i]) : padding;
  };
  count_tile<Key>(make, count, 0, counts);
}

template <typename Key>
PARALLAX_DEVICE void count_digits(const Key* keys, uint32_t count, uint32_t shift,
                                  uint32_t* counts) {
  count_tile<Key>([&](uint64_t i) { return keys[i]; }, count, shift, counts);
}

// What a tile counts when it moves its keys: a byte for each digit and thread, the threads in
// groups whose keys a byte counts. Groups lie a word further apart than they are long, so that
// threads that look through one each do so in different banks.
struct TileCounts {
  static constexpr uint32_t kEach = kTileRows / kBlockThreads;
  static constexpr uint32_t kGroupThreads = 32;
  static constexpr uint32_t kGroups = kBlockThreads / kGroupThreads;
  static constexpr uint32_t kRuns = kDigits * kGroups;  // of a digit in a group
  static constexpr uint32_t kRunWords = kGroupThreads / 4 + 1;
  static constexpr uint32_t kWords = kRuns * kRunWords;
  static_assert((kGroupThreads - 1) * kEach < 256);

  static PARALLAX_DEVICE uint32_t run_of(uint32_t digit, uint32_t thread) {
    return digit * kGroups + thread / kGroupThreads;
  }
  static PARALLAX_DEVICE uint8_t* count_of(uint32_t* words, uint32_t digit, uint32_t thread) {
    return reinterpret_cast<uint8_t*>(words + run_of(digit, thread) * kRunWords) +
           thread % kGroupThreads;
  }
  // In place: each count of a run becomes the sum of those before it, four at a time, the least
  // byte first. Returns the sum of all.
  static PARALLAX_DEVICE uint32_t sum_run(uint32_t* words) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < kGroupThreads / 4; ++k) {
      const uint32_t own = words[k];
      words[k] = own * 0x01010100u + sum * 0x01010101u;
      sum += own * 0x01010101u >> 24;
    }
    return sum;
  }
};

// Moves the keys of a tile behind the ones of their digit that lie in earlier tiles, and, within
// the tile, earlier: a thread has neighbouring keys, so that threads in their order have them in
// theirs. counts: of a digit in the tiles before each; totals: in all. No order is that of places.
template <typename Key>
PARALLAX_DEVICE void move_keys(const Key* __restrict keys, const uint32_t* __restrict order,
                               uint32_t count, uint32_t shift, const uint32_t* __restrict counts,
                               const uint32_t* __restrict totals, Key* keys_out,
                               uint32_t* order_out) {
  using Counts = TileCounts;
  PARALLAX_SHARED uint32_t before[Counts::kWords];
  PARALLAX_SHARED uint32_t first[Counts::kRuns];  // where a run's keys go
  PARALLAX_SHARED uint32_t sums[kDigits];
  const uint32_t tile = block_index(), tiles = block_count();
  // body(key, place), loaded before the first is called.
  const auto each_key = [&](uint32_t thread, const uint32_t* places, auto body) {
    const uint64_t at = static_cast<uint64_t>(tile) * kTileRows + thread * Counts::kEach;
    Key own[Counts::kEach] = {};
    uint32_t place[Counts::kEach] = {};
    for (uint32_t k = 0; k < Counts::kEach; ++k) {
      if (at + k >= count) break;
      own[k] = keys[at + k];
      place[k] = places == nullptr ? static_cast<uint32_t>(at + k) : places[at + k];
    }
    for (uint32_t k = 0; k < Counts::kEach; ++k) {
      if (at + k < count) body(own[k], place[k]);
    }
  };
  each_thread([&](uint32_t thread) {
    for (uint32_t k = thread; k < Counts::kWords; k += kBlockThreads) before[k] = 0;
    if (thread < kDigits) sums[thread] = totals[thread];
  });
  each_thread([&](uint32_t thread) {
    each_key(thread, nullptr,
             [&](Key key, uint32_t) { ++*Counts::count_of(before, digit_of(key, shift), thread); });
  });
  each_thread([&](uint32_t thread) {
    for (uint32_t run = thread; run < Counts::kRuns; run += kBlockThreads) {
      first[run] = Counts::sum_run(before + run * Counts::kRunWords);
    }
  });
  each_thread([&](uint32_t thread) {
    if (thread >= kDigits) return;
    uint32_t to = counts[thread * tiles + tile];
    for (uint32_t digit = 0; digit < kDigits; ++digit) to += digit < thread ? sums[digit] : 0;
    for (uint32_t group = 0; group < Counts::kGroups; ++group) {
      const uint32_t own = first[thread * Counts::kGroups + group];
      first[thread * Counts::kGroups + group] = to;
      to += own;
    }
  });
  each_thread([&](uint32_t thread) {
    each_key(thread, order, [&](Key key, uint32_t place) {
      const uint32_t digit = digit_of(key, shift);
      const uint32_t to =
          first[Counts::run_of(digit, thread)] + (*Counts::count_of(before, digit, thread))++;
      keys_out[to] = key;
      order_out[to] = place;
    });
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
    uint32_t own[kEach] = {};
    for (uint32_t k = 0; k < kEach; ++k) {
      const uint64_t i = first + thread * kEach + k;
      if (i < count) own[k] = numbers[i];
    }
    for (uint32_t k = 0; k < kEach; ++k) {
      const uint64_t i = first + thread * kEach + k;
      if (i < count) numbers[i] = sum;
      sum += own[k];
    }
    if (thread == kBlockThreads - 1) *total = sums[from][thread];
  });
}

// All of them, by one block; returns their sum in *total, if it is asked for.
PARALLAX_DEVICE void scan_all(uint32_t* numbers, uint32_t count, uint32_t* total) {
  PARALLAX_SHARED uint32_t sum_here, sum_before;
  each_thread([&](uint32_t thread) {
    if (thread == 0) sum_before = 0;
  });
  for (uint64_t first = 0; first < count; first += kTileRows) {
    scan_tile(numbers, count, first, &sum_here);
    each_thread([&](uint32_t thread) {
      for (uint64_t i = first + thread; i < count && i < first + kTileRows; i += kBlockThreads) {
        numbers[i] += sum_before;
      }
    });
    each_thread([&](uint32_t thread) {
      if (thread == 0) sum_before += sum_here;
    });
  }
  each_thread([&](uint32_t thread) {
    if (thread == 0 && total != nullptr) *total = sum_before;
  });
}

// Of each digit, a block a digit.
PARALLAX_DEVICE void scan_counts(uint32_t* counts, uint32_t tiles, uint32_t* totals) {
  const uint32_t digit = block_index();
  scan_all(counts + static_cast<uint64_t>(digit) * tiles, tiles, &totals[digit]);
}

template <typename Key>
PARALLAX_DEVICE bool is_head(const Key* keys, uint64_t i, Key padding) {
  return keys[i] != padding && (i == 0 || keys[i - 1] != keys[i]);
}

// Of each key the heads before it in its tile, and those of each tile, a block a tile.
template <typename Key>
PARALLAX_DEVICE void scan_heads(const Key* __restrict keys, uint32_t count, Key padding,
                                uint32_t* heads, uint32_t* totals) {
  const uint64_t first = static_cast<uint64_t>(block_index()) * kTileRows;
  each_thread([&](uint32_t thread) {
    for (uint64_t i = first + thread; i < count && i < first + kTileRows; i += kBlockThreads) {
      heads[i] = is_head(keys, i, padding) ? 1 : 0;
    }
  });
  scan_tile(heads, count, first, &totals[block_index()]);
}

// `heads` before each key in its tile, and in the tiles before each. The ids that come out, where
// their rows begin in the sorted order, one place more for the end of the last, and how many there
// are.
template <typename Id, typename Key>
PARALLAX_DEVICE void lay_out_segments(const Key* __restrict keys, uint32_t count, Key padding,
                                      const uint32_t* heads, const uint32_t* totals, Id* unique_ids,
                                      uint32_t* starts, uint32_t* unique_count,
                                      uint32_t* long_count) {
  each_index(count, [&](uint64_t i) {
    const bool pads = keys[i] == padding;
    const uint32_t here = static_cast<uint32_t>(i), place = heads[i] + totals[i / kTileRows];
    const bool head = is_head(keys, i, padding);
    if (head) {
      unique_ids[place] = static_cast<Id>(keys[i]);
      starts[place] = here;
    } else if (pads && (i == 0 || keys[i - 1] != padding)) {
      starts[place] = here;  // where the last segment ends
    }
    if (i + 1 < count) return;
    const uint32_t all = place + (head ? 1 : 0);
    *unique_count = all;
    *long_count = 0;
    if (!pads) starts[all] = count;
  });
}

// kWidth elements of a row are one thread's, which loads those of kAhead rows before it adds them.
// Ids with many rows it only lists: one thread after the other would wait for each of them.
template <uint32_t kWidth, typename T>
PARALLAX_DEVICE void sum_segments(const Pack<T, kWidth>* __restrict rows,
                                  const uint32_t* __restrict order,
                                  const uint32_t* __restrict starts, const uint32_t* unique_count,
                                  Pack<float, kWidth>* sums, uint32_t packs, uint32_t lane_bits,
                                  uint32_t* long_ones, uint32_t* long_count) {
  constexpr uint32_t kAhead = 4;
  each_element(*unique_count, packs, lane_bits, [&](uint64_t unique, uint32_t e) {
    Pack<float, kWidth> sum = {};
    const uint32_t first = starts[unique], end = starts[unique + 1];
    if (end - first >= kLongRows) {
      if (e == 0) long_ones[add_atomically(long_count, 1)] = static_cast<uint32_t>(unique);
      return;
    }
    for (uint32_t k = first; k < end; k += kAhead) {
      Pack<T, kWidth> there[kAhead] = {};
      for (uint32_t a = 0; a < kAhead; ++a) {
        if (k + a < end) there[a] = rows[static_cast<uint64_t>(order[k + a]) * packs + e];
      }
      for (uint32_t a = 0; a < kAhead; ++a) {
        if (k + a >= end) break;
        for (uint32_t w = 0; w < kWidth; ++w) sum.of[w] += addend(there[a].of[w]);
      }
    }
    sums[unique * packs + e] = sum;
  });
}

// Those that were listed: a block has a slice of kSlicePacks packs of one of them at a time, which
// all its threads bring to shared memory, as many rows as there is room for; then each element has
// a thread that adds them, one after the other.
template <uint32_t kWidth, typename T>
PARALLAX_DEVICE void sum_long_segments(const Pack<T, kWidth>* __restrict rows,
                                       const uint32_t* __restrict order,
                                       const uint32_t* __restrict starts, const uint32_t* long_ones,
                                       const uint32_t* long_count, float* sums, uint32_t packs) {
  constexpr uint32_t kAtOnce = kBlockThreads / kSlicePacks;
  constexpr uint32_t kFit = 32768 / (kAtOnce * kSlicePacks * sizeof(Pack<T, kWidth>));
  constexpr uint32_t kEach = kFit < 16 ? kFit : 16;  // in registers at once
  constexpr uint32_t kRows = kEach * kAtOnce;
  constexpr uint32_t kSlice = kSlicePacks * kWidth;  // elements
  PARALLAX_SHARED Pack<T, kWidth> here[kRows * kSlicePacks];
  PARALLAX_SHARED float sum[kSlice];
  const uint32_t slices = (packs + kSlicePacks - 1) / kSlicePacks;
  const uint64_t items = static_cast<uint64_t>(*long_count) * slices;
  for (uint64_t item = block_index(); item < items; item += block_count()) {
    const uint32_t unique = long_ones[item / slices];
    const uint32_t first_pack = static_cast<uint32_t>(item % slices) * kSlicePacks;
    const uint32_t left = packs - first_pack, own = left < kSlicePacks ? left : kSlicePacks;
    const uint32_t end = starts[unique + 1];
    each_thread([&](uint32_t thread) {
      if (thread < kSlice) sum[thread] = 0;
    });
    for (uint32_t k = starts[unique]; k < end; k += kRows) {
      const uint32_t count = end - k < kRows ? end - k : kRows;
      each_thread([&](uint32_t thread) {
        const uint32_t pack = thread % kSlicePacks;
        if (pack >= own) return;
        Pack<T, kWidth> there[kEach] = {};
        for (uint32_t a = 0; a < kEach; ++a) {
          const uint32_t row = a * kAtOnce + thread / kSlicePacks;
          if (row >= count) continue;
          there[a] = rows[static_cast<uint64_t>(order[k + row]) * packs + first_pack + pack];
        }
        for (uint32_t a = 0; a < kEach; ++a) {
          here[(a * kAtOnce + thread / kSlicePacks) * kSlicePacks + pack] = there[a];
        }
      });
      each_thread([&](uint32_t thread) {
        if (thread >= own * kWidth) return;
        float so_far = sum[thread];
        for (uint32_t row = 0; row < count; ++row) {
          so_far += addend(here[row * kSlicePacks + thread / kWidth].of[thread % kWidth]);
        }
        sum[thread] = so_far;
      });
    }
    each_thread([&](uint32_t thread) {
      if (thread >= own * kWidth) return;
      sums[(static_cast<uint64_t>(unique) * packs + first_pack) * kWidth + thread] = sum[thread];
    });
  }
}

}  // namespace parallax::kernels

#endif  // PARALLAX_CUDA_KERNELS_COALESCE_KERNELS_H_
