// SPDX-License-Identifier: Apache-2.0
// Fault rules: their text form, and what FaultyTransport does by them that the conformance suite of
// the simulator (tests/sim) does not show: which messages, from when, for how long.
#include "transport/faulty/faulty_transport.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "message/kinds.h"

namespace parallax {
namespace {

constexpr int64_t kMs = kNanosecondsPerMillisecond;
constexpr uint32_t kWorld = 4;

TEST(FaultRules, ReadsEveryPart) {
  FaultyOptions options;
  const Status status = parse_faults(
      " seed=7; delay:peer=3, percent=20,ms=50 ;silence : peer=1,way=in,at=100,for_ms=2000;"
      "stall:after_ms=5,for_ms=6;close:variable=2,at=9;;",
      kWorld, &options);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(options.seed, 7u);
  ASSERT_EQ(options.rules.size(), 4u);
  const FaultRule& delay = options.rules[0];
  EXPECT_EQ(delay.fault, InjectedFault::kDelay);
  EXPECT_EQ(delay.peer, 3u);
  EXPECT_EQ(delay.variable, kAnyVariable);
  EXPECT_EQ(delay.percent, 20u);
  EXPECT_EQ(delay.amount_ns, 50 * kMs);
  EXPECT_EQ(delay.for_ns, kNever);
  const FaultRule& silence = options.rules[1];
  EXPECT_EQ(silence.fault, InjectedFault::kSilence);
  EXPECT_EQ(silence.way, Way::kIn);
  EXPECT_EQ(silence.at, 100u);
  EXPECT_EQ(silence.for_ns, 2000 * kMs);
  EXPECT_EQ(options.rules[2].fault, InjectedFault::kStall);
  EXPECT_EQ(options.rules[2].after_ns, 5 * kMs);
  EXPECT_EQ(options.rules[2].for_ns, 6 * kMs);
  EXPECT_EQ(options.rules[3].fault, InjectedFault::kClose);
  EXPECT_EQ(options.rules[3].variable, 2u);
  EXPECT_EQ(options.rules[3].at, 9u);
  ASSERT_TRUE(parse_faults("", kWorld, &options).ok());
  EXPECT_TRUE(options.rules.empty());
}

TEST(FaultRules, RefusesByName) {
  const struct {
    const char* text;
    const char* said;
  } cases[] = {
      {"drop:peer=1", "must open with delay:, silence:, stall: or close:"},
      {"delay:peer=1", "needs ms=N"},
      {"stall:", "needs for_ms=N"},
      {"delay:ms=ten", "ms is 'ten'"},
      {"delay:ms=-1", "ms is '-1'"},
      {"delay:ms=", "ms is ''"},
      {"delay:ms=5,percent=101", "percent is '101'; it must be a whole number up to 100"},
      {"close:percent=3", "'percent=3' is not a part of close"},
      {"silence:way=up", "way is 'up'; it must be in, out or both"},
      {"silence:peer=4294967295", "peer is '4294967295'"},
      {"silence:peer=4", "'silence:peer=4': peer is 4, but the world is 4: its ranks are 0 to 3"},
      {"close:; stall:for_ms=1,peer=77", "'stall:for_ms=1,peer=77': peer is 77"},
      {"silence:variable=4096", "variable is '4096'"},
      {"silence:,", "'' is not a part of silence"},
      {"seed=x", "seed must be a whole number"},
      {"delay:ms=99999999999999999999", "ms is '99999999999999999999'"},
  };
  for (const auto& each : cases) {
    FaultyOptions options;
    options.seed = 42;
    const Status status = parse_faults(each.text, kWorld, &options);
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << each.text;
    EXPECT_NE(status.message().find(each.said), std::string::npos) << status.message();
    EXPECT_EQ(options.seed, 42u) << "a wrong text changes nothing";
  }
  FaultyOptions options;
  std::string many;
  for (int i = 0; i < 300; ++i) many += "close:;";
  EXPECT_EQ(parse_faults(many, kWorld, &options).code(), PARALLAX_INVALID);
  EXPECT_EQ(parse_faults(std::string(1 << 20, ';'), kWorld, &options).code(), PARALLAX_INVALID);
}

TEST(FaultRules, KnowsTheWorld) {
  FaultyOptions options;
  EXPECT_TRUE(parse_faults("close:peer=3", 4, &options).ok());
  EXPECT_TRUE(parse_faults("close:peer=0", 1, &options).ok()) << "the rules of all ranks, alone";
  EXPECT_TRUE(parse_faults("close:", 1, &options).ok());
  const Status status = parse_faults("close:peer=77", 1, &options);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_NE(status.message().find("rule 'close:peer=77': peer is 77, but the world is 1: rank 0 is "
                                  "alone"),
            std::string::npos)
      << status.message();
}

class SteppedClock final : public Clock {
 public:
  int64_t now_ns() const override { return now; }
  int64_t now = 1000;
};

// Takes everything at once, and hands back what it is told to.
class OpenTransport final : public Transport {
 public:
  std::string_view name() const override { return "open"; }
  size_t message_bytes_max() const override { return kMessageBytesMin; }
  bool writable(uint32_t) const override { return true; }
  Status send(uint32_t to, std::span<const Segment>, uint64_t cookie) override {
    sent.push_back(to);
    cookies.push_back(cookie);
    return {};
  }
  bool poll(Receiver& receiver) override {
    for (const uint64_t cookie : std::exchange(cookies, {})) receiver.on_sent(cookie);
    for (auto& [from, bytes] : std::exchange(arriving, {})) receiver.on_message(from, bytes);
    return false;
  }
  int wait_fd() const override { return -1; }
  bool arm() override { return true; }
  void forget(uint32_t) override {}

