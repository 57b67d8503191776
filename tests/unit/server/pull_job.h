// SPDX-License-Identifier: Apache-2.0
// PullJob: the pull exchanges of a whole job over a SectionNetwork, each driven as an engine drives
// it: pulls one at a time and in order, then the end of the step; a step is decided, then applied.
// The oracle is a formula: every element of every variable at every version. Where pulls go early a
// step changes some rows only, by chance, and which is known once every rank has ended it.
#ifndef PARALLAX_TESTS_UNIT_SERVER_PULL_JOB_H_
#define PARALLAX_TESTS_UNIT_SERVER_PULL_JOB_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/leaving_elements.h"
#include "group/table_memory.h"
#include "server/pull_exchange.h"
#include "server/table.h"
#include "support/numbers.h"
#include "support/shared_host.h"
#include "support/stored_as.h"
#include "unit/server/layouts.h"
#include "unit/server/section_network.h"
#include "world/view.h"

namespace parallax::testkit {

inline Variable pulled_variable(uint64_t rows, uint64_t width, uint64_t rows_max, uint32_t dtype) {
  Variable variable;
  variable.name = "v";
  variable.rows = rows;
  variable.row_elements = width;
  variable.rows_max = rows_max;
  variable.dtype = dtype;
  variable.rule = PARALLAX_RULE_SUM;
  return variable;
}

// An integer that every dtype holds; neighbours in any direction differ.
inline double value_at(uint32_t variable, uint64_t row, uint64_t column, uint64_t version) {
  return static_cast<double>((row * 7 + column * 3 + version * 31 + variable * 101) % 251) + 1;
}

// What a rank wants of a variable, and where it goes.
struct Wish {
  Wish(uint32_t of, std::vector<int64_t> wide_ids, uint32_t as = PARALLAX_F32)
      : variable(of), ids(std::move(wide_ids)), dtype(as) {}
  static Wish whole(uint32_t of, uint32_t as = PARALLAX_F32) {
    Wish wish(of, {}, as);
    wish.every_row = true;
    return wish;
  }
  uint32_t variable;
  std::vector<int64_t> ids;
  uint32_t dtype;
  bool every_row = false;  // or the whole dense variable
  bool narrow = false;     // ids of 32 bits
  std::vector<int32_t> narrow_ids = {};
  Numbers out = {PARALLAX_F32, 0};
  // Told of rows, or elements, that are there; and which were.
  LeavingElements leaving = {};
  std::vector<bool> there = {};
};

struct Pull {
  uint64_t step = 0;
  bool ends = false;  // the end of the step, instead
  std::vector<Wish> wishes = {};
  bool started = false, done = false;
};

class PullJob {
 public:
  struct Rank {
    Rank(const HostMap& hosts, uint32_t rank, Outbox& outbox, uint64_t early_bytes_min,
         uint32_t staleness)
        : columns(hosts, rank),
          exchange(columns, outbox, {.early_bytes_min = early_bytes_min, .staleness = staleness}) {}
    Columns columns;
    PullExchange exchange;
    std::vector<std::unique_ptr<Table>> tables;  // by variable
    std::deque<Pull*> queue;
    uint64_t ended = 0, decided = 0, finished = 0;
  };

  // Without slots every rank owns alike; `piece_bytes_max` as SectionNetwork has it. `shares`:
  // ranks of a host may read each other's tables. `early_bytes_min` and `staleness` as PullExchange
  // has them.
  PullJob(const std::vector<uint32_t>& hosts, const std::vector<Variable>& variables, uint64_t seed,
          const SlotMap& slots = {}, size_t piece_bytes_max = 0, bool shares = false,
          uint64_t early_bytes_min = PullExchange::kNeverEarly, uint32_t staleness = 0)
      : hosts_(host_map(hosts)),
        slots_(first_view(hosts_, 1, slots).slots),
        variables_(variables),
        memory_(world_of(hosts)),
        shares_(shares),
        early_bytes_min_(early_bytes_min),
        staleness_(staleness),
        network_(world_of(hosts), seed, piece_bytes_max) {
    for (uint32_t id = 0; id < variables_.size(); ++id) {
      const Variable& each = variables_[id];
      partitions_.emplace_back(each.rows, each.row_elements, each.ids_declared(), slots_, id);
    }
    uint64_t rows_max = 0;
    for (const Variable& each : variables_) rows_max = std::max(rows_max, each.rows);
    Arena measure;
    changed_.lay_out(measure, rows_max);
    EXPECT_TRUE(index_memory_.reserve(measure.used_bytes()).ok());
    changed_.lay_out(index_memory_, rows_max);
    for (uint32_t rank = 0; rank < world(); ++rank) add_rank(rank);
    network_.on_section([this](uint32_t to, uint32_t from, const Section& section) {
      const bool fits = dispatch(to, from, section);
      advance(to);
      return fits;
    });
  }

