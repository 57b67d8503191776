// SPDX-License-Identifier: Apache-2.0
// RunsWorld: an EngineWorld of one host whose ranks have their variables one behind the other,
// aligned as each likes, in memory that they lend, and in memory that they do not; and what they
// say to each other.
#ifndef PARALLAX_TESTS_SUPPORT_RUNS_WORLD_H_
#define PARALLAX_TESTS_SUPPORT_RUNS_WORLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "message/lending.h"
#include "message/wire.h"
#include "support/engine_world.h"
#include "support/numbers.h"
#include "support/shared_host.h"
#include "transport/peer_memory.h"

namespace parallax::testkit {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kBoardsSeed = 2;  // an even one: there are boards

inline std::set<uint32_t> all_of(uint32_t ranks) {
  std::set<uint32_t> all;
  for (uint32_t rank = 0; rank < ranks; ++rank) all.insert(rank);
  return all;
}

// Memory of a rank in whole pages, which all of its host may map: so many bytes, and what fills up
// the last page.
class SharedSlab {
 public:
  explicit SharedSlab(uint64_t bytes)
      : used_bytes_(bytes),
        bytes_((used_bytes_ + kPageBytes - 1) / kPageBytes * kPageBytes),
        room_(bytes_ + kPageBytes) {}
  std::byte* values() {
    const uint64_t ahead = reinterpret_cast<uintptr_t>(room_.data()) % kPageBytes;
    return room_.data() + (ahead == 0 ? 0 : kPageBytes - ahead);
  }
  std::span<std::byte> used() { return {values(), used_bytes_}; }
  SharedMemory shared() { return {values(), bytes_, -1, used_bytes_}; }

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
  uint64_t memory_max_bytes = 0;
  bool writes = true;
  uint32_t slow_percent = 30;
  std::vector<int32_t> priorities = {};  // by variable; none: 0
  uint64_t beyond = 0;                   // floats behind the last variable that are something else
  uint32_t dtype = PARALLAX_F32;
  uint32_t reduction = PARALLAX_SUM;
  // In bytes, by rank; of none, or where it has none: 1.
  std::vector<uint64_t> alignment = {};
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
                .memory_max_bytes = layout.memory_max_bytes,
                .seed = layout.seed,
                .slow_percent = layout.slow_percent,
                .lenders = &host_}) {
    for (const uint64_t elements : layout.elements) {
      first_.push_back(total_);
      total_ += elements;
    }
    for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
      const uint64_t unit = rank < layout.alignment.size() ? layout.alignment[rank] : 1;
      std::vector<uint64_t>& begins = begins_.emplace_back();
      uint64_t end = 0;
      for (const uint64_t elements : layout.elements) {
        begins.push_back((end + unit - 1) / unit * unit);
        end = begins.back() + elements * element_bytes();
      }
      slabs_.push_back(std::make_unique<SharedSlab>(end + layout.beyond * sizeof(float)));
      apart_.emplace_back((end + sizeof(float) - 1) / sizeof(float));
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
      variables.back().dtype = layout_.dtype;
      variables.back().reduction = layout_.reduction;
      if (!layout_.priorities.empty()) variables.back().priority = layout_.priorities[i];
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
  size_t element_bytes() const { return bytes_of_dtype(layout_.dtype); }
  float* values(uint32_t rank, uint32_t variable, bool apart = false) {
    std::byte* const all =
        apart ? reinterpret_cast<std::byte*>(apart_[rank].data()) : slabs_[rank]->values();
    return reinterpret_cast<float*>(all + begins_[rank][variable]);
  }
  std::span<const std::byte> bytes(uint32_t rank, uint32_t variable) {
    return std::as_bytes(std::span(values(rank, variable), layout_.elements[variable]))
        .first(layout_.elements[variable] * element_bytes());
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
      std::ranges::fill(slabs_[rank]->used(), kNobodys);
      for (uint32_t variable = 0; variable < variables(); ++variable) {
        Numbers numbers(layout_.dtype, layout_.elements[variable]);
        for (uint64_t i = 0; i < numbers.size(); ++i) {
          numbers.set(i, number(rank, step, first_[variable] + i));
        }
        for (const bool apart : {false, true}) {
          std::memcpy(values(rank, variable, apart), numbers.data(),
                      numbers.size() * element_bytes());
        }
      }
    }
  }
  // What lies between variables is as fill() left it.
  void expect_gaps_untouched(uint32_t rank) {
    const std::byte* at = slabs_[rank]->values();
    for (uint32_t variable = 0; variable < variables(); ++variable) {
      const std::span<const std::byte> next = bytes(rank, variable);
      for (; at < next.data(); ++at) ASSERT_EQ(*at, kNobodys) << "before variable " << variable;
      at = next.data() + next.size();
    }
  }
  // What the rank has of a variable that `givers` gave.
  void expect_sum(uint32_t rank, uint64_t step, uint32_t variable, bool apart,
                  const std::set<uint32_t>& givers) {
    const auto* const sums = reinterpret_cast<const std::byte*>(values(rank, variable, apart));
    const double factor = layout_.reduction == PARALLAX_MEAN_WORLD ? 1.0 / layout_.ranks : 1.0;
    Numbers expected(layout_.dtype, 1);
    for (uint64_t i = 0; i < layout_.elements[variable]; ++i) {
      double sum = 0;  // of whole numbers: exact
      for (const uint32_t giver : givers) {
        expected.set(0, number(giver, step, first_[variable] + i));  // as it was given, rounded
        sum += expected[0];
      }
      // In the sum's type.
      const bool doubles = layout_.dtype == PARALLAX_F64;
      const float mean = static_cast<float>(sum) * static_cast<float>(factor);
      expected.set(0, doubles ? sum * factor : static_cast<double>(mean));
      ASSERT_EQ(Numbers::read(layout_.dtype, sums, i), expected[0])
          << "rank " << rank << ", step " << step << ", variable " << variable << ", element " << i
          << ", seed " << layout_.seed;
    }
  }
  uint64_t said(SectionKind kind) const {
    return static_cast<uint64_t>(std::count_if(
        said_.begin(), said_.end(), [kind](const SaidSection& each) { return each.kind == kind; }));
  }
  std::vector<SaidSection> take_said() { return std::exchange(said_, {}); }

  // The job has failed at rank 0, by the name of rank 1; a request of it ends, and is released.
  void expect_rank_1_failed_it(Request* request) {
    const Status& failure = world_.engine(0).failure();
    EXPECT_EQ(failure.code(), PARALLAX_INTERNAL) << failure.message();
    EXPECT_NE(failure.message().find("rank 1"), std::string::npos) << failure.message();
    for (int i = 0; i < 1000 && !request->done(); ++i) {
      world_.clock().advance(10'000'000);
      world_.engine(0).run();
    }
    ASSERT_TRUE(request->done());
    EXPECT_TRUE(world_.engine(0).release(request).ok());
  }

  // One call of all at every rank, of those from `apart_from` on out of memory that is not lent;
  // the statuses of reduce and step_end, of all ranks.
  std::vector<Status> run_whole_step(uint32_t apart_from = UINT32_MAX) {
    std::vector<Request*> requests;
    for (uint32_t rank = 0; rank < layout_.ranks; ++rank) {
      StepCalls& calls = world_.engine(rank).step_calls();
      uint64_t step = 0;
      EXPECT_TRUE(calls.begin(&step).ok());
      std::vector<parallax_slice_t> slices;
      for (uint32_t i = 0; i < variables(); ++i) {
        slices.push_back(slice(rank, i, rank >= apart_from));
      }
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
  static constexpr std::byte kNobodys{0xa5};

  const RunsLayout layout_;
  std::vector<uint64_t> first_;                // by variable: elements of all before it
  std::vector<std::vector<uint64_t>> begins_;  // by rank and variable: in bytes
  uint64_t total_ = 0;
  SharedHost host_;
  std::vector<std::unique_ptr<SharedSlab>> slabs_;
  std::vector<std::vector<float>> apart_;
  std::vector<SaidSection> said_;
  EngineWorld world_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_RUNS_WORLD_H_
