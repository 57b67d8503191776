// SPDX-License-Identifier: Apache-2.0
// A candidate of the conformance suite of exchanges: who makes the exchange, and what it takes and
// gives back. Tests only.
#ifndef PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_CANDIDATE_H_
#define PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_CANDIDATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "aggregate/row_coalescer.h"
#include "base/compute.h"
#include "base/exact_sum.h"
#include "base/number.h"
#include "base/status.h"
#include "collectives/exchange.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax::exchange_conformance {

// All references outlive the exchange.
using Factory = std::function<std::unique_ptr<Exchange>(
    const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
    const ExchangeOptions& options)>;

struct Shape {
  uint64_t rows = 1;
  uint64_t row_elements = 1;
  uint64_t rows_max = 0;  // 0: dense
  uint64_t elements() const { return rows * row_elements; }
};

// What owned() tells once all is reduced.
enum class Pieces : uint8_t {
  kOwner,  // each owner its part of the sum
  kHost,   // the ranks of every host together all of it
  kNone,   // nothing that the suite could ask for but its norm
  kUntold  // not even that
};

struct Candidate {
  Factory make;
  bool rows = false;        // slices carry ids
  bool made_dense = false;  // rows cross the wire as elements, and come back so if not in chunks
  bool delivers = true;     // every rank gets the whole back
  bool integers = true;
  Pieces pieces = Pieces::kOwner;
  // The first gives something to own to every one of 16 ranks, as far as this kind of exchange does
  // so; the second splits into several sections in messages of 4096 bytes.
  std::vector<Shape> shapes = {};
  // Where it can be asked for; null: everywhere.
  bool (*applies)(const Shape& shape, uint32_t hosts, bool ordered) = nullptr;
  // Where who has nothing sends nothing: the same with everyone sending who may. Null: they do.
  Factory all_send = nullptr;
  // A rank gets elements of its column's owners alone, and on the way back from theirs.
  bool by_columns = true;
  // Row keys in messages are the variable's own: no chunk's.
  bool whole_row_keys = true;
  // Some ranks own nothing, and others more than their share.
  bool uneven_owners = false;
  // The ranks are of one host, and layouts are of its domains of memory.
  bool by_domains = false;

  // Sums are rows.
  bool gives_rows() const { return rows && !(made_dense && whole_row_keys); }
};

// Of elements: a range for each of 16 ranks; several sections; fewer blocks than ranks; less than a
// block.
inline const std::vector<Shape> kElementShapes = {{1281, 3}, {61, 37}, {103, 10}, {7, 3}};
// Of rows: a row for each of 16 ranks; several sections; fewer rows than ranks, and a slice may
// have every one.
inline const std::vector<Shape> kRowShapes = {{64, 3, 24}, {37, 100, 30}, {5, 2, 12}};

}  // namespace parallax::exchange_conformance

#endif  // PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_CANDIDATE_H_
