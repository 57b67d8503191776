// SPDX-License-Identifier: Apache-2.0
// RunsWorld: an EngineWorld of one host whose ranks have their variables one right behind the other
// in memory that they lend, and in memory that they do not; and what they say to each other.
#ifndef PARALLAX_TESTS_SUPPORT_RUNS_WORLD_H_
#define PARALLAX_TESTS_SUPPORT_RUNS_WORLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "message/lending.h"
#include "message/wire.h"
#include "support/engine_world.h"
#include "support/shared_host.h"
#include "transport/peer_memory.h"

namespace parallax::testkit {

inline constexpr uint64_t kPageBytes = 4096;

// Memory of a rank in whole pages, which all of its host may map: so many floats, and what fills up
// the last page.
class SharedSlab {
 public:
  explicit SharedSlab(uint64_t floats)
      : used_bytes_(floats * sizeof(float)),
        bytes_((used_bytes_ + kPageBytes - 1) / kPageBytes * kPageBytes),
        room_(bytes_ + kPageBytes) {}
  float* values() {
    const uint64_t ahead = reinterpret_cast<uintptr_t>(room_.data()) % kPageBytes;
    return reinterpret_cast<float*>(room_.data() + (ahead == 0 ? 0 : kPageBytes - ahead));
  }
  SharedMemory shared() {
    return {reinterpret_cast<std::byte*>(values()), bytes_, -1, used_bytes_};
  }

 private:
  uint64_t used_bytes_, bytes_;
  std::vector<std::byte> room_;
};

struct RunsLayout {
  uint32_t ranks = 2;
  std::vector<uint64_t> elements;  // by variable
  uint64_t seed = 1;
  bool deterministic = false;
  bool lends = true;
  bool writes = true;
  uint32_t slow_percent = 30;
  uint64_t beyond = 0;  // floats behind the last variable that are something else
};

// The kinds of sections that ranks send each other, with their tags, in order.
struct SaidSection {
  SectionKind kind;
  uint32_t from, tag;
  uint64_t first;
};

class RunsWorld {
 public:
  explicit RunsWorld(const RunsLayout& layout)
      : layout_(layout),
        host_(layout.ranks),
        world_({.hosts = std::vector<uint32_t>(layout.ranks),
                .deterministic = layout.deterministic,
                .seed = layout.seed,
                .slow_percent = layout.slow_percent,
                .lenders = &host_}) {
    for (const uint64_t elements : layout.elements) {
      first_.push_back(total_);
      total_ += elements;
    }
    for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
      slabs_.push_back(std::make_unique<SharedSlab>(total_ + layout.beyond));
      apart_.emplace_back(total_);
      host_.rank(rank).writes = layout.writes;
      if (layout.lends) host_.rank(rank).share(slabs_[rank]->shared());
      world_.transport(rank).tap([this, rank](uint32_t, std::span<const Segment> segments) {
        std::vector<std::byte> message;
        for (const Segment& each : segments) {
          const auto* data = static_cast<const std::byte*>(each.data);
          message.insert(message.end(), data, data + each.bytes);
        }
        SectionReader reader(message);
        Section section;
        while (reader.next(&section)) {
          said_.push_back({section.header.kind, rank, section.header.tag, section.header.first});
        }
      });
    }
  }
  void commit() {
    std::vector<std::string> names;
    std::vector<parallax_variable_t> variables;
    for (uint32_t i = 0; i < layout_.elements.size(); ++i) {
      names.push_back("v" + std::to_string(100 + i));
    }
    for (uint32_t i = 0; i < names.size(); ++i) {
      variables.push_back(dense_variable(names[i].c_str(), layout_.elements[i], 1));
    }
    for (const Status& status : world_.commit(variables)) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
    world_.settle();
    said_.clear();
  }

  uint32_t variables() const { return static_cast<uint32_t>(layout_.elements.size()); }
  uint64_t total() const { return total_; }
  EngineWorld& world() { return world_; }
  SharedHost& host() { return host_; }
  float* values(uint32_t rank, uint32_t variable, bool apart = false) {
    return (apart ? apart_[rank].data() : slabs_[rank]->values()) + first_[variable];
  }
  parallax_slice_t slice(uint32_t rank, uint32_t variable, bool apart = false) {
    return dense_slice(variable, values(rank, variable, apart));
  }
  // Whole numbers, so that sums have one value in any order.
  static float number(uint32_t rank, uint64_t step, uint64_t element) {
    return static_cast<float>((element * 7 + rank * 13 + step * 31) % 509) - 200;
  }
  void fill(uint64_t step) {
    for (uint32_t rank = 0; rank < layout_.ranks; ++rank) {
      for (uint64_t i = 0; i < total_; ++i) {
        slabs_[rank]->values()[i] = apart_[rank][i] = number(rank, step, i);
      }
    }
  }
  // What the rank has of a variable that `givers` gave.
  void expect_sum(uint32_t rank, uint64_t step, uint32_t variable, bool apart,
                  const std::set<uint32_t>& givers) {
    const float* const sums = values(rank, variable, apart);
    for (uint64_t i = 0; i < layout_.elements[variable]; ++i) {
      float sum = 0;
      for (const uint32_t giver : givers) sum += number(giver, step, first_[variable] + i);
      ASSERT_EQ(sums[i], sum) << "rank " << rank << ", step " << step << ", variable " << variable
                              << ", element " << i << ", seed " << layout_.seed;
    }
  }
  uint64_t said(SectionKind kind) const {
    return static_cast<uint64_t>(std::count_if(
        said_.begin(), said_.end(), [kind](const SaidSection& each) { return each.kind == kind; }));
  }
  std::vector<SaidSection> take_said() { return std::exchange(said_, {}); }

  // One call of all at every rank; the statuses of reduce and step_end, of all ranks.
  std::vector<Status> run_whole_step() {
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < layout_.ranks; ++rank) {
      StepCalls& calls = world_.engine(rank).step_calls();
      uint64_t step = 0;
      EXPECT_TRUE(calls.begin(&step).ok());
      std::vector<parallax_slice_t> slices;
      for (uint32_t i = 0; i < variables(); ++i) slices.push_back(slice(rank, i));
      EXPECT_TRUE(calls.reduce(step, slices, &requests.emplace_back()).ok());
      EXPECT_TRUE(calls.end(step, end_options(1), &requests.emplace_back()).ok());
    }
    EXPECT_TRUE(world_.run_until_done(requests));
    std::vector<Status> statuses;
    for (uint32_t i = 0; i < requests.size(); ++i) {
      statuses.push_back(requests[i]->status);
      EXPECT_TRUE(world_.engine(i / 2).release(requests[i]).ok());
    }
    return statuses;
  }

 private:
  const RunsLayout layout_;
  std::vector<uint64_t> first_;
  uint64_t total_ = 0;
  SharedHost host_;
  std::vector<std::unique_ptr<SharedSlab>> slabs_;
  std::vector<std::vector<float>> apart_;
  std::vector<SaidSection> said_;
  EngineWorld world_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_RUNS_WORLD_H_
