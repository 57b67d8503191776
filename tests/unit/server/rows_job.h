// SPDX-License-Identifier: Apache-2.0
// RowsJob: the row access of a whole job over a SectionNetwork, driven at each rank as an engine
// drives it: one call at a time and in order. The oracle is the whole of every array as plain
// numbers, which a write changes at once.
#ifndef PARALLAX_TESTS_UNIT_SERVER_ROWS_JOB_H_
#define PARALLAX_TESTS_UNIT_SERVER_ROWS_JOB_H_

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "server/row_access.h"
#include "server/table.h"
#include "support/numbers.h"
#include "support/slot_maps.h"
#include "support/stored_as.h"
#include "unit/server/layouts.h"
#include "unit/server/section_network.h"
#include "world/view.h"

namespace parallax::testkit {

inline Variable managed_variable(uint64_t rows, uint64_t width, bool ids, uint32_t rule,
                                 uint32_t dtype = PARALLAX_F32) {
  Variable variable;
  variable.name = "v";
  variable.rows = rows;
  variable.row_elements = width;
  variable.rows_max = ids ? 4 : 0;
  variable.rule = rule;
  variable.dtype = dtype;
  return variable;
}

struct Placed {
  Variable variable;
  bool sharded = true;
};

// Bit i: array i. The value, the first state, the second.
inline constexpr uint32_t kAllArrays = 7;

// A call of a rank, with buffers of its own: -1 where nothing came.
struct RowsRequest {
  enum class Kind : uint8_t { kRead, kWrite, kPull };
  Kind kind = Kind::kRead;
  RowsCall call = {};
  std::vector<int64_t> ids = {};
  std::deque<Numbers> parts = {};
  uint64_t updates = 0;
  uint32_t pending = 0;
  bool started = false, done = false;
  Status status = {};
};

class RowsJob {
 public:
  struct Rank final : public HeldTables {
    Rank(const HostMap& hosts, uint32_t rank, Outbox& outbox)
        : columns(hosts, rank), exchange(columns, outbox, *this) {}
    Table* table_of(uint32_t variable) override {
      return variable < tables.size() ? tables[variable].get() : nullptr;
    }
    uint64_t step_finished() const override { return finished; }
    bool in_step() const override { return stepping; }

    std::vector<std::unique_ptr<Table>> tables;
    uint64_t finished = 0;
    bool stepping = false;
    Columns columns;
    RowAccess exchange;
    std::deque<RowsRequest*> queue;
  };

