// SPDX-License-Identifier: Apache-2.0
// Messages of ids, of rows and of gradients. See mpi_ranges.h.
#include "mpi_ranges.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace parallax::peers {

MpiRanges::MpiRanges(const SparseStep& step, WireBuffers& wire) : step_(step), wire_(wire) {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  int world = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  world_ = static_cast<size_t>(world);
  first_.resize(step.tables.size() * (world_ + 1));
  count_.resize(step.tables.size() * world_);
  given_.resize(world_);
  order_.resize(step.ids);
  // Of a rank: its rows, and their places before them.
  stride_ = step.values + step.ids;
}

// ---- messages

// Calls each(table, rank) of the other ranks.
template <typename Each>
void MpiRanges::for_others(const Each& each) {
  for (size_t table = 0; table < step_.tables.size(); ++table) {
    for (size_t rank = 0; rank < world_; ++rank) {
      if (!is_own(rank)) each(table, rank);
    }
  }
}

template <typename Call>
void MpiRanges::post(const Call& call, const char* name) {
  requests_.push_back(MPI_REQUEST_NULL);
  expect_mpi(call(&requests_.back()), name);
}

void MpiRanges::send(const void* from, uint64_t count, MPI_Datatype type, size_t to, size_t table) {
  post(
      [&](MPI_Request* request) {
        return MPI_Isend(from, static_cast<int>(count), type, static_cast<int>(to),
                         static_cast<int>(table), MPI_COMM_WORLD, request);
      },
      "MPI_Isend");
}

void MpiRanges::receive(void* to, uint64_t count, MPI_Datatype type, size_t from, size_t table) {
  post(
      [&](MPI_Request* request) {
        return MPI_Irecv(to, static_cast<int>(count), type, static_cast<int>(from),
                         static_cast<int>(table), MPI_COMM_WORLD, request);
      },
      "MPI_Irecv");
}

void MpiRanges::wait_all() {
  statuses_.resize(requests_.size());
  expect_mpi(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), statuses_.data()),
             "MPI_Waitall");
  requests_.clear();
}

// ---- steps

void MpiRanges::pull(const TableParts& tables, const int64_t* ids, float* values) {
  make_room(wire_.ids_sent, step_.ids);
  make_room(wire_.ids_came, step_.ids * world_);
  make_room(wire_.sent, std::max(stride_, step_.values * world_));
  make_room(wire_.came, stride_ * world_);
  for (size_t table = 0; table < step_.tables.size(); ++table) sort_by_server(table, ids);
  ask();
  answer(tables);
  for (size_t table = 0; table < step_.tables.size(); ++table) {
    scatter(table, wire_.came.data(), values);
  }
}

void MpiRanges::push(const float* gradients) {
  for_others([&](size_t table, size_t rank) {
    const auto& of = step_.tables[table];
    receive(&wire_.came[rank * stride_ + message_at(table, of.first_id)], of.ids * (of.width + 1),
            MPI_FLOAT, rank, table);
  });
  for (size_t table = 0; table < step_.tables.size(); ++table) {
    for (size_t rank = 0; rank < world_; ++rank) {
      const uint64_t count = ids_to(table, rank);
      float* const message = wire_.sent.data() + message_at(table, first_of(table, rank));
      pack(table, first_of(table, rank), count, gradients, message);
      if (is_own(rank)) continue;
      send(message, count * (step_.tables[table].width + 1), MPI_FLOAT, rank, table);
    }
  }
  wait_all();
}

const std::vector<GivenRows>& MpiRanges::given(size_t table) {
  const auto& of = step_.tables[table];
  for (size_t rank = 0; rank < world_; ++rank) {
    const bool own = is_own(rank);
    const uint64_t count = own ? ids_to(table, rank) : count_[table * world_ + rank];
    float* const message = own ? wire_.sent.data() + message_at(table, first_of(table, rank))
                               : &wire_.came[rank * stride_ + message_at(table, of.first_id)];
    int32_t* const places = &wire_.ids_came[rank * step_.ids + of.first_id];
    std::memcpy(places, message, count * sizeof(int32_t));
    given_[rank] = {places, message + count, count};
  }
  return given_;
}

// ---- ids and rows

void MpiRanges::sort_by_server(size_t table, const int64_t* ids) {
  const auto& of = step_.tables[table];
  const int64_t* const from = ids + of.first_id;
  const auto range = static_cast<uint32_t>(this->range(table));
  std::vector<uint64_t> next(world_ + 1);
  for (uint64_t at = 0; at < of.ids; ++at) ++next[static_cast<uint32_t>(from[at]) / range + 1];
  next[0] = of.first_id;
  for (size_t rank = 0; rank < world_; ++rank) next[rank + 1] += next[rank];
  std::copy(next.begin(), next.end(), &first_[table * (world_ + 1)]);
  for (uint64_t at = 0; at < of.ids; ++at) {
    const auto id = static_cast<uint32_t>(from[at]);
    const uint64_t to = next[id / range]++;
    wire_.ids_sent[to] = static_cast<int32_t>(id % range);
    order_[to] = static_cast<uint32_t>(at);
  }
}

