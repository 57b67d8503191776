// SPDX-License-Identifier: Apache-2.0
// The whole job and its parts at one rank. See job_groups.h.
#include "engine/job_groups.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace parallax {

namespace {

constexpr uint32_t kNumberBits = 11;  // of those that one rank gives

// What a failure names, as another group of the job numbers it. Variables and steps are each
// group's own.
ErrorFacts facts_in(const ErrorFacts& facts, const HostMap& from, const HostMap& to) {
  const auto renumbered = [&](uint32_t rank) {
    if (rank >= from.host_of.size()) return PARALLAX_NO_RANK;
    const uint32_t in_job = job_rank(from, rank);
    for (uint32_t each = 0; each < to.host_of.size(); ++each) {
      if (job_rank(to, each) == in_job) return each;
    }
    return PARALLAX_NO_RANK;
  };
  ErrorFacts told;
  told.rank = renumbered(facts.rank);
  told.peer = renumbered(facts.peer);
  told.host = facts.host;
  told.field = facts.field;
  return told;
}

}  // namespace

JobGroups::JobGroups(EngineOptions options, Transport& transport, const Clock& clock,
                     Compute& compute, std::function<void()> completed)
    : options_(std::move(options)),
      shares_(transport),
      clock_(clock),
      compute_(compute),
      completed_(std::move(completed)) {
  groups_.push_back({.engine = std::make_unique<Engine>(options_, shares_.whole(), clock_, compute_,
                                                        completed_)});
  let_split(whole());
}

JobGroups::~JobGroups() = default;

Status JobGroups::start() { return whole().start(); }

// ---- parts

void JobGroups::let_split(Engine& engine) {
  engine.job_calls().splits().set_maker(
      {.next_number = [this]() -> uint32_t {
         if (numbers_given_ == kPartsMax) return 0;
         return options_.rank << kNumberBits | ++numbers_given_;
       },
       .open = [this, &engine](
                   uint32_t number,
                   std::span<const uint32_t> ranks) { return open_part(engine, number, ranks); }});
}

// By a split of the group `from`, whose numbers `ranks` are.
Status JobGroups::open_part(const Engine& from, uint32_t number, std::span<const uint32_t> ranks) {
  const HostMap& map = from.columns().map();
  EngineOptions options = options_;
  options.part = number;
  options.view = first_view(part_of(map, ranks), epoch_of(number));
  options.rank = static_cast<uint32_t>(
      std::find(ranks.begin(), ranks.end(), from.columns().rank()) - ranks.begin());
  Transport* share = shares_.add(epoch_of(number), options.view.hosts.job_rank_of);
  if (share == nullptr) {
    return internal("split: part " + std::to_string(number) + " is open already");
  }
  auto engine = std::make_unique<Engine>(std::move(options), *share, clock_, compute_, completed_);
  const Status started = engine->start();
  if (!started.ok()) {
    shares_.remove(epoch_of(number));
    return started;
  }
  let_split(*engine);
  groups_.push_back({.number = number, .engine = std::move(engine)});
  return {};
}

const JobGroups::JobGroup& JobGroups::find(uint32_t number) const {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const JobGroup& each) { return each.number == number; });
  PARALLAX_CHECK(found != groups_.end());
  return *found;
}

Engine& JobGroups::group(uint32_t number) const { return *find(number).engine; }
bool JobGroups::retired(uint32_t number) const { return find(number).retired; }

uint32_t JobGroups::part_count() const {
  return static_cast<uint32_t>(std::count_if(groups_.begin() + 1, groups_.end(),
                                             [](const JobGroup& group) { return !group.retired; }));
}

bool JobGroups::retire(uint32_t number) {
  PARALLAX_CHECK(number != 0);
  const auto group = groups_.begin() + (&find(number) - groups_.data());
  group->retired = true;
  if (group->engine->outstanding_requests() > 0 || !group->engine->flushed()) return false;
  // The engine first: it uses the share.
  groups_.erase(group);
  shares_.remove(epoch_of(number));
  return true;
}

// ---- all of them

bool JobGroups::run() {
  bool moved = false;
  // By index: a pass may open a part.
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (may_move(i)) moved |= groups_[i].engine->run();
  }
  spread_failure();
  return moved;
}

// All of them, since a pass also ends compute jobs of the others.
void JobGroups::kick() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (may_move(i)) groups_[i].engine->kick();
  }
  spread_failure();
}

// Requests of parts too stay pending until the notice of a failure has left.
bool JobGroups::may_move(size_t place) const { return place == 0 || !whole().speaking(); }

void JobGroups::spread_failure() {
  if (failure_spread_) return;
  const auto failed = std::find_if(groups_.begin(), groups_.end(), [](const JobGroup& group) {
    return !group.engine->failure().ok();
  });
  if (failed == groups_.end()) return;
  failure_spread_ = true;
  const Status& cause = failed->engine->cause();
  for (const JobGroup& group : groups_) {
    if (group.engine == failed->engine) continue;
    group.engine->fail_with(Status(cause.code(), cause.message())
                                .about(facts_in(cause.facts(), failed->engine->columns().map(),
                                                group.engine->columns().map())));
  }
}

int64_t JobGroups::next_deadline_ns() const {
  int64_t next_ns = kNever;
  for (const JobGroup& group : groups_) {
    next_ns = std::min(next_ns, group.engine->next_deadline_ns());
  }
  return next_ns;
}

bool JobGroups::flushed() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [](const JobGroup& group) { return group.engine->flushed(); });
}

bool JobGroups::speaking() const { return whole().speaking(); }

void JobGroups::complete_all() {
  for (const JobGroup& group : groups_) group.engine->complete_all();
}

uint32_t JobGroups::outstanding_requests() const {
  uint32_t count = 0;
  for (const JobGroup& group : groups_) count += group.engine->outstanding_requests();
  return count;
}

}  // namespace parallax
