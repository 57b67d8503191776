// SPDX-License-Identifier: Apache-2.0
// RatesBallot: what votes say of groups of rates, as far as it is merged at this rank: the rates,
// or where two ranks differ in them; and of groups that clip their own gradients the squared norms,
// by kind of reduction. It goes up the tree in parts, each as large as control may be, ahead of the
// vote that they belong to; of a step without rates by group there are none.
//
// Sums are made for the pairs of group and kind that the registry has, the same on every rank; a
// part that speaks of another is no vote of ours. Engine's owner only; after reserve() it allocates
// nothing.
#ifndef PARALLAX_GROUP_RATES_BALLOT_H_
#define PARALLAX_GROUP_RATES_BALLOT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/exact_sum.h"
#include "group/step_rates.h"
#include "group/vote.h"

namespace parallax {

class RatesBallot {
 public:
  // Makes room for the norms of a pair; once for each, before the first step.
  void reserve(uint32_t group, uint32_t kind);

  void clear();
  // What this rank says of a step that has rates.
  void say(const StepRates& rates, uint32_t rank);
  // Where the squared norm of a reserved pair is added up; it counts from then on.
  ExactSum& norm(uint32_t group, uint32_t kind);

  // A child's part. False: not what a rank of this job, of so many ranks, may send.
  [[nodiscard]] bool merge_part(std::span<const std::byte> part, uint32_t world);
  // Calls send(bytes) with each part of what is merged here.
  template <typename Send>
  void for_each_part(Send send) const {
    std::array<std::byte, kVoteBytesMax> bytes;
    for (size_t at = 0; at < part_count(); ++at) {
      send(std::span<const std::byte>(bytes).first(encode_part(at, bytes)));
    }
  }

  const RatesDifference& differing() const { return difference_; }
  // The squared norm of a group's sums of one kind; 0 where there is none.
  double squared_norm(uint32_t group, uint32_t kind) const;

 private:
  struct Pair {
    uint32_t group, kind;
    bool used = false;  // in this round
    ExactSum sum = {};
  };

  Pair* find(uint32_t group, uint32_t kind);
  const Pair* find(uint32_t group, uint32_t kind) const;
  void merge_rates(std::span<const Rates> rates, uint32_t rank);
  bool merge_rates_part(std::span<const std::byte> part, uint32_t world);
  bool merge_norms_part(std::span<const std::byte> part);
  size_t part_count() const;
  size_t encode_part(size_t at, std::span<std::byte, kVoteBytesMax> out) const;
  size_t encode_rates(std::span<std::byte, kVoteBytesMax> out) const;

  StepRates rates_;
  uint32_t rank_ = 0;  // that said so
  RatesDifference difference_;
  std::vector<Pair> pairs_;  // by group and kind, ascending
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_RATES_BALLOT_H_
