// SPDX-License-Identifier: Apache-2.0
// SliceChecks: what may be wrong with the slices of a call, by the registered variables alone:
// form, sizes, alignment, row ids, dtypes. Once, where a call comes in: everything behind takes
// slices as checked. Every sentence names the call, the slice and the variable; success allocates
// nothing. Engine's owner only.
#ifndef PARALLAX_ENGINE_SLICE_CHECKS_H_
#define PARALLAX_ENGINE_SLICE_CHECKS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "server/pull_exchange.h"
#include "variable/variable.h"

namespace parallax {

class SliceChecks {
 public:
  // The registry outlives this.
  explicit SliceChecks(const std::vector<Variable>& registry) : registry_(registry) {}

  // Of any call. INVALID, LIMIT. *tied_too becomes true if a variable has two slices, one of each
  // form, which is legal.
  Status check(std::span<const parallax_slice_t> slices, const char* call,
               bool* tied_too = nullptr) const;
  // And what a pull asks for beside that.
  Status check_pull(std::span<const parallax_slice_t> slices) const;
  Status check_finite(const PullSlice& slice, const char* call) const;

  // One that was checked, with the defaults filled in.
  PullSlice slice_of(const parallax_slice_t& slice) const;

 private:
  Status check_one(const parallax_slice_t& slice) const;
  static Status check_ids(const parallax_slice_t& slice, const Variable& variable);
  bool tied(const parallax_slice_t& a, const parallax_slice_t& b) const;
  uint32_t dtype_of_slice(const parallax_slice_t& slice) const;

  const std::vector<Variable>& registry_;
  // By variable: where its slice stood in the last call that had one. A note of check() alone.
  mutable std::vector<size_t> places_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_SLICE_CHECKS_H_
