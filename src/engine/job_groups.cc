// SPDX-License-Identifier: Apache-2.0
// The whole job and its parts at one rank. See job_groups.h.
#include "engine/job_groups.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace parallax {

JobGroups::JobGroups(EngineOptions options, Transport& transport, const Clock& clock,
                     Compute& compute, std::function<void()> completed)
    : options_(std::move(options)),
      count_bits_(31 - static_cast<uint32_t>(std::bit_width(options_.view.world() - 1))),
      shares_(transport, [this](uint32_t rank, bool sent) { whole().note_traffic(rank, sent); }),
      clock_(clock),
      compute_(compute),
      completed_(std::move(completed)) {
  groups_.push_back(JobGroup::of(0, std::make_unique<Engine>(with_others(options_), shares_.whole(),
                                                             clock_, compute_, completed_)));
  let_split(whole());
}

JobGroups::~JobGroups() = default;

JobGroups::JobGroup JobGroups::JobGroup::of(uint32_t number, std::unique_ptr<Engine> engine) {
  const DeviceLaunches& launches = engine->job_calls().launches();
  return {.number = number, .engine = std::move(engine), .launches = &launches};
}

Status JobGroups::start() { return whole().start(); }

// ---- memory

// A group's limits are those of all groups of this rank.
EngineOptions JobGroups::with_others(EngineOptions options) const {
  const uint32_t number = options.part;
  options.other_footprints = [this, number] {
    std::vector<Footprint> others;
    for (const JobGroup& each : groups_) {
      if (each.number == number) continue;
      std::vector<Footprint> footprints = each.engine->group().footprints();
      std::move(footprints.begin(), footprints.end(), std::back_inserter(others));
    }
    return others;
  };
  return options;
}

void JobGroups::set_memory_limits(uint64_t max_bytes, MemoryCheck check) {
  options_.memory_max_bytes = max_bytes;
  options_.memory_check = check;
  for (const JobGroup& each : groups_) each.engine->group().set_memory_limits(max_bytes, check);
}

// ---- parts

void JobGroups::let_split(Engine& engine) {
  engine.job_calls().splits().set_maker(
      {.next_number = [this]() -> uint32_t {
         if (numbers_given_ == (1u << count_bits_) - 1) return 0;
         return options_.rank << count_bits_ | ++numbers_given_;
       },
       .open = [this, &engine](
                   uint32_t number,
                   std::span<const uint32_t> ranks) { return open_part(engine, number, ranks); }});
}

// By a split of the group `from`, whose numbers `ranks` are.
Status JobGroups::open_part(const Engine& from, uint32_t number, std::span<const uint32_t> ranks) {
  const HostMap& map = from.columns().map();
  // A peer's number: no other group may have its epoch.
  if (number >> count_bits_ != job_rank(map, ranks[0]) || number << (32 - count_bits_) == 0) {
    return internal("split: " + rank_name(map, ranks[0]) + " numbers a part " +
                    std::to_string(number) + "; check that all ranks run the same version")
        .about_peer(ranks[0]);
  }
  EngineOptions options = options_;
  options.part = number;
  options.whole = &whole().first_failure();
  options.launches_of_job = {&whole().job_calls().launches(), &options_.view.hosts};
  // Of each rank as many slots as in the whole job.
  const auto world = static_cast<uint32_t>(ranks.size());
  const uint32_t slots_each = options_.view.slots.slots() / options_.view.world();
  options.view = first_view(part_of(map, ranks), epoch_of(number),
                            slots_each == 0 ? SlotMap() : SlotMap::of_ranks(world, slots_each));
  options.rank = static_cast<uint32_t>(
      std::find(ranks.begin(), ranks.end(), from.columns().rank()) - ranks.begin());
  Transport* share = shares_.add(epoch_of(number), options.view.hosts.job_rank_of);
  if (share == nullptr) {
    return internal("split: part " + std::to_string(number) + " is open already");
  }
  Status started;
  try {
    groups_.reserve(groups_.size() + 1);
    auto engine = std::make_unique<Engine>(with_others(std::move(options)), *share, clock_,
                                           compute_, completed_);
    started = engine->start();
    let_split(*engine);
    if (started.ok()) groups_.push_back(JobGroup::of(number, std::move(engine)));
  } catch (...) {
    shares_.remove(epoch_of(number));  // nobody listens there
    throw;
  }
  if (!started.ok()) shares_.remove(epoch_of(number));
  return started;
}

bool JobGroups::has(uint32_t number) const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const JobGroup& each) { return each.number == number; });
}

const JobGroups::JobGroup& JobGroups::find(uint32_t number) const {
  if (number == 0) return groups_[0];
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const JobGroup& each) { return each.number == number; });
  PARALLAX_CHECK(found != groups_.end());
  return *found;
}

