// SPDX-License-Identifier: Apache-2.0
// What the conformance suite of exchanges sees of one: a thin seam, so that the suite outlives the
// class behind it, and a Candidate, which says what an exchange takes and gives back. Tests only.
#ifndef PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_UNDER_TEST_H_
#define PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_UNDER_TEST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "aggregate/row_coalescer.h"
#include "base/compute.h"
#include "base/exact_sum.h"
#include "base/number.h"
#include "base/status.h"
#include "collectives/gradient_exchange.h"  // ReducedGradient, ExchangeCounts
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax::exchange_conformance {

// One variable's gradient on its way, in one rank.
class ExchangeUnderTest {
 public:
  virtual ~ExchangeUnderTest() = default;

  // What reserve() will take; asked before it only. Then what it took, and used.
  virtual size_t needed_bytes() = 0;
  virtual Status reserve() = 0;
  virtual size_t reserved_bytes() const = 0;
  virtual size_t used_bytes() const = 0;

  virtual void open(uint64_t step) = 0;
  virtual void contribute_dense(uint64_t step, const RowValues& values, uint32_t* pending) = 0;
  virtual void contribute_rows(uint64_t step, const RowSlice& first, const RowSlice& more,
                               uint32_t* pending) = 0;
  virtual bool coalescing(uint64_t step) const = 0;
  virtual void end_local(uint32_t from, uint64_t step) = 0;
  // False: the section is not what this rank may be sent.
  [[nodiscard]] virtual bool on_section(uint32_t from, const Section& section) = 0;

  virtual bool reduced(uint64_t step) const = 0;
  virtual bool delivered(uint64_t step) const = 0;
  virtual std::vector<uint32_t> missing_ranks(uint64_t step) const = 0;
  virtual ReducedGradient owned(uint64_t step) const = 0;
  virtual ReducedGradient whole(uint64_t step) const = 0;
  virtual void add_squared_norm(uint64_t step, ExactSum* sum) const = 0;
  virtual ExchangeCounts counts(uint64_t step) const = 0;
};

struct ExchangeSettings {
  uint32_t variable = 0;
  uint64_t rows_max = 0;
  bool ordered = false;
  SumType sum = SumType::kF32;
  bool counted = false;
};

// All references outlive the exchange.
using Factory = std::function<std::unique_ptr<ExchangeUnderTest>(
    const Columns& columns, const Partition& partition, Outbox& outbox, Compute& compute,
    const ExchangeSettings& settings)>;

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
  kNone,   // nothing that the suite could ask for
};

struct Candidate {
  Factory make;
  bool rows = false;        // slices carry ids
  bool made_dense = false;  // rows cross the wire as elements and come back as such
  bool delivers = true;     // every rank gets the whole back
  bool integers = true;
  Pieces pieces = Pieces::kOwner;
  // The first gives something to own to every one of 16 ranks, as far as this kind of exchange does
  // so; the second splits into several sections in messages of 4096 bytes.
  std::vector<Shape> shapes = {};
  // Where it can be asked for; null: everywhere.
  bool (*applies)(const Shape& shape, uint32_t hosts, bool ordered) = nullptr;
  bool rare = false;  // it applies to few layouts: none is left out, each has more seeds
  // A rank may get the way back's local sections from any leader of its host, whether or not that
  // one has something to hand on.
  bool any_handler_returns = false;
};

}  // namespace parallax::exchange_conformance

#endif  // PARALLAX_TESTS_UNIT_COLLECTIVES_EXCHANGE_UNDER_TEST_H_