  uint32_t world() const { return static_cast<uint32_t>(hosts_.host_of.size()); }
  SectionNetwork& network() { return network_; }
  SeededRandom& random() { return network_.random(); }
  // Reads what is there to be read, and completes what it completes.
  void advance(uint32_t rank) {
    Rank& mine = *ranks_[rank];
    answer_early(rank);
    while (!mine.queue.empty()) {
      Pull& next = *mine.queue.front();
      const bool early = mine.exchange.early() && !next.ends && mine.ended + 1 == next.step;
      if (mine.decided + 1 < next.step && !early) return;
      if (next.ends) {
        mine.ended = next.step;
        send_ended(rank, next.step);
      } else {
        if (!next.started) start(rank, next);
        // A rank whose table is being written is asked again when something happens.
        for (int turn = 0; turn < kTurnsMax && network_.outbox(rank).lending().read(); ++turn) {
        }
        if (!mine.exchange.finished() || mine.finished + 1 < next.step) return;
        mine.exchange.finish();
      }
      next.done = true;
      mine.queue.pop_front();
    }
  }
  PullExchange& exchange(uint32_t rank) { return ranks_[rank]->exchange; }
  SharedHost::Rank& memory(uint32_t rank) { return memory_.rank(rank); }
  Table& table(uint32_t rank, uint32_t variable) { return *ranks_[rank]->tables[variable]; }
  const Columns& columns(uint32_t rank) const { return ranks_[rank]->columns; }
  const Partition& partition(uint32_t variable) const { return partitions_[variable]; }
  const Variable& variable(uint32_t id) const { return variables_[id]; }

  // Sees every section that is delivered.
  std::function<void(uint32_t to, uint32_t from, const Section& section)> tap;

  Pull& pull(uint32_t rank, uint64_t step, std::vector<Wish> wishes) {
    Pull& posted = pulls_.emplace_back(Pull{.step = step, .wishes = std::move(wishes)});
    for (Wish& wish : posted.wishes) lay_out(wish);
    ranks_[rank]->queue.push_back(&posted);
    advance(rank);
    return posted;
  }
  void end(uint32_t rank, uint64_t step) {
    ranks_[rank]->queue.push_back(&pulls_.emplace_back(Pull{.step = step, .ends = true}));
    advance(rank);
  }
  void end_all(uint64_t step) {
    for (uint32_t rank = 0; rank < world(); ++rank) end(rank, step);
  }
  // The rank knows that `step` is decided, and may start what is of the next.
  void decide(uint32_t rank, uint64_t step) {
    ranks_[rank]->decided = step;
    ranks_[rank]->exchange.decided(step);
    advance(rank);
  }
  // It has applied the step, too: its rows are those of version `step`.
  void commit(uint32_t rank, uint64_t step) {
    Rank& mine = *ranks_[rank];
    mine.decided = mine.finished = step;
    fill_tables(rank, step);
    mine.exchange.decided(step);
    mine.exchange.open(step + 2);
    mine.exchange.applied(step);
    advance(rank);
  }
  // What an owner knows to be left alone by the step that it applies next.
  void answer_early(uint32_t rank) {
    Rank& mine = *ranks_[rank];
    const uint64_t step = mine.finished + 1;
    const bool known = std::all_of(ranks_.begin(), ranks_.end(),
                                   [step](const auto& each) { return each->ended >= step; });
    mine.exchange.answer_early(step, [&](uint32_t variable) -> const RowIndex* {
      if (!known) return nullptr;
      RowIndex& changed = changed_;
      changed.clear();
      const Partition& partition = partitions_[variable];
      for (uint64_t at = 0; at < partition.rows_owned(rank); ++at) {
        const uint32_t row_key = partition.row_key_at(rank, at);
        bool inserted;
        if (changes(partition.row_of(row_key), step)) changed.find_or_insert(row_key, &inserted);
      }
      return &changed;
    });
  }
  void commit_all(uint64_t step) {
    for (uint32_t rank = 0; rank < world(); ++rank) commit(rank, step);
  }

