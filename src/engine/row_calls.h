// SPDX-License-Identifier: Apache-2.0
// RowCalls: the calls between steps that ask or tell single ranks for rows: reads and writes of
// rows with their state, and evaluations, which are pulls by this rank alone. One at a time, in the
// order of the calls. How rows travel is RowAccess's. Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_ROW_CALLS_H_
#define PARALLAX_ENGINE_ROW_CALLS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/job_phase.h"
#include "engine/request_pool.h"
#include "engine/request_queue.h"
#include "group/group.h"
#include "group/step_window.h"
#include "server/row_access.h"
#include "variable/registry.h"

namespace parallax {

class RowCalls final : private HeldTables {
 public:
  // All outlive this.
  RowCalls(Group& group, const Registry& registry, const StepWindow& window, const JobPhase& phase,
           Outbox& outbox, RequestPool& requests)
      : group_(group),
        registry_(registry),
        window_(window),
        phase_(phase),
        requests_(requests),
        access_(group.columns(), outbox, *this),
        queue_(requests) {}

  // Read, or write. INVALID, STATE, LIMIT, or what failed the job.
  Status post(const parallax_rows_t& rows, bool write, Request** request);
  // A pull of a running job, with slices that were checked; those that say so are written by this
  // rank's tables (PullSlice::on_device). `there`: its request, where the call has one already.
  Status evaluate(std::span<const PullSlice> slices, Request** request, Request* there = nullptr);
  // STATE: a step of this rank is not over.
  Status check_between_steps(const char* call) const;

  bool pending() const { return !queue_.empty(); }
  // Nothing of this rank, and of no other.
  bool at_rest() const { return queue_.empty() && access_.at_rest(); }
  // Moves on what can be moved, of other ranks' calls too.
  void advance();
  // False: not what `from` may send now.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section) {
    return access_.on_section(from, section);
  }
  RequestQueue& queue() { return queue_; }  // for the end of the job

  // What the call under way waits for.
  uint32_t variable() const { return access_.variable(); }
  // Or one of them, where they are named by ids.
  uint64_t first_row() const { return access_.first_row(); }
  std::vector<uint32_t> missing_ranks() const { return access_.missing_ranks(); }

 private:
  Table* table_of(uint32_t variable) override;
  uint64_t step_finished() const override { return window_.finished(); }
  bool in_step() const override { return !window_.between_steps(); }

  Status check(const parallax_rows_t& rows, RowsCall* call) const;
  bool start_next(Request& request);

  Group& group_;
  const Registry& registry_;
  const StepWindow& window_;
  const JobPhase& phase_;
  RequestPool& requests_;
  RowAccess access_;
  RequestQueue queue_;
  // Of an evaluation: other owners are asked for rows of a slice on a device; a table on a device
  // is being read.
  bool asks_others_ = false;
  bool reads_table_ = false;
  uint32_t left_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_ROW_CALLS_H_
