// SPDX-License-Identifier: Apache-2.0
// TensorFlow's parameter servers with sparse variables, modelled over MPI's messages: a server in
// each rank, and of each variable a range of rows with each server. A worker asks for a row for
// each id, and sends a gradient for each, in a message for every variable and server.
#ifndef PARALLAX_BENCH_PEERS_MPI_RANGES_H_
#define PARALLAX_BENCH_PEERS_MPI_RANGES_H_

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "mpi_ways.h"
#include "rows.h"

namespace parallax::peers {

class MpiRanges {
 public:
  // `wire` outlives this, and is its own between pull() and the next.
  MpiRanges(const SparseStep& step, WireBuffers& wire);

  // Row `id` is number id % range(table) of server id / range(table).
  uint64_t range(size_t table) const { return (step_.tables[table].rows + world_ - 1) / world_; }
  // A row for each of a step's ids; `tables` has this server's.
  void pull(const TableParts& tables, const int64_t* ids, float* values);
  // A gradient for each id that was pulled. Afterwards, until the next pull, what each rank gave of
  // this server's rows of a table.
  void push(const float* gradients);
  const std::vector<GivenRows>& given(size_t table);

 private:
  // Where messages of the table to, or from, a rank begin, counted in ids.
  uint64_t first_of(size_t table, size_t rank) const { return first_[table * (world_ + 1) + rank]; }
  uint64_t ids_to(size_t table, size_t rank) const {
    return first_of(table, rank + 1) - first_of(table, rank);
  }
  bool is_own(size_t rank) const { return static_cast<int>(rank) == rank_; }
  float* row_at(float* rows, size_t table, uint64_t id_at) const;
  uint64_t message_at(size_t table, uint64_t id_at) const;

  void sort_by_server(size_t table, const int64_t* ids);
  void ask();
  void answer(const TableParts& tables);
  void look_up_places(size_t table, const float* values, const int32_t* places, uint64_t count,
                      float* rows) const;
  void scatter(size_t table, const float* rows, float* values) const;
  void pack(size_t table, uint64_t first, uint64_t count, const float* gradients,
            float* message) const;

  template <typename Each>
  void for_others(const Each& each);
  template <typename Call>
  void post(const Call& call, const char* name);
  void send(const void* from, uint64_t count, MPI_Datatype type, size_t to, size_t table);
  void receive(void* to, uint64_t count, MPI_Datatype type, size_t from, size_t table);
  void wait_all();

  const SparseStep step_;
  WireBuffers& wire_;
  int rank_ = 0;
  size_t world_ = 0;
  uint64_t stride_ = 0;
  std::vector<uint64_t> first_;   // of each table: of each rank, and the end
  std::vector<uint64_t> count_;   // of each table: ids that each rank sent here
  std::vector<uint32_t> order_;   // of each id that is sent: which of the table's it is
  std::vector<GivenRows> given_;  // of each rank
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace parallax::peers

#endif  // PARALLAX_BENCH_PEERS_MPI_RANGES_H_
