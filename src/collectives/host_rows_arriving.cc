// SPDX-License-Identifier: Apache-2.0
// A rank's slice whose values come while it is coalesced. See host_rows.h.
//
// Its ids are there: the first job finds the distinct rows and lays the block out, and each adds
// what has come meanwhile, while the device copies on. In the end the block is what it is of a
// slice that was there as a whole, and goes the same way. Only where the host has no other rank,
// and rows go to other hosts, they leave before: rows to which nothing is added any more are joined
// to the host's sum behind the job that has made them so, and may be sent.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "collectives/host_rows.h"

namespace parallax {

void HostRows::start_arriving(StepBuffer& buffer, ArrivingElements& arriving) {
  buffer.arrival = {.from = &arriving};
  buffer.job.run = [](ComputeJob& job) {
    StepBuffer& adding = *static_cast<StepBuffer*>(job.context);
    const Arrival& arrival = adding.arrival;
    HostRows& rows = *adding.host_rows;
    if (!arrival.started) {
      rows.coalescer_.start(rows.partition_, adding.first, rows.row_columns_, adding.block.data());
    }
    rows.coalescer_.add(adding.first, arrival.added, arrival.until);
  };
  buffer.job.done = [](ComputeJob& job) {
    StepBuffer& added = *static_cast<StepBuffer*>(job.context);
    added.host_rows->end_arrived(added);
  };
  arriving.more = [this, step = buffer.step] { arrive(step_buffer(step)); };
  arrive(buffer);
}

// More of the slice is there, or no more comes: then nobody is asked again.
void HostRows::arrive(StepBuffer& buffer) {
  Arrival& arrival = buffer.arrival;
  arrival.here = static_cast<uint32_t>(arrival.from->count);
  const bool all = arrival.here == buffer.first.count;
  if (all || arrival.from->given_up) {
    arrival.given_up = !all;
    arrival.from->over = true;
    arrival.from = nullptr;
  }
  add_arrived(buffer);
}

// One job at a time; the next has all that has come meanwhile.
void HostRows::add_arrived(StepBuffer& buffer) {
  Arrival& arrival = buffer.arrival;
  if (arrival.adding) return;
  if (arrival.given_up) {
    buffer.coalescing = false;
    --*buffer.pending;
    return;
  }
  if (arrival.started && arrival.added == arrival.here) return;
  arrival.adding = true;
  buffer.job.cost_bytes = (arrival.here - arrival.added) * row_bytes_;
  buffer.arrival.until = arrival.here;
  compute_.submit(buffer.job);
}

void HostRows::end_arrived(StepBuffer& buffer) {
  Arrival& arrival = buffer.arrival;
  // Before there are rows of it.
  if (!arrival.started && is_alone_) {
    buffer.own.promise(coalescer_.item_count());
  }
  arrival.started = true;
  arrival.adding = false;
  arrival.added = arrival.until;
  arrival.ready = coalescer_.ready_count();
  const bool all = arrival.added == buffer.first.count;
  add_arrived(buffer);
  if (arrival.given_up) return;
  if (!is_alone_) {
    if (all) give_rows(buffer);
    return;
  }
  uint64_t left_bytes = ColumnSum::kAtOnceBytes;
  if (join_ready(buffer, &left_bytes) == Turn::kMore)
    outbox_.lending().wake(this, options_.priority);
}

// What is whole, and tells who goes on with it.
HostRows::Turn HostRows::join_ready(StepBuffer& buffer, uint64_t* left_bytes) {
  const Arrival& arrival = buffer.arrival;
  std::array<uint32_t, kRowsTogether> row_keys;
  std::array<const std::byte*, kRowsTogether> rows;
  while (buffer.arrival.joined < arrival.ready) {
    if (*left_bytes == 0) return Turn::kMore;
    const uint32_t count = std::min(arrival.ready - buffer.arrival.joined, kRowsTogether);
    for (uint32_t i = 0; i < count; ++i) {
      row_keys[i] = coalescer_.ready_row_key(buffer.arrival.joined + i);
      rows[i] = coalescer_.ready_row(buffer.arrival.joined + i);
    }
    const auto ready = std::span(row_keys).first(count);
    if (options_.rows_stay) {
      buffer.own.rows().join_distinct(ready, rows.data());
    } else {
      PARALLAX_CHECK(buffer.own.rows().join(ready, rows.data()));
    }
    buffer.arrival.joined += count;
    *left_bytes -= std::min(*left_bytes, count * row_bytes_);
  }
  if (arrival.added < buffer.first.count) {
    user_.on_host_rows(buffer.step);
    return Turn::kDone;
  }
  end_alone(buffer);
  return Turn::kDone;
}

}  // namespace parallax
