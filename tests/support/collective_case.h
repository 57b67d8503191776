// SPDX-License-Identifier: Apache-2.0
// CollectiveCase: one collective of a job, as data, and CollectiveBuffers: one rank's buffers for
// it, filled, and checked against what one process makes of all ranks' numbers. Those are small
// whole numbers, so every order of combining gives the same bits. Tests only.
#ifndef PARALLAX_TESTS_SUPPORT_COLLECTIVE_CASE_H_
#define PARALLAX_TESTS_SUPPORT_COLLECTIVE_CASE_H_

#include <cstdint>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "base/seeded_random.h"
#include "collectives/collective.h"
#include "parallax/parallax.h"
#include "support/numbers.h"

namespace parallax::testkit {

struct CollectiveCase {
  uint32_t world = 1;
  uint32_t kind = PARALLAX_ALLREDUCE;
  uint32_t dtype = PARALLAX_F32;
  uint32_t op = PARALLAX_OP_SUM;
  uint32_t root = 0;
  uint64_t count = 0;
  uint64_t tag = 0;
  uint64_t seed = 1;
  bool in_place = false;
  // counts[a][b]: numbers of a for b; of allgatherv counts[a][0].
  std::vector<std::vector<uint64_t>> counts = {};

  bool takes_op() const {
    if (!combines(kind)) return op == PARALLAX_OP_SUM;
    return is_floating(dtype) ? op < PARALLAX_OP_AND : op != PARALLAX_OP_MEAN;
  }

  void draw_counts(uint64_t count_max) {
    SeededRandom random(seed);
    counts.assign(world, std::vector<uint64_t>(world));
    for (auto& of : counts) {
      for (uint64_t& each : of) each = random.chance(30) ? 0 : random.below(count_max + 1);
    }
    if (kind == PARALLAX_ALLTOALLV) in_place = false;
  }

  // Any that a program may call; the same for the same random.
  static CollectiveCase draw(SeededRandom random, uint32_t world) {
    constexpr uint64_t kCounts[] = {0, 1, 3, 60, 257, 1500, 5000};
    CollectiveCase made;
    made.world = world;
    made.seed = random.below(1u << 30);
    made.kind = PARALLAX_ALLREDUCE + static_cast<uint32_t>(random.below(8));
    made.dtype = static_cast<uint32_t>(random.below(kDtypeCount));
    do {
      made.op = static_cast<uint32_t>(random.below(PARALLAX_OP_XOR + 1));
    } while (!made.takes_op());
    made.root = static_cast<uint32_t>(random.below(world));
    made.count = kCounts[random.below(std::size(kCounts))];
    made.in_place = random.chance(30);
    made.draw_counts(made.count / world);
    return made;
  }

  // What rank `of` gives as its i-th number.
  double given(uint32_t of, uint64_t i) const {
    const uint64_t bits = SeededRandom(seed).fork(of).fork(i).below(256);
    if (op == PARALLAX_OP_PRODUCT) return bits % 3 == 0 ? -1.0 : static_cast<double>(bits % 3);
    if (op >= PARALLAX_OP_AND) return static_cast<double>(bits);
    return static_cast<double>(bits % 17) - 8;
  }

  uint64_t sum_of(const std::vector<uint64_t>& some, size_t first) const {
    return std::accumulate(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(first),
                           uint64_t{0});
  }
  std::vector<uint64_t> given_counts() const {
    std::vector<uint64_t> all;
    for (const auto& of : counts) all.push_back(of[0]);
    return all;
  }
  std::vector<uint64_t> counts_for(uint32_t rank) const {
    std::vector<uint64_t> all;
    for (const auto& of : counts) all.push_back(of[rank]);
    return all;
  }

  uint64_t sent(uint32_t rank) const {
    switch (kind) {
      case PARALLAX_REDUCE_SCATTER:
        return world * count;
      case PARALLAX_ALLGATHERV:
        return counts[rank][0];
      case PARALLAX_ALLTOALLV:
        return sum_of(counts[rank], world);
      default:
        return count;
    }
  }
  uint64_t received(uint32_t rank) const {
    switch (kind) {
      case PARALLAX_ALLGATHER:
        return world * count;
      case PARALLAX_GATHER:
        return rank == root ? world * count : 0;
      case PARALLAX_REDUCE:
        return rank == root ? count : 0;
      case PARALLAX_ALLGATHERV:
        return sum_of(given_counts(), world);
      case PARALLAX_ALLTOALLV:
        return sum_of(counts_for(rank), world);
      default:
        return count;
    }
  }

  double combined(uint64_t i) const {
    double all = given(0, i);
    for (uint32_t rank = 1; rank < world; ++rank) {
      const double next = given(rank, i);
      const auto a = static_cast<int64_t>(all), b = static_cast<int64_t>(next);
      switch (op) {
        case PARALLAX_OP_MIN:
          all = std::min(all, next);
          break;
        case PARALLAX_OP_MAX:
          all = std::max(all, next);
          break;
        case PARALLAX_OP_PRODUCT:
          all *= next;
          break;
        case PARALLAX_OP_AND:
          all = static_cast<double>(a & b);
          break;
        case PARALLAX_OP_OR:
          all = static_cast<double>(a | b);
          break;
        case PARALLAX_OP_XOR:
          all = static_cast<double>(a ^ b);
          break;
        default:
          all += next;
      }
    }
    if (op != PARALLAX_OP_MEAN) return all;
    if (dtype == PARALLAX_F64) return all * (1.0 / world);
    return static_cast<float>(all) * static_cast<float>(1.0 / world);
  }

