// SPDX-License-Identifier: Apache-2.0
// JobGroups: the groups of a job that this rank is in, each with an engine of its own: the whole
// job, which opens with it, and its parts, which splits open. Transport, compute pool, leases and
// losses are the whole job's, and so is failure: once any group fails, all do, and every rank of
// the job hears of it from the whole one.
//
// A group's number is 0 for the whole, else what all ranks of the part call it; it also makes the
// epoch of its messages. What drives a rank (Progress, the simulator, a test) drives this. One
// owner at a time calls everything here, as for Engine; nothing blocks.
#ifndef PARALLAX_ENGINE_JOB_GROUPS_H_
#define PARALLAX_ENGINE_JOB_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_range.h"
#include "base/clock.h"
#include "base/compute.h"
#include "base/status.h"
#include "engine/engine.h"
#include "message/transport_shares.h"
#include "transport/transport.h"

namespace parallax {

class JobGroups {
 public:
  // The options are the whole job's, and what a part has of them. Otherwise as for Engine.
  JobGroups(EngineOptions options, Transport& transport, const Clock& clock, Compute& compute,
            std::function<void()> completed = {});
  ~JobGroups();
  JobGroups(const JobGroups&) = delete;
  JobGroups& operator=(const JobGroups&) = delete;

  Status start();

  // As Engine's, of all groups.
  bool run();
  void kick(bool holds = false);
  bool glance();
  // Of the transport, before who drives sleeps on it. A post ends that sleep only where a group
  // awaits one (Boards::heed); should a call come to do so meanwhile, kick() sees to it.
  bool arm();
  int64_t next_deadline_ns() const;
  // Somebody sleeps, or is about to: what ends on devices wakes him.
  void arm_devices();
  // Devices are at something that was launched.
  bool devices_reduce() const;
  bool flushed() const;
  bool needs_pass() const;
  bool speaking() const;
  void complete_all();
  // Of this rank, in all groups; null: its transport has none.
  RemoteWrites* remote_writes() { return shares_.whole().remote_writes(); }
  // STATE: borrower(). Where there is none, no peer writes there any more, and *over is false while
  // a library may use it still: ask again. IO: a library did not let go of it.
  Status forget_unless_borrowed(const ByteRange& bytes, bool* over);
  // The key "remote_writes" of the stats with what is before it, or nothing.
  std::string writes_key();
  // The transport is about to go, before the groups do.
  void leave_transport() { shares_.leave(); }
  uint32_t outstanding_requests() const;

  Engine& whole() { return *groups_[0].engine; }
  const Engine& whole() const { return *groups_[0].engine; }
  // As long as it has requests, also after it was closed.
  Engine& group(uint32_t number) const;
  // The part is its caller's, who closes it. One whose split ended otherwise goes with the job.
  void hold(uint32_t number) { find(number).held = true; }
  // As Engine's, of all groups.
  std::string borrower(const ByteRange& bytes) const;
  // What commits from now on hold against all groups of this rank together.
  void set_memory_limits(uint64_t max_bytes, MemoryCheck check);
  // Parts that their callers have not closed.
  uint32_t part_count() const;
  void let_go(uint32_t number) { find(number).held = false; }
  // Its goodbye is over, and it has no compute job: its engine goes once its requests have been
  // released.
  void retire(uint32_t number) { find(number).retired = true; }
  // Does away with parts that can go.
  void collect();
  bool has(uint32_t number) const;
  // It has compute jobs that are not over.
  bool computing(uint32_t number) const {
    return find(number).engine->group().compute().under_way() > 0;
  }

 private:
  struct JobGroup {
    uint32_t number = 0;
    bool held = false, retired = false;
    std::unique_ptr<Engine> engine;
    const DeviceLaunches* launches = nullptr;  // of the engine, which is not to be disturbed

    static JobGroup of(uint32_t number, std::unique_ptr<Engine> engine);
  };

  bool awaits_posts() const;
  const JobGroup& find(uint32_t number) const;
  JobGroup& find(uint32_t number) {
    return const_cast<JobGroup&>(std::as_const(*this).find(number));
  }
  template <typename Move>
  void move_all(Move move);
  uint32_t epoch_of(uint32_t number) const { return options_.view.epoch ^ number << 1; }
  EngineOptions with_others(EngineOptions options) const;
  void let_split(Engine& engine);
  Status open_part(const Engine& from, uint32_t number, std::span<const uint32_t> ranks);

  EngineOptions options_;
  // Of a part's number: of the count, below its first rank; 31 in all.
  const uint32_t count_bits_;
  TransportShares shares_;
  const Clock& clock_;
  Compute& compute_;
  const std::function<void()> completed_;
  std::vector<JobGroup> groups_;  // the whole first, then in the order of their opening
  uint32_t numbers_given_ = 0;
  bool heeds_posts_ = true;  // false: somebody may sleep whom no post wakes
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_JOB_GROUPS_H_