  // Everything that was asked for, as of the step before.
  void expect_values(const Pull& pull) const {
    ASSERT_TRUE(pull.done);
    for (const Wish& wish : pull.wishes) expect_elements(wish, pull.step, 0, wish.out.size());
  }
  // The step changes that row of every variable; else its values stay.
  bool changes(uint64_t row, uint64_t step) const {
    return early_bytes_min_ == PullExchange::kNeverEarly || (row * 5 + step * 3 + row / 7) % 3 == 0;
  }
  // From here on values are a test's own.
  void expect_any_values() { any_values_ = true; }
  // Of pulls so far: ranges that were there before all of their slice was told of.
  uint64_t told_in_parts() const { return told_in_parts_; }

 private:
  static constexpr int kTurnsMax = 100;

  void expect_elements(const Wish& wish, uint64_t step, size_t first, size_t end) const {
    const Variable& of = variables_[wish.variable];
    for (size_t i = first; i < end; ++i) {
      const size_t item = i / of.row_elements;
      const int64_t row = wish.every_row ? static_cast<int64_t>(item) : wish.ids[item];
      const double want = row == kPaddingId ? 0
                                            : value_after(wish.variable, static_cast<uint64_t>(row),
                                                          i % of.row_elements, step - 1);
      ASSERT_EQ(wish.out[i], want) << "variable " << wish.variable << ", row " << row;
    }
  }
  // They are as they will be, and were not told of before.
  void expect_there(Wish& wish, uint64_t step, uint64_t first, uint64_t count) {
    const Variable& of = variables_[wish.variable];
    const uint64_t unit = of.ids_declared() ? of.row_elements : 1;
    wish.there.resize(wish.out.size() / unit);
    ASSERT_LE(first + count, wish.there.size());
    for (uint64_t i = first; i < first + count; ++i) {
      ASSERT_FALSE(wish.there[i]) << "told twice";
      wish.there[i] = true;
    }
    told_in_parts_ += count < wish.there.size() ? 1 : 0;
    if (!any_values_) expect_elements(wish, step, first * unit, (first + count) * unit);
  }

  double value_after(uint32_t variable, uint64_t row, uint64_t column, uint64_t step) const {
    const bool whole = !variables_[variable].ids_declared();
    while (step > 0 && !whole && !changes(row, step)) --step;
    return value_at(variable, row, column, step);
  }

  static uint32_t world_of(const std::vector<uint32_t>& hosts) {
    return static_cast<uint32_t>(hosts.size());
  }

  void add_rank(uint32_t rank) {
    if (shares_) network_.set_memory(rank, &memory_.rank(rank));
    Rank& made = *ranks_.emplace_back(
        std::make_unique<Rank>(hosts_, rank, network_.outbox(rank), early_bytes_min_, staleness_));
    TableMemory& memory = *memories_.emplace_back(
        std::make_unique<TableMemory>(made.columns, network_.outbox(rank).lending()));
    for (uint32_t id = 0; id < variables_.size(); ++id) {
      EXPECT_TRUE(made.exchange.add_variable(id, variables_[id], partitions_[id]).ok());
      auto table = std::make_unique<Table>(variables_[id], partitions_[id], rank, true);
      EXPECT_TRUE(memory.reserve(*table).ok());
      made.exchange.set_table(id, table.get());
      made.tables.push_back(std::move(table));
    }
    fill_tables(rank, 0);
  }

