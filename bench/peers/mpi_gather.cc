// SPDX-License-Identifier: Apache-2.0
// Sparse steps over collectives of MPI. See mpi_ways.h.
#include <algorithm>
#include <span>

#include "mpi_ways.h"

namespace parallax::peers {
namespace {

// Counts of each rank, and where each one's part begins.
struct Parts {
  std::vector<int> counts, offsets;

  void lay_out() {
    offsets.assign(counts.size(), 0);
    for (size_t at = 1; at < counts.size(); ++at) offsets[at] = offsets[at - 1] + counts[at - 1];
  }
  uint64_t all() const { return static_cast<uint64_t>(offsets.back() + counts.back()); }
};

class Collectives : public MpiWay {
 protected:
  Collectives(const SparseStep& step, WireBuffers& wire) : step_(step), wire_(wire) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &world_);
  }

  // What comes of each rank, by how many ids of each table: of rank `r`, `counts[r * tables]`...
  void expect_parts(const std::vector<int>& counts) {
    const size_t tables = step_.tables.size();
    ids_.counts.assign(static_cast<size_t>(world_), 0);
    values_.counts.assign(static_cast<size_t>(world_), 0);
    for (size_t part = 0; part < counts.size(); ++part) {
      ids_.counts[part / tables] += counts[part];
      values_.counts[part / tables] +=
          counts[part] * static_cast<int>(step_.tables[part % tables].width);
    }
    ids_.lay_out();
    values_.lay_out();
    make_room(wire_.ids_came, ids_.all());
    make_room(wire_.came, values_.all());
  }

  void look_up_all(const TableParts& tables, const Buffers& buffers, const int64_t* ids) const {
    for (size_t table = 0; table < step_.tables.size(); ++table) {
      const auto& each = step_.tables[table];
      look_up(each, ids + each.first_id, tables.values(table), &buffers.values[each.first_value]);
    }
  }

  // Every rank has all ranks' ids and rows, so many as expect_parts() was told.
  void gather(const std::vector<int32_t>& ids, const float* values, uint64_t count) {
    expect_mpi(
        MPI_Allgatherv(ids.data(), static_cast<int>(ids.size()), MPI_INT32_T, wire_.ids_came.data(),
                       ids_.counts.data(), ids_.offsets.data(), MPI_INT32_T, MPI_COMM_WORLD),
        "MPI_Allgatherv");
    expect_mpi(
        MPI_Allgatherv(values, static_cast<int>(count), MPI_FLOAT, wire_.came.data(),
                       values_.counts.data(), values_.offsets.data(), MPI_FLOAT, MPI_COMM_WORLD),
        "MPI_Allgatherv");
  }
  // How many ids of each table every rank gathers.
  void gather_counts(const std::vector<int>& own, std::vector<int>& counts) const {
    const auto tables = static_cast<int>(step_.tables.size());
    expect_mpi(
        MPI_Allgather(own.data(), tables, MPI_INT, counts.data(), tables, MPI_INT, MPI_COMM_WORLD),
        "MPI_Allgather");
  }

  // The distinct ids of this rank, at their owners; then the sums of their rows.
  void ask_owners(std::vector<int>& counts) {
    mine_ids_.counts = groups_.owner_ids();
    mine_ids_.lay_out();
    mine_.counts = groups_.owner_values();
    mine_.lay_out();
    const auto tables = static_cast<int>(step_.tables.size());
    expect_mpi(MPI_Alltoall(groups_.counts().data(), tables, MPI_INT, counts.data(), tables,
                            MPI_INT, MPI_COMM_WORLD),
               "MPI_Alltoall");
    expect_parts(counts);
    expect_mpi(MPI_Alltoallv(groups_.places().data(), mine_ids_.counts.data(),
                             mine_ids_.offsets.data(), MPI_INT32_T, wire_.ids_came.data(),
                             ids_.counts.data(), ids_.offsets.data(), MPI_INT32_T, MPI_COMM_WORLD),
               "MPI_Alltoallv");
  }
  void give_owners(const float* gradients) {
    make_room(wire_.sent, groups_.values());
    groups_.sum(gradients, wire_.sent.data());
    expect_mpi(MPI_Alltoallv(wire_.sent.data(), mine_.counts.data(), mine_.offsets.data(),
                             MPI_FLOAT, wire_.came.data(), values_.counts.data(),
                             values_.offsets.data(), MPI_FLOAT, MPI_COMM_WORLD),
               "MPI_Alltoallv");
  }

