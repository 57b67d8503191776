// SPDX-License-Identifier: Apache-2.0
// CommitReport: what ranks compare at commit, merged up the tree. A plain value with an encoding.
#ifndef PARALLAX_ENGINE_COMMIT_REPORT_H_
#define PARALLAX_ENGINE_COMMIT_REPORT_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "engine/cost_terms.h"
#include "engine/device_terms.h"
#include "group/step_window.h"
#include "message/told_failure.h"
#include "planner/plan.h"
#include "world/host_map.h"

namespace parallax {

enum class CommitVerdict : uint32_t { kAgree = 0, kDiffer = 1, kLookCloser = 2 };

// Which rank speaks, and the options that all must have alike.
struct CommitTerms {
  uint32_t rank = 0;
  uint32_t plan_mode = 0;
  uint32_t plan_after_steps = 0;
  uint32_t deterministic = 0;
  uint32_t slots = 0;
  uint32_t staleness = 0;
};

struct CommitReport {
  // With the verdict: the staleness follows, and DeviceTerms, and CostTerms.
  static constexpr uint32_t kHasDevices = 1u << 8, kHasCosts = 1u << 9, kHasStaleness = 1u << 10;
  static constexpr size_t kTextMax = 1024 + ToldFailure::kFactsBytesMax;

  uint64_t digest = 0;  // of what was registered since the commit before
  CommitTerms terms;
  CommitVerdict verdict = CommitVerdict::kAgree;
  std::string text;  // kDiffer: a ToldFailure
  DeviceTerms devices;
  CostTerms costs;

  std::string encode() const {
    std::string out;
    const uint32_t numbers[] = {
        terms.rank,
        terms.plan_mode,
        terms.plan_after_steps,
        terms.deterministic,
        terms.slots,
        static_cast<uint32_t>(verdict) | (devices.wanted ? kHasDevices : 0) |
            (costs.wanted ? kHasCosts : 0) | (terms.staleness != 0 ? kHasStaleness : 0)};
    out.append(reinterpret_cast<const char*>(&digest), sizeof digest);
    out.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
    if (terms.staleness != 0) {
      out.append(reinterpret_cast<const char*>(&terms.staleness), sizeof terms.staleness);
    }
    if (devices.wanted) devices.encode(&out);
    if (costs.wanted) costs.encode(&out);
    out += text.substr(0, kTextMax);
    return out;
  }

  // A peer's, of so many ranks.
  bool decode(std::span<const std::byte> in, uint32_t world) {
    uint32_t numbers[6];
    if (in.size() < sizeof digest + sizeof numbers) return false;
    std::memcpy(&digest, in.data(), sizeof digest);
    std::memcpy(numbers, in.data() + sizeof digest, sizeof numbers);
    terms = {.rank = numbers[0],
             .plan_mode = numbers[1],
             .plan_after_steps = numbers[2],
             .deterministic = numbers[3],
             .slots = numbers[4]};
    verdict = static_cast<CommitVerdict>(numbers[5] & ~(kHasDevices | kHasCosts | kHasStaleness));
    auto rest = in.subspan(sizeof digest + sizeof numbers);
    if ((numbers[5] & kHasStaleness) != 0) {
      if (rest.size() < sizeof terms.staleness) return false;
      std::memcpy(&terms.staleness, rest.data(), sizeof terms.staleness);
      rest = rest.subspan(sizeof terms.staleness);
    }
    if ((numbers[5] & kHasDevices) != 0 && !devices.decode(&rest)) return false;
    if (!devices.buffers.fits(world)) return false;
    if ((numbers[5] & kHasCosts) != 0 && !costs.decode(&rest, world)) return false;
    text.assign(reinterpret_cast<const char*>(rest.data()), rest.size());
    return terms.rank < world && verdict <= CommitVerdict::kLookCloser && text.size() <= kTextMax;
  }

  // Takes in what a child found, and how the child differs from this rank; of these ranks.
  void merge(const CommitReport& child, const HostMap& hosts) {
    if (verdict == CommitVerdict::kDiffer) return;
    if (child.verdict == CommitVerdict::kDiffer) {
      verdict = child.verdict;
      text = child.text;
      return;
    }
    const auto mode = [](uint32_t number) {  // a peer's number may be of no mode
      const bool known = number <= PARALLAX_PLAN_AR;
      return known ? mode_name(static_cast<parallax_plan_mode_t>(number)) : std::to_string(number);
    };
    const auto number = [](uint32_t value) { return std::to_string(value); };
    const auto staleness_text = [](uint32_t value) {
      return value == StepWindow::kAsync ? "PARALLAX_ASYNC" : std::to_string(value);
    };
    const CommitTerms& its = child.terms;
    const Between between = {hosts, its.rank};
    differ(between, "plan_mode", terms.plan_mode, its.plan_mode, mode);
    differ(between, "plan_after_steps", terms.plan_after_steps, its.plan_after_steps, number);
    differ(between, "deterministic", terms.deterministic, its.deterministic, number);
    differ(between, "slots", terms.slots, its.slots, number);
    differ(between, "staleness", terms.staleness, its.staleness, staleness_text);
    differ_by_devices(between, child.devices);
    if (child.devices.wanted) devices.merge(child.devices);
    if (child.costs.wanted) costs.merge(child.costs);
    if (verdict == CommitVerdict::kAgree &&
        (child.verdict == CommitVerdict::kLookCloser || child.digest != digest)) {
      verdict = CommitVerdict::kLookCloser;
    }
  }

 private:
  // This rank and another.
  struct Between {
    const HostMap& hosts;
    uint32_t other;
  };

  void differ_by_devices(const Between& between, const DeviceTerms& theirs) {
    const char* what = devices.differs_from(theirs);
    if (what == nullptr || verdict == CommitVerdict::kDiffer) return;
    verdict = CommitVerdict::kDiffer;
    ToldFailure told;
    told.sentence = "versions of " + std::string(what) +
                    " do not fit: " + rank_name(between.hosts, terms.rank) + " has " +
                    devices.versions() + ", " + rank_name(between.hosts, between.other) + " has " +
                    theirs.versions() + "; let them use the same, or set nccl to off";
    told.facts.rank = terms.rank;
    told.facts.peer = between.other;
    told.facts.field = "nccl";
    text = told.encode();
  }

  template <typename Shown>
  void differ(const Between& between, const char* option, uint32_t mine, uint32_t theirs,
              Shown shown) {
    if (mine == theirs || verdict == CommitVerdict::kDiffer) return;
    verdict = CommitVerdict::kDiffer;
    ToldFailure told;
    told.sentence = "option " + std::string(option) + ": " + rank_name(between.hosts, terms.rank) +
                    " has " + shown(mine) + ", " + rank_name(between.hosts, between.other) +
                    " has " + shown(theirs);
    told.facts.rank = terms.rank;
    told.facts.peer = between.other;
    told.facts.field = option;
    text = told.encode();
  }
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_COMMIT_REPORT_H_
