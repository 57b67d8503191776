// SPDX-License-Identifier: Apache-2.0
// Plan: where each variable lives and how its gradient travels, chosen from bytes on the wire, or
// from measured time. Pure: no I/O, clock, environment or globals; the same input gives the same
// plan on every machine of one floating-point format. Values in, values out; any thread may call;
// nothing blocks.
//
// Two plans. The initial one goes by form alone (are row ids declared?). The settled one goes by
// the rows measured while running: of what the pin allows, the method that receives fewest bytes
// per host and step (src/planner/cost.h), or, of rows that the framework holds, takes least time
// (src/planner/row_time.h). The initial choice stays unless another beats it by more than a near
// tie, since moving a variable costs and such a gain would not be seen.
#ifndef PARALLAX_PLANNER_PLAN_H_
#define PARALLAX_PLANNER_PLAN_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallax/parallax.h"
#include "planner/constants.h"

namespace parallax {

enum class Placement : uint8_t {
  kFramework,  // every rank's framework keeps it; we only reduce
  kMirrored,   // managed, a copy on every rank; a pull is a local read
  kSharded,    // managed, each row or block at its owner
};

enum class Method : uint8_t {
  kAllreduce,   // dense, replicated
  kAllgatherv,  // sparse, replicated: every host gets every host's coalesced rows
  kReduceRows,  // sparse, replicated: hashed row reduce-scatter, then allgather of the union
  kMadeDense,   // sparse, replicated: rows scattered into a dense AllReduce
  kPushPull,    // sharded, either form
};

// Gains below this share of the best method's bytes do not move a variable.
inline constexpr double kNearTie = 0.01;
// The same of time, which is measured, and would else flap.
inline constexpr double kNearTieOfTime = 1.0 / 32;

struct VariablePlan {
  Placement placement = Placement::kFramework;
  Method method = Method::kAllreduce;
  bool operator==(const VariablePlan&) const = default;
};

using Plan = std::vector<VariablePlan>;  // by variable id

// What carrying elements costs in a step, counted from the schedules that would do it: the group
// does so (src/collectives/schedule_cost.h), for the planner knows no schedules.
struct ScheduleCost {
  const char* algorithm = nullptr;  // its name in algorithms.h; null: not counted
  const char* description = "";     // how it goes, in words
  double carried_bytes = 0;         // what each contribution has: all elements, once
  double received_bytes = 0;        // by a party (counted_parties() in cost.h), on average
  double sent_messages = 0;         // by a rank, on average; one for each range it sends at least
  double summed_bytes = 0;          // by a rank, on average
  uint32_t rounds = 0;              // sends that wait for one another, the most in a row
};

// One algorithm that could carry a variable's elements, and how long it would take
// (src/collectives/algorithm_choice.h).
struct TimedAlgorithm {
  const char* name = "";
  double microseconds = 0;
  bool chosen = false;
};

// How a method keeps a ceiling: in how many chunks a step goes, one after the other. 0: in none
// that is small enough, so that the method is not one of the variable's ways.
struct Chunks {
  uint64_t count = 1;
  uint64_t rows = 0;   // of each; 0: all
  uint64_t bytes = 0;  // that a rank stages; where there are none, the least that would do
};

// Of rows that the framework holds: the most that a rank may stage for them, and how each method
// keeps that.
struct Ceiling {
  uint64_t bytes_max = 0;  // 0: there is none
  Chunks gathered = {}, reduced = {}, made_dense = {};
};

// An element on its way: how many bytes it has, 0: as many as one of a gradient; and whether
// numbers of its type can be coded (row_coding.h).
struct WireNumbers {
  uint32_t bytes = 0;
  bool has_code = false;
};

// What is known of a variable. The measured figures are averages per step; they matter for slices
// with row ids only, dense costs follow from the shape. Rows are distinct rows, once coalesced.
struct VariableFacts {
  std::string name;
  uint64_t rows = 0;
  uint64_t row_elements = 0;
  uint32_t element_bytes = 4;    // of a gradient
  WireNumbers pulled = {};       // of a value
  WireNumbers pushed = {};       // of rows to another host
  uint32_t tag = PARALLAX_AUTO;  // parallax_tag_t
  bool managed = false;          // has an update rule
  bool ids_declared = false;     // rows_max > 0
  bool given_dense = false;      // has row ids and got a dense slice: dense from then on
  bool integer = false;          // rows cannot be made dense: integers have no -0 for "no row"
  bool measured = false;         // the three below mean something
  // "Per host" is per rank when there is one host: see counted_parties() in cost.h.
  double touched_rows_per_host = 0;  // s: distinct rows a host has gradients for; until that is
                                     // measured as many as it may have
  double union_rows = 0;             // u: distinct rows over all hosts
  double pulled_rows_per_host = 0;   // t: distinct rows a host pulls by messages; of several hosts
                                     // as far as those of others tell (PlanControl::settle)
  // parallax_placement_t, parallax_method_t: what the planner may not choose; 0: it may.
  uint32_t placement_pin = PARALLAX_PLACEMENT_AUTO, method_pin = PARALLAX_METHOD_AUTO;
  Ceiling ceiling = {};
  // Its table lies in the memory of devices, and so stays where the initial plan puts it.
  bool on_device = false;
  std::string table = {};  // of this rank: "device 0"; empty: in host memory
  // Of slices on devices: what carries them there ("NCCL 2.28.9"), else why they go by host memory.
  std::string carrier = {}, carrier_why = {};
  // Of its elements, counted where a plan is made or explained. To all: an allreduce, or, of rows
  // made dense, that of the hosts. To the owners alone: the push of a variable without row ids.
  ScheduleCost to_all = {}, to_owners = {};
  // Of to_all: those that may carry it; empty where that is one alone.
  std::vector<TimedAlgorithm> timed = {};
};

// Whether this rank codes the rows that it sends to other hosts (row_coding.h).
enum class RowCodingMode : uint8_t { kAuto, kOn, kOff };

struct TopologyFacts {
  uint32_t hosts = 1;
  uint32_t ranks = 1;        // >= hosts
  CostConstants costs = {};  // that algorithms are chosen by, and methods of rows
  RowCodingMode row_coding = RowCodingMode::kAuto;
  // NUMA nodes of this rank's host, in each of which rows are summed first, unless in order; 1: in
  // none.
  uint32_t domains = 1;
};

// Of a method of rows.
const Chunks& chunks_of(Method method, const VariableFacts& facts);

// Whether the slices carry row ids: SPARSE, or AUTO with ids declared. The tag makes no other
// difference, so AUTO and tagged runs of one program end in the same plan.
bool carries_rows(const VariableFacts& facts);

// By form. Managed: sharded with ids, else mirrored; PS shards and AR mirrors all of them. What is
// replicated goes by allgatherv with ids, else by allreduce.
Plan initial_plan(std::span<const VariableFacts> variables, const TopologyFacts& topology,
                  parallax_plan_mode_t mode);

// By bytes on the wire, or by time. A variable that was not measured, or not used, keeps its
// initial choice.
Plan settled_plan(std::span<const VariableFacts> variables, const TopologyFacts& topology,
                  parallax_plan_mode_t mode);

// One way a variable could be handled, and what became of it.
struct Alternative {
  Placement placement = Placement::kFramework;
  Method method = Method::kAllreduce;
  double bytes_per_host = 0;  // received per host and step; NaN: unknown until measured
  double microseconds = 0;    // of a step, where methods are compared by time; NaN: they are not
  bool chosen = false;
  std::string why;  // a sentence with figures
};

// Every way that fits the variable's form, those that the pin excludes too, in the order of Method;
// the settled choice is marked.
std::vector<Alternative> alternatives(const VariableFacts& facts, const TopologyFacts& topology,
                                      parallax_plan_mode_t mode);

// The same for a plan that the caller has: an initial one (settled = false), or one it received.
struct Choice {
  VariablePlan plan;
  bool settled = true;
};
std::vector<Alternative> alternatives(const VariableFacts& facts, const TopologyFacts& topology,
                                      parallax_plan_mode_t mode, const Choice& choice);

// What its pins leave it to be: "placement sharded", "method push_pull", both; "": anything.
std::string pin_text(const VariableFacts& facts);

std::string method_name(Method method);            // "push_pull"
std::string placement_name(Placement placement);   // "sharded"
std::string mode_name(parallax_plan_mode_t mode);  // "auto"
std::string tag_name(uint32_t tag);                // "sparse"

}  // namespace parallax

#endif  // PARALLAX_PLANNER_PLAN_H_