  // Calls each(table, given) with what came of each table, by rank.
  template <typename Each>
  void for_tables(const std::vector<int>& counts, const Each& each) {
    std::vector<GivenRows> given(static_cast<size_t>(world_));
    for (size_t rank = 0; rank < given.size(); ++rank) {
      given[rank] = {&wire_.ids_came[static_cast<size_t>(ids_.offsets[rank])],
                     &wire_.came[static_cast<size_t>(values_.offsets[rank])], 0};
    }
    for (size_t table = 0; table < step_.tables.size(); ++table) {
      for (size_t rank = 0; rank < given.size(); ++rank) {
        auto& part = given[rank];
        part.places += part.count;
        if (table > 0) part.rows += part.count * step_.tables[table - 1].width;
        part.count = static_cast<uint64_t>(counts[rank * step_.tables.size() + table]);
      }
      each(table, std::span<const GivenRows>(given));
    }
  }

  // Updates `tables` by what came, so many rows as expect_parts() was told.
  void update_all(const TableParts& tables, const std::vector<int>& counts) {
    for_tables(counts, [&](size_t table, std::span<const GivenRows> given) {
      updater_.update_table(step_.rule, step_.tables[table].width, given, tables.values(table),
                            tables.state(table));
    });
  }

  const SparseStep step_;
  WireBuffers& wire_;
  int rank_ = 0, world_ = 0;
  Parts ids_, values_;     // of what comes of each rank
  Parts mine_ids_, mine_;  // of what this rank has of each owner's
  Groups groups_;
  Updater updater_;
};

class Gather final : public Collectives {
 public:
  Gather(const SparseStep& step, const TableParts& tables, bool merges, WireBuffers& wire)
      : Collectives(step, wire), merges_(merges), tables_(tables) {
    // Nobody merges, so everybody has as many ids.
    for (int rank = 0; rank < world_; ++rank) {
      for (const auto& table : step.tables) counts_.push_back(static_cast<int>(table.ids));
    }
    expect_parts(counts_);
  }

  Took run(const Buffers& buffers, const int64_t* ids) override {
    const int64_t start_ns = now_ns();
    look_up_all(tables_, buffers, ids);
    const int64_t looked_up_ns = now_ns();
    compute(step_);
    if (merges_) {
      merge(buffers.gradients.data(), ids);
    } else {
      make_room(wire_.ids_came, ids_.all());
      make_room(wire_.came, values_.all());
      wire_.ids_sent.assign(ids, ids + step_.ids);
      gather(wire_.ids_sent, buffers.gradients.data(), step_.values);
    }
    update_all(tables_, counts_);
    return {looked_up_ns - start_ns, now_ns() - start_ns};
  }

 private:
  void merge(const float* gradients, const int64_t* ids) {
    groups_.group(step_, ids, 1);
    make_room(wire_.sent, step_.values);
    groups_.sum(gradients, wire_.sent.data());
    gather_counts(groups_.counts(), counts_);
    expect_parts(counts_);
    gather(groups_.places(), wire_.sent.data(), groups_.values());
  }

  const bool merges_;
  const TableParts& tables_;
  std::vector<int> counts_;  // of each rank, of each table
};

class Owners final : public Collectives {
 public:
  Owners(const SparseStep& step, WireBuffers& wire)
      : Collectives(step, wire),
        tables_(step, static_cast<uint32_t>(world_)),
        counts_(static_cast<size_t>(world_) * step.tables.size()) {}