  double expected(uint32_t rank, uint64_t i) const {
    switch (kind) {
      case PARALLAX_ALLGATHER:
      case PARALLAX_GATHER:
        return given(static_cast<uint32_t>(i / count), i % count);
      case PARALLAX_ALLGATHERV:
      case PARALLAX_ALLTOALLV: {
        const bool all = kind == PARALLAX_ALLTOALLV;
        uint32_t from = 0;
        for (; i >= counts[from][all ? rank : 0]; ++from) i -= counts[from][all ? rank : 0];
        return given(from, all ? sum_of(counts[from], rank) + i : i);
      }
      case PARALLAX_BROADCAST:
        return given(root, i);
      case PARALLAX_REDUCE_SCATTER:
        return combined(rank * count + i);
      default:
        return combined(i);
    }
  }

  std::string describe() const {
    std::ostringstream text;
    text << "world " << world << " kind " << kind << " dtype " << dtype << " op " << op << " root "
         << root << " count " << count << " tag " << tag << " seed " << seed
         << (in_place ? " in place" : "");
    return text.str();
  }
};

class CollectiveBuffers {
 public:
  CollectiveBuffers(const CollectiveCase& of, uint32_t rank)
      : case_(of),
        rank_(rank),
        sent_(of.dtype, of.sent(rank), 0),
        received_(of.dtype,
                  of.in_place ? std::max(of.sent(rank), of.received(rank)) : of.received(rank),
                  77) {
    Numbers& from = of.in_place ? received_ : sent_;
    for (uint64_t i = 0; i < of.sent(rank); ++i) from.set(first_sent() + i, of.given(rank, i));
    if (of.kind == PARALLAX_ALLGATHERV) {
      recv_counts_ = of.given_counts();
    } else if (of.kind == PARALLAX_ALLTOALLV) {
      send_counts_ = of.counts[rank];
      recv_counts_ = of.counts_for(rank);
    }
  }

  // Valid as long as this.
  parallax_collective_t call() {
    parallax_collective_t call = {};
    call.size = sizeof call;
    call.kind = case_.kind;
    call.dtype = case_.dtype;
    call.op = case_.op;
    call.root = case_.root;
    call.count = case_.kind == PARALLAX_ALLGATHERV ? case_.sent(rank_) : case_.count;
    call.tag = case_.tag;
    const size_t bytes = bytes_of_dtype(case_.dtype);
    auto* to = static_cast<std::byte*>(received_.data());
    call.send = case_.in_place ? to + first_sent() * bytes : sent_.data();
    call.recv = to + first_received() * bytes;
    if (!send_counts_.empty()) call.send_counts = send_counts_.data();
    if (!recv_counts_.empty()) call.recv_counts = recv_counts_.data();
    return call;
  }

  // The same as the engine has it, by order, the `number`-th.
  Collective collective(uint64_t number = 0) {
    const parallax_collective_t made = call();
    Collective what;
    what.terms = {.count = case_.kind == PARALLAX_ALLTOALLV ? 0 : case_.count,
                  .root = has_root(case_.kind) ? case_.root : 0,
                  .kind = static_cast<uint8_t>(case_.kind),
                  .dtype = static_cast<uint8_t>(case_.dtype),
                  .op = static_cast<uint8_t>(case_.op)};
    if (case_.kind == PARALLAX_ALLGATHERV) {
      what.terms.count = case_.received(rank_);
      what.terms.counts_digest = digest_of(recv_counts_);
    }
    what.key = {false, number};
    what.rank = rank_;
    what.world = case_.world;
    what.send = static_cast<const std::byte*>(made.send);
    what.recv = case_.received(rank_) == 0 ? nullptr : static_cast<std::byte*>(made.recv);
    what.send_counts = send_counts_;
    what.recv_counts = recv_counts_;
    return what;
  }

  // "" if right, else what is wrong.
  std::string check() const {
    for (uint64_t i = 0; i < case_.received(rank_); ++i) {
      const double got = received_[first_received() + i];
      Numbers want(case_.dtype, 1, case_.expected(rank_, i));
      if (got == want[0]) continue;
      std::ostringstream text;
      text << case_.describe() << ": rank " << rank_ << " has " << got << " at " << i << " for "
           << want[0];
      return text.str();
    }
    return "";
  }
  bool untouched() const {
    for (size_t i = 0; i < received_.size(); ++i) {
      if (received_[i] != 77) return false;
    }
    return true;
  }

 private:
  // Where they begin in the one buffer of a call in place.
  uint64_t first_sent() const {
    if (!case_.in_place) return 0;
    if (case_.kind == PARALLAX_ALLGATHERV) return case_.sum_of(case_.given_counts(), rank_);
    const bool own =
        case_.kind == PARALLAX_ALLGATHER || (case_.kind == PARALLAX_GATHER && rank_ == case_.root);
    return own ? rank_ * case_.count : 0;
  }
  uint64_t first_received() const {
    return case_.in_place && case_.kind == PARALLAX_REDUCE_SCATTER ? rank_ * case_.count : 0;
  }

  CollectiveCase case_;
  uint32_t rank_;
  Numbers sent_, received_;
  std::vector<uint64_t> send_counts_, recv_counts_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_COLLECTIVE_CASE_H_
