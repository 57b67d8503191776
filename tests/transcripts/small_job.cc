// SPDX-License-Identifier: Apache-2.0
// The commands of a script. See small_job.h.
#include "transcripts/small_job.h"

#include <algorithm>
#include <cmath>

namespace parallax::transcripts {
namespace {

constexpr int64_t kMicrosecond = 1000;
constexpr int64_t kSettleNs = 50 * kMicrosecond;  // what is still on its way arrives
constexpr int64_t kLongestRunNs = 60'000 * kNanosecondsPerMillisecond;

parallax_plan_mode_t plan_mode_of(const std::string& name) {
  for (const auto mode :
       {PARALLAX_PLAN_AUTO, PARALLAX_PLAN_HYBRID, PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
    if (mode_name(mode) == name) return mode;
  }
  throw ScriptError("there is no plan '" + name + "'");
}

std::string ranks_text(const std::vector<uint32_t>& ranks) {
  std::string text;
  for (const uint32_t rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

}  // namespace

std::vector<std::string> SmallJob::obey(const std::string& command) {
  const Words words(command);
  const std::string& verb = words.at(0);
  if (verb == "job") {
    open(words);
    return story_->take();
  }
  if (story_ == nullptr) throw ScriptError("the first command is `job`");
  if (verb == "run") {
    run(words);
  } else if (verb == "kill" || verb == "power_off") {
    strike(verb == "kill" ? FaultKind::kKill : FaultKind::kPowerOff, words.rank(2));
  } else if (verb == "plan") {
    say_plan();
  } else {
    tell(words);
  }
  return story_->take();
}

// hosts=NAME,... [lease=MS] [plan=MODE] [plan_after=STEPS] [early=BYTES]
void SmallJob::open(const Words& words) {
  hosts_ = map_hosts(cut(words.option("hosts", ""), ','));
  const auto size = static_cast<uint32_t>(hosts_.host_of.size());
  if (size == 0 || world_ != nullptr) throw ScriptError("one `job`, with hosts=NAME,...");
  world_ = std::make_unique<SimWorld>(
      SimOptions{.world = size, .host_of = hosts_.host_of, .adversarial = false});
  story_ = std::make_unique<Story>(world_->clock(), text_);
  const double lease_ms = words.number("lease", 1000);
  for (uint32_t rank = 0; rank < size; ++rank) {
    EngineOptions options;
    options.rank = rank;
    options.view = first_view(hosts_);
    options.lease_ns = static_cast<int64_t>(lease_ms * kNanosecondsPerMillisecond);
    options.plan_mode = plan_mode_of(words.option("plan", "auto"));
    options.plan_after_steps = static_cast<uint32_t>(words.number("plan_after", 8));
    uint64_t& early_bytes_min = options.row_ways.early_bytes_min;
    early_bytes_min =
        static_cast<uint64_t>(words.number("early", static_cast<double>(early_bytes_min)));
    ranks_.push_back(std::make_unique<ToldRank>(*world_, options, *story_, variables_));
    world_->attach(rank, ranks_.back().get());
  }
  say_job();
}

void SmallJob::say_job() {
  for (size_t host = 0; host < hosts_.names.size(); ++host) {
    story_->add("host " + hosts_.names[host] + ": " + ranks_text(hosts_.ranks_of[host]));
  }
  for (uint32_t rank = 0; rank < hosts_.host_of.size(); ++rank) {
    const std::vector<uint32_t> children = tree_children(hosts_, 0, rank);
    if (children.empty()) continue;
    story_->add("tree: " + ranks_text(children) + " below rank " + std::to_string(rank));
  }
}

ToldRank& SmallJob::rank(uint32_t rank) {
  if (rank >= ranks_.size() || world_->gone(rank)) {
    throw ScriptError("rank " + std::to_string(rank) + " is not there");
  }
  return *ranks_[rank];
}

// all CALL; rank N CALL; ranks N,M CALL. `leave` ends the process in order.
void SmallJob::tell(const Words& words) {
  std::vector<uint32_t> told;
  size_t call = 1;
  if (words.at(0) == "all") {
    for (uint32_t each = 0; each < ranks_.size(); ++each) {
      if (!world_->gone(each)) told.push_back(each);
    }
  } else if (words.at(0) == "rank" || words.at(0) == "ranks") {
    for (const std::string& each : cut(words.at(call++), ',')) {
      told.push_back(static_cast<uint32_t>(number_of(each)));
    }
  } else {
    throw ScriptError("there is no command '" + words.at(0) + "'");
  }
  for (const uint32_t each : told) {
    ToldRank& there = rank(each);
    if (words.at(call) == "leave") {
      world_->leave(each);
    } else {
      there.tell(words.from(call));
    }
  }
}

bool SmallJob::over() const {
  for (uint32_t each = 0; each < ranks_.size(); ++each) {
    if (!world_->gone(each) && ranks_[each]->waits()) return false;
  }
  return true;
}

void SmallJob::settle(int64_t ns) {
  world_->run_until([] { return false; }, world_->now_ns() + ns);
}

// Alone: until no request is pending, and a moment longer. for N us|ms: that long. until WORDS:
// until the transcript says so.
void SmallJob::run(const Words& words) {
  if (words.size() == 1) {
    if (world_->run_until([this] { return over(); }, world_->now_ns() + kLongestRunNs)) {
      settle(kSettleNs);
    }
  } else if (words.at(1) == "for") {
    const bool ms = words.at(3) == "ms";
    settle(std::llround(number_of(words.at(2)) *
                        static_cast<double>(ms ? kNanosecondsPerMillisecond : kMicrosecond)));
  } else if (words.at(1) == "until") {
    const std::string until = words.text_from(2);
    if (!world_->run_until([&] { return story_->tells(until); },
                           world_->now_ns() + kLongestRunNs)) {
      throw ScriptError("it never came to '" + until + "'");
    }
  } else {
    throw ScriptError("run, run for N us, or run until WORDS");
  }
  if (words.size() > 1) return;
  for (uint32_t each = 0; each < ranks_.size(); ++each) {
    if (!world_->gone(each)) ranks_[each]->say_waits();
  }
}

void SmallJob::strike(FaultKind kind, uint32_t struck) {
  rank(struck);  // it must be there
  Fault fault;
  fault.kind = kind;
  fault.rank = struck;
  world_->faults().strike_now(fault);
}

void SmallJob::say_plan() {
  for (uint32_t each = 0; each < ranks_.size(); ++each) {
    if (world_->gone(each)) continue;
    const Plan plan = ranks_[each]->engine().group().plan();
    for (uint32_t i = 0; i < plan.size(); ++i) {
      story_->add(variables_[i].name + ": " + plan_text(plan[i]));
    }
    return;  // the same on all
  }
}

}  // namespace parallax::transcripts