  std::vector<uint32_t> sent;
  std::vector<uint64_t> cookies;
  std::vector<std::pair<uint32_t, std::vector<std::byte>>> arriving;
};

// A message with one section of a variable's data, or with control alone.
std::vector<std::byte> message_about(SectionKind kind, uint32_t variable) {
  SectionHeader section;
  section.kind = kind;
  section.tag = variable;
  MessageHeader header;
  header.section_count = 1;
  std::vector<std::byte> bytes(sizeof header + sizeof section);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &section, sizeof section);
  return bytes;
}

class Faulty : public testing::Test, public Receiver {
 protected:
  void make(const char* rules, void (*sleep)(int64_t) = nullptr) {
    FaultyOptions options;
    const Status parsed = parse_faults(rules, kWorld, &options);
    ASSERT_TRUE(parsed.ok()) << parsed.message();
    options.carries_data_of = carries_data_of;
    auto open = std::make_unique<OpenTransport>();
    inner_ = open.get();
    faulty_ = std::make_unique<FaultyTransport>(std::move(open), clock_, options, sleep);
  }
  Status send(uint32_t to, const std::vector<std::byte>& message) {
    const Segment segment{message.data(), message.size()};
    return faulty_->send(to, {&segment, 1}, 1);
  }
  // How many of what was sent to `to` has come through by now.
  size_t through(uint32_t to) {
    faulty_->poll(*this);
    return static_cast<size_t>(std::count(inner_->sent.begin(), inner_->sent.end(), to));
  }
  void on_message(uint32_t from, std::span<const std::byte>) override { heard_.push_back(from); }
  void on_sent(uint64_t) override { ++completed_; }
  void on_lost(uint32_t rank, Loss, std::string_view) override { lost_.push_back(rank); }

