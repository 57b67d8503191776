// SPDX-License-Identifier: Apache-2.0
// Group: the ranks that hold a set of variables together, as one of them sees it: the view (which
// ranks on which hosts, who owns what) with the variables at work in it. Everything here is made
// from the view alone, so that another view is another group. Which steps there are, who votes and
// what is decided is not known here.
//
// add() lays the variables of a commit out and reserves their memory; fill() makes their initial
// values. Variables of earlier commits stay as they are, and so does all that points to them.
// Engine's owner only; nothing blocks.
#ifndef PARALLAX_GROUP_GROUP_H_
#define PARALLAX_GROUP_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aggregate/row_scratch.h"
#include "base/compute.h"
#include "base/machine_memory.h"
#include "base/status.h"
#include "collectives/algorithm_choice.h"
#include "collectives/entries.h"
#include "collectives/host_staging.h"
#include "device/device_share.h"
#include "group/footprint.h"
#include "group/table_memory.h"
#include "group/variable_runtime.h"
#include "message/outbox.h"
#include "planner/plan.h"
#include "server/pull_exchange.h"
#include "world/domain_columns.h"
#include "world/patterns.h"
#include "world/view.h"

namespace parallax {

// Rows of so many bytes are answered early by a message of their own. A guess from below: it is
// what a link of 10 Gbit/s takes 13 us for, and less fills no link while a step is decided.
inline constexpr uint64_t kEarlyBytesMin = 16 * 1024;
inline constexpr uint64_t kNeverEarly = PullExchange::kNeverEarly;

// A rank's own choices of how its rows go.
struct RowWays {
  RowCodingMode coding = RowCodingMode::kAuto;
  // As PullOptions has them.
  uint64_t early_bytes_min = kEarlyBytesMin;
  bool push_listed = true;
  // Ranks of its host read its tables and what it pushes where these lie, and it reads their
  // tables; and what it owns of its own host's sum stays where it is.
  bool in_place = true;
};

struct GroupOptions {
  parallax_plan_mode_t plan_mode = PARALLAX_PLAN_AUTO;
  bool deterministic = false;
  uint64_t memory_max_bytes = 0;  // 0: no limit
  MemoryCheck memory_check = MemoryCheck::kOff;
  MachineMemory machine = {};  // that the check compares with
  // Of this rank's other groups, whose memory counts for both limits; none: there are none.
  std::function<std::vector<Footprint>()> other_footprints = {};
  uint32_t marker_hosts_max = kMarkerHostsMax;
  bool boards = true;  // where the transport has any; the same on all ranks
  RowWays row_ways = {};
  OpenDevices devices = {};  // for tables in their memory; none: there are no devices
  uint32_t staleness = 0;    // as StepWindow has it; the same on all ranks
};

class Group {
 public:
  // Elements of initial values that one call fills in, over all variables: some 5 ms with the page
  // faults, so that a rank that shares its core keeps its leases too.
  static constexpr uint64_t kFillElements = 1 << 18;

  // Outbox and compute pool outlive the group.
  Group(View view, uint32_t rank, GroupOptions options, Outbox& outbox, Compute& compute);

  const View& view() const { return view_; }
  // By deterministic; and with allgatherv, where every host sums the gathered rows by itself: in
  // one order, else replicas would drift apart.
  bool sums_in_order(Method method) const {
    return options_.deterministic || method == Method::kAllgatherv;
  }
  const Columns& columns() const { return columns_; }
  std::string name() const { return rank_name(columns_.map(), columns_.rank()); }  // this rank's
  uint64_t memory_max_bytes() const { return options_.memory_max_bytes; }
  // For what is reserved from now on.
  void set_memory_limits(uint64_t max_bytes, MemoryCheck check) {
    options_.memory_max_bytes = max_bytes;
    options_.memory_check = check;
  }
  // Of the tables that it has, or that a plan moves.
  TableMemory& table_memory() { return table_memory_; }
  // Where the ranks of this host read what this rank pushes.
  const HostStaging& staging() const { return *staging_; }
  PullExchange& pulls() const { return *pulls_; }
  // What its ranks say of steps on boards, where they have any.
  Entries& entries() const { return *entries_; }
  // What variables with rows share: an index, and the count of sends that read what is pushed.
  struct Rows {
    RowScratch scratch;
    UnsentRows unsent = {};
  };
  const Rows& rows() const { return *rows_; }
  // Of all that is computed for the group.
  ComputeShare& compute() const { return *compute_; }

