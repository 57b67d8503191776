// SPDX-License-Identifier: Apache-2.0
// What a rank of parallax_many counts of itself, and how it hears of the others'. One thread a
// rank.
#ifndef PARALLAX_BENCH_MANY_METER_H_
#define PARALLAX_BENCH_MANY_METER_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "parallax/parallax.h"

namespace parallax::many {

// Whole messages and their bytes since the job began, by the library's own counters.
struct Sent {
  uint64_t wire_messages = 0, wire_bytes = 0;    // to ranks of other hosts
  uint64_t local_messages = 0, local_bytes = 0;  // to those of this one

  Sent since(const Sent& before) const {
    return {wire_messages - before.wire_messages, wire_bytes - before.wire_bytes,
            local_messages - before.local_messages, local_bytes - before.local_bytes};
  }
};

// Asks the kernel, too: some ms for tables of GiB.
Sent sent_by(parallax_job_t* job);

// Of this process, all threads, since it began.
int64_t cpu_us();

// Memory of this process, a page that several have mapped as its share of it: over all ranks of a
// host, each page counts once.
int64_t resident_kib();

// Every rank calls it; recv holds `bytes` of each, in their order. Waits for all.
void allgather(parallax_job_t* job, const void* send, void* recv, uint64_t bytes);

template <typename T>
std::vector<T> of_all_ranks(parallax_job_t* job, uint32_t world, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(world);
  allgather(job, &mine, all.data(), sizeof mine);
  return all;
}

}  // namespace parallax::many

#endif  // PARALLAX_BENCH_MANY_METER_H_