  const std::vector<std::byte> control_ = message_about(SectionKind::kTreeUp, 2);
  const std::vector<std::byte> two_ = message_about(SectionKind::kHostReduce, 2);
  const std::vector<std::byte> three_ = message_about(SectionKind::kPullHost, 3);
  SteppedClock clock_;
  OpenTransport* inner_ = nullptr;
  std::unique_ptr<FaultyTransport> faulty_;
  std::vector<uint32_t> heard_, lost_;
  int completed_ = 0;
};

// Given a silence of one variable to one peer, expect that alone to wait, with what follows it, and
// all to come when it is over.
TEST_F(Faulty, silence_concerns_its_peer_and_variable) {
  make("silence:peer=1,variable=2,way=out,for_ms=10");
  ASSERT_TRUE(send(1, control_).ok());
  ASSERT_TRUE(send(1, three_).ok());
  EXPECT_EQ(through(1), 2u);
  ASSERT_TRUE(send(2, two_).ok());
  EXPECT_EQ(through(2), 1u);
  ASSERT_TRUE(send(1, two_).ok());
  ASSERT_TRUE(send(1, control_).ok());
  EXPECT_EQ(through(1), 2u);
  EXPECT_FALSE(faulty_->arm()) << "something waits that no descriptor tells of";
  clock_.now += 10 * kMs;
  EXPECT_EQ(through(1), 4u);
  through(1);
  EXPECT_EQ(completed_, 5);
  EXPECT_TRUE(faulty_->arm());
  EXPECT_EQ(faulty_->silenced_count(), 1u);
}

// Given a silence from the third message on, expect the first two, in the one direction.
TEST_F(Faulty, silence_begins_at_a_message_and_has_a_way) {
  make("silence:way=in,at=3");
  for (int i = 0; i < 4; ++i) inner_->arriving.emplace_back(5, control_);
  ASSERT_TRUE(send(5, control_).ok());
  EXPECT_EQ(through(5), 1u);
  EXPECT_EQ(heard_.size(), 2u);
  clock_.now += 3600 * 1000 * kMs;
  faulty_->poll(*this);
  EXPECT_EQ(heard_.size(), 2u);
  faulty_->forget(5);
  EXPECT_TRUE(faulty_->arm());
}

TEST_F(Faulty, delay_is_bounded_and_seeded) {
  std::vector<std::vector<int64_t>> runs;
  for (const char* seed : {"seed=1;delay:ms=50", "seed=1;delay:ms=50", "seed=2;delay:ms=50"}) {
    make(seed);
    std::vector<int64_t>& waits = runs.emplace_back();
    for (int i = 0; i < 20; ++i) {
      const size_t before = through(1);
      const int64_t start_ns = clock_.now;
      ASSERT_TRUE(send(1, control_).ok());
      while (through(1) == before) clock_.now += kMs / 4;
      waits.push_back(clock_.now - start_ns);
      EXPECT_LE(waits.back(), 51 * kMs);
    }
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

TEST_F(Faulty, close_comes_once_at_its_message) {
  make("close:variable=3,at=2");
  ASSERT_TRUE(send(1, three_).ok());
  ASSERT_TRUE(send(2, two_).ok());
  EXPECT_EQ(send(2, three_).code(), PARALLAX_PEER_LOST);
  EXPECT_FALSE(faulty_->writable(2));
  ASSERT_TRUE(send(1, three_).ok());
  through(1);
  EXPECT_EQ(lost_, std::vector<uint32_t>{2});
  EXPECT_EQ(faulty_->closed_count(), 1u);
}

int64_t slept_ns = 0;

TEST_F(Faulty, stall_sleeps_once_when_its_time_comes) {
  slept_ns = 0;
  make("stall:after_ms=5,for_ms=30", [](int64_t ns) { slept_ns += ns >= kMs ? ns : 0; });
  faulty_->poll(*this);
  EXPECT_EQ(slept_ns, 0);
  EXPECT_FALSE(faulty_->arm()) << "its time has yet to come";
  clock_.now += 6 * kMs;
  faulty_->poll(*this);
  faulty_->poll(*this);
  EXPECT_EQ(slept_ns, 30 * kMs);
  EXPECT_EQ(faulty_->stalled_count(), 1u);
  EXPECT_TRUE(faulty_->arm());
}

}  // namespace
}  // namespace parallax