  // Lays out the variables of one more commit, which get the next numbers, by the initial plan, and
  // reserves what they take: between steps, the one after `finished` being the first that they are
  // in. The variables outlive the group. LIMIT.
  Status add(std::span<const Variable* const> variables, uint64_t finished = 0);
  // A variable's step sum of that slot (StepWindow::calls_slot), where it has none yet, in a step.
  // LIMIT.
  Status reserve_sum(VariableRuntime& runtime, size_t slot);
  // Times that a step had to reserve memory.
  uint64_t growth_count() const { return growth_count_; }
  // A piece of the initial values; true when all are filled in.
  bool fill();

  // Tables on devices: moves on what can be moved. Not OK: the job fails with it.
  Status advance_devices();
  // Something is under way on a device, of whose end nobody may tell.
  bool devices_busy() const;
  // The job is over: nothing of a caller's is read or written for a table on a device any more.
  void abandon_devices();
  // What this rank's device has under way for a variable, in words; "": nothing.
  std::string device_work() const;

  // By number.
  const std::vector<std::unique_ptr<VariableRuntime>>& runtimes() const { return runtimes_; }
  VariableRuntime& runtime(uint32_t variable) const { return *runtimes_[variable]; }
  uint32_t size() const { return static_cast<uint32_t>(runtimes_.size()); }
  // Those that declared row ids, ascending.
  const std::vector<uint32_t>& with_ids() const { return with_ids_; }

  // What the planner knows and chose.
  TopologyFacts topology() const {
    return {.hosts = columns_.host_count(),
            .ranks = columns_.world(),
            .costs = algorithms_->constants(),
            .row_coding = options_.row_ways.coding,
            .domains = domains_.any() && !options_.deterministic
                           ? domain_count(columns_.map(), columns_.host())
                           : 1};
  }
  std::vector<VariableFacts> facts() const;
  Plan plan() const;

  std::unique_ptr<Exchange> new_exchange(const VariableRuntime& runtime, Method method) const;
  // Who chooses the algorithms of elements.
  AlgorithmChoice& algorithms() const { return *algorithms_; }
  // Of a variable that no step has had yet: another one, which takes no more memory, in place of
  // what was laid out for it; `finished` as in add(). LIMIT.
  Status set_exchange(uint32_t variable, std::unique_ptr<Exchange> exchange, uint64_t finished);
  // Whether this rank may reserve what a new plan of a variable takes, beside all that there is.
  bool fits_memory(const VariableRuntime& runtime, const VariablePlan& plan) const;

  // Of each variable, once built.
  std::vector<Footprint> footprints() const;

  struct MemoryUse {
    uint64_t reserved_bytes = 0, touched_bytes = 0;
    uint64_t device_bytes = 0;  // of the memory of `device`, which is UINT32_MAX where it is none
    uint32_t device = UINT32_MAX;
  };
  // All memory of a variable: its exchanges, step sums, tables and pulls; two of each while it
  // moves.
  MemoryUse memory_use(const VariableRuntime& runtime) const;
  // Of all variables; the touched ones asks the kernel: ms for GiB.
  uint64_t reserved_bytes() const;
  uint64_t touched_bytes() const;

 private:
  Status reserve(VariableRuntime& runtime, uint64_t finished);
  Status reserve_table_on_device(VariableRuntime& runtime);
  Footprint footprint(const VariableRuntime& runtime) const;
  template <typename Look>
  void look_at_arenas(const VariableRuntime& runtime, Look look) const;
  Status check_memory() const;

  GroupOptions options_;
  const View view_;
  const Columns columns_;
  const DomainColumns domains_;  // who sums rows of a NUMA node first
  Outbox& outbox_;
  const std::unique_ptr<ComputeShare> compute_;
  const std::unique_ptr<AlgorithmChoice> algorithms_;
  const std::unique_ptr<Entries> entries_;      // goes after the exchanges
  const std::unique_ptr<HostStaging> staging_;  // the same
  const std::unique_ptr<Rows> rows_;            // the same
  std::vector<std::unique_ptr<VariableRuntime>> runtimes_;
  TableMemory table_memory_;  // goes before the tables
  const std::unique_ptr<PullExchange> pulls_;
  std::vector<uint32_t> with_ids_;
  std::vector<uint32_t> on_devices_;  // those whose table this rank's device holds
  uint32_t fill_cursor_ = 0;
  uint64_t growth_count_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_GROUP_GROUP_H_
