// SPDX-License-Identifier: Apache-2.0
// RunMember: what an exchange of elements offers to those that go by runs (group/lent_runs.h): this
// rank's slice of a step is held as it is, and nothing of it is sent, while all ranks may yet give
// theirs in a run. Then the sums are made for it, and it is told which parts of the result are
// there; or it is released, and goes on as if it had been given the slice just now.
#ifndef PARALLAX_COLLECTIVES_RUN_MEMBER_H_
#define PARALLAX_COLLECTIVES_RUN_MEMBER_H_

#include <cstdint>

#include "variable/partition.h"

namespace parallax {

struct Contribution;

class RunMember {
 public:
  // The elements that this rank sums, for itself and all others: some.
  virtual Range part() const = 0;
  // What its total is multiplied by, as ExchangeOptions has it.
  virtual double factor() const = 0;
  // Its addends are added in the order of ranks.
  virtual bool in_order() const = 0;
  // This rank's slice, in place, is lent to all others in a run. *pending counts the loans.
  virtual void hold(uint64_t step, const Contribution& slice, uint32_t* pending) = 0;
  virtual bool is_held(uint64_t step) const = 0;
  // Of one that is held: it is not any more. The others have been lent it all the same.
  virtual void release(uint64_t step) = 0;
  // Of one that is held: that rank's part of the result is in place, or this rank's own. False: it
  // has been before.
  [[nodiscard]] virtual bool brought(uint64_t step, uint32_t by) = 0;

 protected:
  ~RunMember() = default;
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_RUN_MEMBER_H_