  // Without slots every rank owns alike.
  RowsJob(const std::vector<uint32_t>& hosts, const std::vector<Placed>& placed, uint64_t seed,
          const SlotMap& slots = {})
      : hosts_(host_map(hosts)),
        slots_(first_view(hosts_, 1, slots).slots),
        placed_(placed),
        network_(static_cast<uint32_t>(hosts.size()), seed) {
    for (uint32_t id = 0; id < placed_.size(); ++id) {
      const Variable& each = placed_[id].variable;
      partitions_.emplace_back(each.rows, each.row_elements, each.ids_declared(), slots_, id);
    }
    for (uint32_t rank = 0; rank < world(); ++rank) add_rank(rank);
    for (uint32_t id = 0; id < placed_.size(); ++id) {
      std::vector<std::vector<double>>& arrays = contents_.emplace_back();
      for (uint32_t array = 0; array < table(0, id).array_count(); ++array) {
        arrays.emplace_back(placed_[id].variable.rows * table(0, id).array_width(array));
      }
    }
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      const bool fits = dispatch(to, from, section);
      advance(to);
      return fits;
    });
    network_.on_packed([this](uint32_t rank) { advance(rank); });
  }

  uint32_t world() const { return static_cast<uint32_t>(hosts_.host_of.size()); }
  SectionNetwork& network() { return network_; }
  SeededRandom& random() { return network_.random(); }
  Rank& rank(uint32_t rank) { return *ranks_[rank]; }
  RowAccess& exchange(uint32_t rank) { return ranks_[rank]->exchange; }
  Table& table(uint32_t rank, uint32_t variable) { return *ranks_[rank]->tables[variable]; }
  const Partition& partition(uint32_t variable) const { return partitions_[variable]; }
  uint32_t owner_of_row(uint32_t variable, uint64_t row) const {
    return partitions_[variable].owner_of(partitions_[variable].row_key_of(row));
  }

  // Sees every section that is delivered.
  std::function<void(uint32_t to, uint32_t from, const Section& section)> tap;

  RowsRequest& read(uint32_t rank, uint32_t variable, uint64_t first, uint64_t count,
                    uint32_t arrays = kAllArrays) {
    return post(rank, new_request(RowsRequest::Kind::kRead, variable, first, count, arrays));
  }
  // Writes what a row is by its number and `salt`, and `salt` updates.
  RowsRequest& write(uint32_t rank, uint32_t variable, uint64_t first, uint64_t count,
                     uint32_t arrays, uint32_t salt) {
    RowsRequest& request = new_request(RowsRequest::Kind::kWrite, variable, first, count, arrays);
    request.updates = salt;
    for (uint32_t array = 0; array < contents_[variable].size(); ++array) {
      if ((arrays >> array & 1) == 0) continue;
      const uint64_t begin = first * table(0, variable).array_width(array);
      for (size_t i = 0; i < request.parts[array].size(); ++i) {
        const double value = static_cast<double>(((begin + i) * 3 + array * 40 + salt) % 200);
        request.parts[array].set(i, value);
        contents_[variable][array][begin + i] = value;
      }
    }
    return post(rank, request);
  }
  RowsRequest& pull(uint32_t rank, uint32_t variable, std::vector<int64_t> ids,
                    uint32_t dtype = PARALLAX_F32) {
    RowsRequest& request = requests_.emplace_back();
    request.kind = RowsRequest::Kind::kPull;
    request.ids = std::move(ids);
    const uint64_t width = placed_[variable].variable.row_elements;
    request.parts.emplace_back(dtype, request.ids.size() * width, -1);
    request.call = {.variable = variable, .row_count = request.ids.size(), .dtype = dtype};
    request.call.parts[0] = static_cast<std::byte*>(request.parts[0].data());
    request.call.ids.wide = request.ids.data();
    return post(rank, request);
  }

  // What was asked for is as the oracle has it, and nothing else was touched.
  void expect_contents(const RowsRequest& request) const {
    ASSERT_TRUE(request.done && request.status.ok()) << request.status.message();
    const uint32_t variable = request.call.variable;
    const uint64_t width = placed_[variable].variable.row_elements;
    for (size_t array = 0; array < request.parts.size(); ++array) {
      const bool asked = request.call.parts[array] != nullptr;
      for (size_t i = 0; i < request.parts[array].size(); ++i) {
        ASSERT_EQ(request.parts[array][i], asked ? wanted(request, array, i, width) : -1)
            << "variable " << variable << ", array " << array << ", number " << i;
      }
    }
  }
  // Every table that holds rows of a variable holds those of the oracle.
  void expect_tables() {
    for (uint32_t id = 0; id < placed_.size(); ++id) {
      for (uint32_t rank = 0; rank < world(); ++rank) {
        for (uint32_t array = 0; array < contents_[id].size(); ++array)
          expect_array(rank, id, array);
      }
    }
  }

 private:
  void add_rank(uint32_t rank) {
    Rank& made = *ranks_.emplace_back(std::make_unique<Rank>(hosts_, rank, network_.outbox(rank)));
    for (uint32_t id = 0; id < placed_.size(); ++id) {
      made.tables.push_back(std::make_unique<Table>(placed_[id].variable, partitions_[id], rank,
                                                    placed_[id].sharded));
      EXPECT_TRUE(made.tables.back()->reserve().ok());
    }
  }

  RowsRequest& new_request(RowsRequest::Kind kind, uint32_t variable, uint64_t first,
                           uint64_t count, uint32_t arrays) {
    RowsRequest& request = requests_.emplace_back();
    const Table& of = table(0, variable);
    request.kind = kind;
    request.call = {.variable = variable,
                    .first_row = first,
                    .row_count = count,
                    .dtype = dtype_of(of.sum_type()),
                    .updates = &request.updates};
    for (uint32_t array = 0; array < of.array_count(); ++array) {
      request.parts.emplace_back(request.call.dtype, count * of.array_width(array), -1);
      if ((arrays >> array & 1) == 0) continue;
      request.call.parts[array] = static_cast<std::byte*>(request.parts[array].data());
    }
    return request;
  }
  RowsRequest& post(uint32_t rank, RowsRequest& request) {
    ranks_[rank]->queue.push_back(&request);
    advance(rank);
    return request;
  }

  double wanted(const RowsRequest& request, size_t array, size_t i, uint64_t width) const {
    const std::vector<double>& all = contents_[request.call.variable][array];
    if (request.kind != RowsRequest::Kind::kPull) {
      const uint64_t rows = placed_[request.call.variable].variable.rows;
      return all[request.call.first_row * (all.size() / rows) + i];
    }
    const int64_t id = request.ids[i / width];
    return id == kPaddingId ? 0 : all[static_cast<uint64_t>(id) * width + i % width];
  }

  void expect_array(uint32_t rank, uint32_t id, uint32_t array) {
    const Table& held = table(rank, id);
    const Partition& partition = partitions_[id];
    const uint64_t width = held.array_width(array);
    const Range range = held.sharded() ? partition.range_of(rank) : Range{0, partition.elements()};
    const std::vector<double>& all = contents_[id][array];
    for (uint64_t i = 0; i < all.size(); ++i) {
      const std::byte* number = nullptr;
      if (partition.ids_declared()) {
        const uint32_t row_key = partition.row_key_of(i / width);
        if (held.sharded() && partition.owner_of(row_key) != rank) continue;
        number = held.row_at(array, held.row_of(row_key)) +
                 i % width * bytes_of_dtype(held.dtype(array));
      } else {
        if (i < range.first || i >= range.end()) continue;
        number = held.element_at(array, i);
      }
      ASSERT_EQ(Numbers::read(held.dtype(array), number, 0), all[i])
          << "rank " << rank << ", variable " << id << ", array " << array << ", number " << i;
    }
  }

  bool dispatch(uint32_t to, uint32_t from, const Section& section) {
    if (tap) tap(to, from, section);
    RowAccess& mine = exchange(to);
    return mine.on_section(from, section);
  }

  void advance(uint32_t rank) {
    Rank& mine = *ranks_[rank];
    mine.exchange.advance();
    while (!mine.queue.empty()) {
      RowsRequest& first = *mine.queue.front();
      if (!first.started) start(mine, first);
      if (!mine.exchange.finished() || first.pending != 0) return;
      first.status = mine.exchange.finish();
      first.done = true;
      mine.queue.pop_front();
    }
  }
  static void start(Rank& mine, RowsRequest& request) {
    request.started = true;
    switch (request.kind) {
      case RowsRequest::Kind::kRead:
        return mine.exchange.start_read(request.call);
      case RowsRequest::Kind::kWrite:
        return mine.exchange.start_write(request.call, &request.pending);
      case RowsRequest::Kind::kPull:
        return mine.exchange.start_pull(request.call);
    }
  }

  const HostMap hosts_;
  const SlotMap slots_;
  const std::vector<Placed> placed_;
  std::vector<Partition> partitions_;
  SectionNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::vector<std::vector<double>>> contents_;  // by variable and array
  std::deque<RowsRequest> requests_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_SERVER_ROWS_JOB_H_
