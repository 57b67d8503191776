// SPDX-License-Identifier: Apache-2.0
// Chatter: a small actor for the simulator's own tests. It sends numbered messages to all its peers
// at a steady pace and checks that what it hears is complete and in order. One thread.
#ifndef PARALLAX_TESTS_SIM_CHATTER_H_
#define PARALLAX_TESTS_SIM_CHATTER_H_

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/sim/sim_world.h"

namespace parallax::simtest {

struct Heard {
  uint32_t from = 0;
  uint64_t number = 0;
  int64_t at_ns = 0;
};

class Chatter final : public Actor, private Receiver {
 public:
  Chatter(SimWorld& world, uint32_t rank, uint32_t ranks, int64_t period_ns, uint64_t rounds)
      : world_(world), rank_(rank), ranks_(ranks), period_ns_(period_ns), rounds_(rounds) {}

  void run(int64_t now_ns) override {
    runs_ns.push_back(now_ns);
    Transport& transport = world_.transport(rank_);
    while (transport.poll(*this)) {
    }
    for (; round_ < rounds_ && next_ns_ <= now_ns; ++round_, next_ns_ += period_ns_) {
      for (uint32_t to = 0; to < ranks_; ++to) {
        if (to != rank_) say(transport, to);
      }
    }
  }

  int64_t next_deadline_ns() const override { return round_ < rounds_ ? next_ns_ : kNever; }

  uint64_t heard_from(uint32_t rank) const {
    const auto found = next_number_.find(rank);
    return found == next_number_.end() ? 0 : found->second;
  }

  size_t message_bytes = 64;
  std::vector<Heard> heard;
  std::vector<int64_t> runs_ns;
  std::map<uint32_t, std::pair<int64_t, std::string>> lost;
  std::vector<std::pair<uint32_t, size_t>> strays;  // claimed sender, bytes
  uint64_t accepted = 0;
  uint64_t refused = 0;
  uint64_t completed = 0;

 private:
  struct Words {
    uint32_t magic = kMagic;
    uint32_t from = 0;
    uint64_t number = 0;
  };
  static constexpr uint32_t kMagic = 0x63686174;

  void say(Transport& transport, uint32_t to) {
    if (!transport.writable(to)) {
      ++refused;
      return;
    }
    auto& buffer = buffers_.emplace_back(std::make_unique<std::byte[]>(message_bytes));
    const Words words{kMagic, rank_, said_[to]};
    std::memcpy(buffer.get(), &words, sizeof words);
    // In two pieces, so that gathering is exercised.
    const std::array<Segment, 2> pieces = {Segment{buffer.get(), 9},
                                           Segment{buffer.get() + 9, message_bytes - 9}};
    if (!transport.send(to, pieces, buffers_.size()).ok()) return;
    ++said_[to];
    ++accepted;
  }

  void on_message(uint32_t from, std::span<const std::byte> message) override {
    Words words{};
    if (message.size() != message_bytes) {
      strays.emplace_back(from, message.size());
      return;
    }
    std::memcpy(&words, message.data(), sizeof words);
    if (words.magic != kMagic || words.from != from) {
      strays.emplace_back(from, message.size());
      return;
    }
    EXPECT_EQ(words.number, next_number_[from]) << "rank " << rank_ << " from " << from;
    next_number_[from] = words.number + 1;
    heard.push_back({from, words.number, world_.now_ns()});
  }
  void on_sent(uint64_t) override { ++completed; }
  void on_lost(uint32_t rank, Loss, std::string_view why) override {
    EXPECT_EQ(lost.count(rank), 0u) << "told twice";
    lost[rank] = {world_.now_ns(), std::string(why)};
    EXPECT_FALSE(world_.transport(rank_).writable(rank));
  }

  SimWorld& world_;
  uint32_t rank_;
  uint32_t ranks_;
  int64_t period_ns_;
  uint64_t rounds_;
  uint64_t round_ = 0;
  int64_t next_ns_ = 0;
  std::map<uint32_t, uint64_t> said_;
  std::map<uint32_t, uint64_t> next_number_;
  std::deque<std::unique_ptr<std::byte[]>> buffers_;
};

}  // namespace parallax::simtest

#endif  // PARALLAX_TESTS_SIM_CHATTER_H_