// Every server has all ids of its rows, and how many.
void MpiRanges::ask() {
  for_others([&](size_t table, size_t rank) {
    const auto& of = step_.tables[table];
    receive(&wire_.ids_came[rank * step_.ids + of.first_id], of.ids, MPI_INT32_T, rank, table);
  });
  const size_t received = requests_.size();
  for_others([&](size_t table, size_t rank) {
    send(wire_.ids_sent.data() + first_of(table, rank), ids_to(table, rank), MPI_INT32_T, rank,
         table);
  });
  wait_all();
  size_t request = 0;
  for_others([&](size_t table, size_t rank) {
    int count = 0;
    MPI_Get_count(&statuses_[request++], MPI_INT32_T, &count);
    count_[table * world_ + rank] = static_cast<uint64_t>(count);
  });
  if (request != received) fail("messages do not add up");
}

// Rows of the servers, in the order of the ids that were sent.
void MpiRanges::answer(const TableParts& tables) {
  for_others([&](size_t table, size_t rank) {
    receive(row_at(wire_.came.data(), table, first_of(table, rank)),
            ids_to(table, rank) * step_.tables[table].width, MPI_FLOAT, rank, table);
  });
  for (size_t table = 0; table < step_.tables.size(); ++table) {
    const auto& of = step_.tables[table];
    const auto own = static_cast<size_t>(rank_);
    look_up_places(table, tables.values(table), wire_.ids_sent.data() + first_of(table, own),
                   ids_to(table, own), row_at(wire_.came.data(), table, first_of(table, own)));
    for (size_t rank = 0; rank < world_; ++rank) {
      if (is_own(rank)) continue;
      const uint64_t count = count_[table * world_ + rank];
      float* const rows = &wire_.sent[rank * step_.values + of.first_value];
      look_up_places(table, tables.values(table), &wire_.ids_came[rank * step_.ids + of.first_id],
                     count, rows);
      send(rows, count * of.width, MPI_FLOAT, rank, table);
    }
  }
  wait_all();
}

float* MpiRanges::row_at(float* rows, size_t table, uint64_t id_at) const {
  const auto& of = step_.tables[table];
  return rows + of.first_value + (id_at - of.first_id) * of.width;
}

void MpiRanges::look_up_places(size_t table, const float* values, const int32_t* places,
                               uint64_t count, float* rows) const {
  const uint64_t width = step_.tables[table].width;
  for (uint64_t at = 0; at < count; ++at, rows += width) {
    std::memcpy(rows, values + static_cast<uint64_t>(places[at]) * width, width * sizeof(float));
  }
}

void MpiRanges::scatter(size_t table, const float* rows, float* values) const {
  const auto& of = step_.tables[table];
  rows += of.first_value;
  for (uint64_t at = 0; at < of.ids; ++at, rows += of.width) {
    std::memcpy(values + of.first_value + order_[of.first_id + at] * of.width, rows,
                of.width * sizeof(float));
  }
}

// A message: places, then rows.
uint64_t MpiRanges::message_at(size_t table, uint64_t id_at) const {
  const auto& of = step_.tables[table];
  return of.first_value + of.first_id + (id_at - of.first_id) * (of.width + 1);
}

void MpiRanges::pack(size_t table, uint64_t first, uint64_t count, const float* gradients,
                     float* message) const {
  const auto& of = step_.tables[table];
  std::memcpy(message, wire_.ids_sent.data() + first, count * sizeof(int32_t));
  float* row = message + count;
  for (uint64_t at = 0; at < count; ++at, row += of.width) {
    std::memcpy(row, gradients + of.first_value + order_[first + at] * of.width,
                of.width * sizeof(float));
  }
}

namespace {

class Ranges final : public MpiWay {
 public:
  Ranges(const SparseStep& step, WireBuffers& wire) : step_(step), ranges_(step, wire) {
    int world = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    tables_ = std::make_unique<TableParts>(step, static_cast<uint32_t>(world));
  }

  Took run(const Buffers& buffers, const int64_t* ids) override {
    const int64_t start_ns = now_ns();
    ranges_.pull(*tables_, ids, buffers.values.data());
    const int64_t looked_up_ns = now_ns();
    compute(step_);
    ranges_.push(buffers.gradients.data());
    for (size_t table = 0; table < step_.tables.size(); ++table) {
      updater_.update_table(step_.rule, step_.tables[table].width, ranges_.given(table),
                            tables_->values(table), tables_->state(table));
    }
    return {looked_up_ns - start_ns, now_ns() - start_ns};
  }

 private:
  const SparseStep step_;
  MpiRanges ranges_;
  std::unique_ptr<TableParts> tables_;
  Updater updater_;
};

}  // namespace

std::unique_ptr<MpiWay> ranges_way(const SparseStep& step, WireBuffers& wire) {
  return std::make_unique<Ranges>(step, wire);
}

}  // namespace parallax::peers