  Took run(const Buffers& buffers, const int64_t* ids) override {
    const int64_t start_ns = now_ns();
    groups_.group(step_, ids, static_cast<uint32_t>(world_));
    ask_owners(counts_);
    answer();
    groups_.expand(wire_.came.data(), buffers.values.data());
    const int64_t looked_up_ns = now_ns();
    compute(step_);
    give_owners(buffers.gradients.data());
    update_all(tables_, counts_);
    return {looked_up_ns - start_ns, now_ns() - start_ns};
  }

 private:
  void answer() {
    make_room(wire_.sent, values_.all());
    make_room(wire_.came, mine_.all());
    float* to = wire_.sent.data();
    const int32_t* place = wire_.ids_came.data();
    for (size_t part = 0; part < counts_.size(); ++part) {
      const size_t table = part % step_.tables.size();
      const uint64_t width = step_.tables[table].width;
      for (int at = 0; at < counts_[part]; ++at, ++place, to += width) {
        std::copy_n(tables_.values(table) + static_cast<uint64_t>(*place) * width, width, to);
      }
    }
    expect_mpi(MPI_Alltoallv(wire_.sent.data(), values_.counts.data(), values_.offsets.data(),
                             MPI_FLOAT, wire_.came.data(), mine_.counts.data(),
                             mine_.offsets.data(), MPI_FLOAT, MPI_COMM_WORLD),
               "MPI_Alltoallv");
  }

  const TableParts tables_;
  std::vector<int> counts_;  // of what each rank asks for, of each table
};

class Balanced final : public Collectives {
 public:
  Balanced(const SparseStep& step, const TableParts& tables, WireBuffers& wire)
      : Collectives(step, wire),
        tables_(tables),
        counts_(static_cast<size_t>(world_) * step.tables.size()),
        own_counts_(step.tables.size()) {}

  Took run(const Buffers& buffers, const int64_t* ids) override {
    const int64_t start_ns = now_ns();
    look_up_all(tables_, buffers, ids);
    const int64_t looked_up_ns = now_ns();
    compute(step_);
    groups_.group(step_, ids, static_cast<uint32_t>(world_));
    ask_owners(counts_);
    give_owners(buffers.gradients.data());
    const uint64_t values = sum_own();
    gather_counts(own_counts_, counts_);
    expect_parts(counts_);
    gather(wire_.ids_sent, wire_.sent.data(), values);
    update_whole();
    return {looked_up_ns - start_ns, now_ns() - start_ns};
  }

 private:
  // Sums what this owner was given into what it sends; how many numbers.
  uint64_t sum_own() {
    wire_.ids_sent.clear();
    make_room(wire_.sent, values_.all());
    float* to = wire_.sent.data();
    for_tables(counts_, [&](size_t table, std::span<const GivenRows> given) {
      const uint64_t width = step_.tables[table].width;
      const auto sums = updater_.sum_table(width, given);
      own_counts_[table] = static_cast<int>(sums.size());
      for (const auto& sum : sums) {
        wire_.ids_sent.push_back(sum.place * world_ + rank_);
        to = std::copy_n(sum.row, width, to);
      }
    });
    return static_cast<uint64_t>(to - wire_.sent.data());
  }

  // No id comes of two owners.
  void update_whole() {
    for_tables(counts_, [&](size_t table, std::span<const GivenRows> given) {
      for (const auto& each : given) {
        update_rows(step_.rule, step_.tables[table].width, each, tables_.values(table),
                    tables_.state(table));
      }
    });
  }

  const TableParts& tables_;
  std::vector<int> counts_, own_counts_;  // of each rank, of each table; of this rank's sums
};

}  // namespace

std::unique_ptr<MpiWay> gather_way(const SparseStep& step, const TableParts& tables, bool merges,
                                   WireBuffers& wire) {
  return std::make_unique<Gather>(step, tables, merges, wire);
}

std::unique_ptr<MpiWay> balanced_way(const SparseStep& step, const TableParts& tables,
                                     WireBuffers& wire) {
  return std::make_unique<Balanced>(step, tables, wire);
}

std::unique_ptr<MpiWay> owners_way(const SparseStep& step, WireBuffers& wire) {
  return std::make_unique<Owners>(step, wire);
}

}  // namespace parallax::peers