Engine& JobGroups::group(uint32_t number) const { return *find(number).engine; }

uint32_t JobGroups::part_count() const {
  return static_cast<uint32_t>(std::count_if(groups_.begin(), groups_.end(),
                                             [](const JobGroup& group) { return group.held; }));
}

std::string JobGroups::borrower(const ByteRange& bytes) const {
  std::string who;
  for (size_t i = 0; i < groups_.size() && who.empty(); ++i) {
    who = groups_[i].engine->borrower(bytes);
  }
  return who;
}

void JobGroups::collect() {
  for (size_t i = groups_.size(); i-- > 1;) {
    const JobGroup& group = groups_[i];
    const Engine& engine = *group.engine;
    if (!group.retired || !engine.flushed() || engine.outstanding_requests() > 0) continue;
    // The engine first: it uses the share.
    const uint32_t number = group.number;
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(i));
    shares_.remove(epoch_of(number));
  }
}

// ---- all of them

// Where one has failed, the others have before they do anything else. What is closed has nothing to
// do: it would only take compute jobs of the others, whose failure it could not tell.
template <typename Move>
void JobGroups::move_all(Move move) {
  // By index: a pass may open a part.
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (!whole().failure().ok()) {
      for (const JobGroup& group : groups_) group.engine->follow_failure();
    }
    if (i == 0 || !groups_[i].engine->closed()) move(*groups_[i].engine);
  }
}

bool JobGroups::run() {
  heeds_posts_ = true;  // the poll ends the arming
  bool moved = false;
  move_all([&moved](Engine& engine) { moved |= engine.run(); });
  return moved;
}

// Parts have compute jobs and messages of their own, which a pass of all is for.
bool JobGroups::glance() { return groups_.size() == 1 && whole().glance(); }

// All of them, since a pass also ends compute jobs of the others.
void JobGroups::kick(bool holds) {
  const Engine::Kick how = holds ? Engine::Kick::kHolds : Engine::Kick::kSends;
  move_all([how](Engine& engine) { engine.kick(how); });
  if (heeds_posts_ || !awaits_posts()) return;
  heeds_posts_ = true;
  Boards* const boards = shares_.whole().boards();
  if (boards == nullptr) return;
  boards->heed(true);
  move_all([](Engine& engine) { engine.kick(Engine::Kick::kLooks); });
}

bool JobGroups::awaits_posts() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const JobGroup& group) { return group.engine->awaits_posts(); });
}

bool JobGroups::arm() {
  Boards* const boards = shares_.whole().boards();
  heeds_posts_ = boards == nullptr || awaits_posts();
  if (boards != nullptr) boards->heed(heeds_posts_);
  return shares_.whole().arm();
}

int64_t JobGroups::next_deadline_ns() const {
  int64_t next_ns = kNever;
  for (const JobGroup& group : groups_) {
    next_ns = std::min(next_ns, group.engine->next_deadline_ns());
  }
  return next_ns;
}

void JobGroups::arm_devices() {
  for (const JobGroup& group : groups_) {
    Communicator* const communicator = group.launches->communicator();
    if (communicator != nullptr) communicator->arm();
  }
}

bool JobGroups::devices_reduce() const {
  return std::any_of(groups_.begin(), groups_.end(), [](const JobGroup& group) {
    const Communicator* const communicator = group.launches->communicator();
    return communicator != nullptr && communicator->launched() > communicator->ended();
  });
}

bool JobGroups::flushed() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [](const JobGroup& group) { return group.engine->flushed(); });
}

bool JobGroups::needs_pass() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const JobGroup& group) { return group.engine->needs_pass(); });
}

bool JobGroups::speaking() const { return whole().speaking(); }

Status JobGroups::forget_unless_borrowed(const ByteRange& bytes, bool* over) {
  *over = true;
  const std::string who = borrower(bytes);
  if (!who.empty()) return bad_state(who);
  if (remote_writes() != nullptr) remote_writes()->forget_area(bytes);
  for (const JobGroup& group : groups_) {
    bool by_group = false;
    PARALLAX_RETURN_IF_ERROR(group.engine->job_calls().forget_memory(bytes, &by_group));
    *over = *over && by_group;
  }
  return {};
}

std::string JobGroups::writes_key() {
  return remote_writes() == nullptr ? "" : R"(,"remote_writes":)" + remote_writes()->json();
}

void JobGroups::complete_all() {
  // Callers have their memory again: no peer may write there any more.
  if (remote_writes() != nullptr) remote_writes()->withdraw();
  for (const JobGroup& group : groups_) group.engine->complete_all();
}

uint32_t JobGroups::outstanding_requests() const {
  uint32_t count = 0;
  for (const JobGroup& group : groups_) count += group.engine->outstanding_requests();
  return count;
}

}  // namespace parallax