  void fill_tables(uint32_t rank, uint64_t version) {
    for (uint32_t id = 0; id < variables_.size(); ++id) {
      Table& table = *ranks_[rank]->tables[id];
      const Partition& partition = partitions_[id];
      const uint64_t width = partition.row_elements();
      const uint64_t first = partition.ids_declared() ? 0 : partition.range_of(rank).first;
      std::vector<double> values(table.array(0).size() / bytes_of_dtype(table.dtype(0)));
      for (uint64_t i = 0; i < values.size(); ++i) {
        const uint64_t row = partition.ids_declared()
                                 ? partition.row_of(partition.row_key_at(rank, i / width))
                                 : (first + i) / width;
        values[i] = value_after(id, row, (first + i) % width, version);
      }
      Numbers numbers(table.dtype(0), values);
      if (!values.empty()) {
        std::memcpy(table.array(0).data(), numbers.data(), table.array(0).size());
      }
    }
  }

  void lay_out(Wish& wish) const {
    const Variable& of = variables_[wish.variable];
    if (!of.ids_declared()) wish.every_row = true;
    const uint64_t rows = wish.every_row ? of.rows : wish.ids.size();
    wish.out = Numbers(wish.dtype, rows * of.row_elements, -1);
    wish.narrow_ids.assign(wish.ids.begin(), wish.ids.end());
  }

  bool dispatch(uint32_t to, uint32_t from, const Section& section) {
    if (tap) tap(to, from, section);
    Rank& mine = *ranks_[to];
    const uint64_t step = section.header.step;
    const SectionKind kind = section.header.kind;
    if (kind == SectionKind::kTablePlace || kind == SectionKind::kTablesCurrent) {
      return step <= mine.finished + 2 &&
             mine.exchange.on_tables(from, section, step <= mine.finished);
    }
    if (section.header.kind == SectionKind::kStepEnded && step <= mine.finished) return true;
    const bool asks = kind == SectionKind::kPullLocal || kind == SectionKind::kPullHost;
    const uint64_t open = mine.finished + (asks && hosts_.ranks_of.size() > 1 ? 3 : 2);
    if (step <= mine.finished || step > open) return false;
    if (section.header.kind != SectionKind::kStepEnded) {
      return mine.exchange.on_section(from, section);
    }
    return mine.exchange.end_local(from, step);
  }

  void start(uint32_t rank, Pull& pull) {
    pull.started = true;
    std::vector<PullSlice> slices;
    for (Wish& wish : pull.wishes) {
      PullSlice slice = {.variable = wish.variable,
                         .ids = {},
                         .count = static_cast<uint32_t>(wish.ids.size()),
                         .values = static_cast<std::byte*>(wish.out.data()),
                         .dtype = wish.dtype,
                         .every_row = wish.every_row};
      if (wish.every_row) {
        slice.count = static_cast<uint32_t>(variables_[wish.variable].rows);
      } else if (wish.narrow) {
        slice.ids.narrow = wish.narrow_ids.data();
      } else {
        slice.ids.wide = wish.ids.data();
      }
      wish.leaving.there = [this, &wish, step = pull.step](uint64_t first, uint64_t count) {
        expect_there(wish, step, first, count);
      };
      slice.leaving = &wish.leaving;
      slices.push_back(slice);
    }
    ranks_[rank]->exchange.start(pull.step, slices);
  }

  void send_ended(uint32_t rank, uint64_t step) {
    const Columns& columns = ranks_[rank]->columns;
    Send send;
    send.header.kind = SectionKind::kStepEnded;
    send.header.step = step;
    for (uint32_t column = 0; column < columns.count(); ++column) {
      network_.outbox(rank).add(columns.leader(columns.host(), column), send);
    }
  }

  const HostMap hosts_;
  const SlotMap slots_;
  const std::vector<Variable> variables_;
  std::vector<Partition> partitions_;
  SharedHost memory_;
  const bool shares_;
  const uint64_t early_bytes_min_;
  const uint32_t staleness_;
  SectionNetwork network_;
  std::vector<std::unique_ptr<TableMemory>> memories_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::deque<Pull> pulls_;
  Arena index_memory_;
  RowIndex changed_;
  uint64_t told_in_parts_ = 0;
  bool any_values_ = false;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_SERVER_PULL_JOB_H_
