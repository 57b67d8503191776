// SPDX-License-Identifier: Apache-2.0
// UcxWrites: pieces written into a peer's memory by RDMA devices, and the registrations of memory.
// Where the transport runs over an RDMA device (PARALLAX_TEST_NET_DEVICE, see tests/rdma), but for
// the first.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/interface.h"
#include "net/ucx_world.h"
#include "unit/transport/conformance.h"

namespace parallax::net {
namespace {

using conformance::Recorder;

constexpr size_t kMiB = 1 << 20;

std::string device_of_test() { return setting_of_test("PARALLAX_TEST_NET_DEVICE", "lo"); }

// Over tcp nothing is placed: large pieces go as messages, which were measured to be faster there.
TEST(UcxWritesOverTcp, there_are_none) {
  NetworkOptions options;
  options.world = 2;
  options.net_device = "lo";
  options.registered_bytes_max = kMiB;
  std::unique_ptr<NetworkTransport> transport;
  ASSERT_TRUE(ucx_module()->create(options, &transport).ok());
  EXPECT_EQ(transport->remote_writes(), nullptr);
}

// Pages of their own, zero.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    void* const made =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(made, MAP_FAILED);
    first_ = static_cast<std::byte*>(made);
  }
  ~Memory() { munmap(first_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* at(size_t offset) const { return first_ + offset; }
  ByteRange range() const { return ByteRange::at(first_, bytes_); }
  ByteRange part(size_t offset, size_t bytes) const {
    return ByteRange::at(first_ + offset, bytes);
  }
  size_t count(std::byte value) const {
    return static_cast<size_t>(std::count(first_, first_ + bytes_, value));
  }

 private:
  const size_t bytes_;
  std::byte* first_ = nullptr;
};

class UcxWrites : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_rdma_device(device_of_test())) {
      GTEST_SKIP() << device_of_test() << " is no RDMA device (PARALLAX_TEST_NET_DEVICE)";
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      NetworkOptions options;
      options.rank = rank;
      options.world = 2;
      options.net_device = device_of_test();
      options.transports = "rc";
      options.registered_bytes_max = 2 * kMiB;
      if (!more_.empty()) options.more_devices = {more_};
      ASSERT_TRUE(ucx_module()->create(options, &ranks_[rank]).ok());
      recorders_[rank].check_pattern = false;
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(ranks_[rank]->connect(1 - rank, ranks_[1 - rank]->address()).ok());
    }
    std::thread other([this] { wire(1); });
    wire(0);
    other.join();
  }

  void wire(uint32_t rank) {
    const uint32_t peer = 1 - rank;
    uint32_t missing = 0;
    const int64_t deadline_ns = SteadyClock().now_ns() + 30000 * kNanosecondsPerMillisecond;
    EXPECT_TRUE(ranks_[rank]->wire({&peer, 1}, deadline_ns, &missing).ok());
  }

  RemoteWrites& writes(uint32_t rank) { return *ranks_[rank]->remote_writes(); }
  nlohmann::json told(uint32_t rank) { return nlohmann::json::parse(writes(rank).json()); }

  template <typename Done>
  bool poll_until(Done done) {
    const SteadyClock clock;
    const int64_t end_ns = clock.now_ns() + 20000 * kNanosecondsPerMillisecond;
    while (!done()) {
      for (uint32_t rank = 0; rank < 2; ++rank) ranks_[rank]->poll(recorders_[rank]);
      if (clock.now_ns() > end_ns) return false;
    }
    return true;
  }

  // Rank 1 writes to rank 0, and says so.
  Status place(const SharedPart& shared, const std::byte* from, const std::byte* to, size_t bytes,
               uint64_t cookie) {
    const Segment segment{&words_[cookie], sizeof words_[cookie]};
    words_[cookie] = cookie;
    return writes(1).send(0, {&segment, 1},
                          {.data = from,
                           .bytes = bytes,
                           .address = reinterpret_cast<uintptr_t>(to),
                           .area = shared.area,
                           .key = shared.key},
                          cookie);
  }

  // A second rail, where tests/rdma has one.
  const std::string more_ = setting_of_test("PARALLAX_TEST_MORE_DEVICE", "");
  std::array<std::unique_ptr<NetworkTransport>, 2> ranks_;
  std::array<Recorder, 2> recorders_;
  std::array<uint64_t, 64> words_ = {};
};

// Given pieces among messages, expect each whole when its message comes, and all in order.
TEST_F(UcxWrites, a_piece_is_there_before_its_message) {
  const Memory to(kMiB), from(kMiB);
  std::memset(from.at(0), 7, kMiB);
  ASSERT_TRUE(writes(0).know(to.range()));
  SharedPart shared;
  ASSERT_TRUE(writes(0).share(to.range(), &shared));
  const size_t piece = writes(1).piece_bytes_max(0);
  ASSERT_GT(piece, 0u);
  std::vector<uint64_t> came;
  recorders_[0].message_hook = [&](uint32_t, std::span<const std::byte> message) {
    uint64_t word = 0;
    ASSERT_EQ(message.size(), sizeof word);
    std::memcpy(&word, message.data(), sizeof word);
    came.push_back(word);
    if (word % 2 == 0) return;
    const std::byte* const first = to.at(word / 2 % 4 * piece);
    EXPECT_EQ(std::count(first, first + piece, std::byte{7}), static_cast<ptrdiff_t>(piece));
  };
  const size_t count = 24;
  size_t sent = 0;
  ASSERT_TRUE(poll_until([&] {
    while (sent < count && ranks_[1]->writable(0)) {
      if (sent % 2 == 1) {
        const size_t at = sent / 2 % 4 * piece;
        EXPECT_TRUE(place(shared, from.at(at), to.at(at), piece, sent).ok());
      } else {
        words_[sent] = sent;
        const Segment segment{&words_[sent], sizeof words_[sent]};
        EXPECT_TRUE(ranks_[1]->send(0, {&segment, 1}, sent).ok());
      }
      ++sent;
    }
    return came.size() == count && recorders_[1].sent_count == count;
  }));
  for (uint64_t i = 0; i < count; ++i) EXPECT_EQ(came[i], i);
  EXPECT_EQ(told(1)["pieces"], count / 2);
  const nlohmann::json rails = told(1)["rails"];
  ASSERT_EQ(rails.size(), more_.empty() ? 1u : 2u);
  uint64_t pieces = 0;
  for (const auto& rail : rails) {
    EXPECT_EQ(rail["peers"], 1);
    EXPECT_GE(rail["pieces"], 2) << rail["device"];
    EXPECT_EQ(rail["piece_bytes"], rail["pieces"].get<uint64_t>() * piece);
    pieces += rail["pieces"].get<uint64_t>();
  }
  EXPECT_EQ(pieces, count / 2);
  EXPECT_EQ(told(0)["registrations"], 1);
  writes(0).unshare(shared.area);
  writes(0).forget_area(to.range());
  EXPECT_EQ(told(0)["registered_bytes"], 0);
}

// Given room for two of three areas, expect the one to go that was not used for longest, none that
// is in use, and nothing to be registered that is already.
TEST_F(UcxWrites, registrations_are_kept_and_bounded) {
  const Memory memory(3 * kMiB), large(3 * kMiB);
  std::array<SharedPart, 3> shared;
  const auto share = [&](size_t area) {
    return writes(0).share(memory.part(area * kMiB + 100, 1000), &shared[area]);
  };
  for (size_t area = 0; area < 3; ++area) {
    ASSERT_TRUE(writes(0).know(memory.part(area * kMiB, kMiB)));
  }
  EXPECT_FALSE(writes(0).know(memory.part(kMiB / 2, kMiB))) << "it overlaps";
  EXPECT_FALSE(writes(0).share(memory.part(kMiB - 100, 200), &shared[0])) << "of two areas";
  const auto has_room = [&](size_t area) {
    return writes(0).has_room(memory.part(area * kMiB + 100, 1000));
  };
  EXPECT_FALSE(writes(0).has_room(memory.part(kMiB - 100, 200)));
  EXPECT_FALSE(writes(0).has_room(large.part(0, 100))) << "of none that is known";
  for (int round = 0; round < 10; ++round) {
    for (size_t area = 0; area < 2; ++area) {
      ASSERT_TRUE(share(area));
      writes(0).unshare(shared[area].area);
    }
  }
  EXPECT_EQ(told(0)["registrations"], 2);
  EXPECT_TRUE(has_room(0) && has_room(1)) << "as they are registered";
  EXPECT_FALSE(has_room(2)) << "another's registration would end";
  ASSERT_TRUE(share(0));
  ASSERT_TRUE(share(2)) << "the second goes";
  EXPECT_EQ(told(0)["evictions"], 1);
  EXPECT_FALSE(share(1)) << "both are in use";
  EXPECT_EQ(told(0)["shares_refused"], 1);
  writes(0).unshare(shared[0].area);
  ASSERT_TRUE(share(1));
  EXPECT_EQ(told(0)["evictions"], 2);
  EXPECT_EQ(told(0)["registered_bytes"], 2 * kMiB);
  ASSERT_TRUE(writes(0).know(large.range()));
  EXPECT_FALSE(writes(0).share(large.range(), &shared[0]));
  EXPECT_FALSE(writes(0).has_room(large.range())) << "it was refused";
  EXPECT_NE(told(0)["refused_why"].get<std::string>().find("rdma_memory_mb"), std::string::npos);
}

// Given a rank that has withdrawn, expect no byte of it to be written, and the writer to be told of
// a loss, with its memory its own again.
TEST_F(UcxWrites, who_has_withdrawn_is_not_written_to) {
  const Memory to(kMiB), from(kMiB);
  std::memset(from.at(0), 7, kMiB);
  ASSERT_TRUE(writes(0).know(to.range()));
  SharedPart shared;
  ASSERT_TRUE(writes(0).share(to.range(), &shared));
  const std::vector<std::byte> key(shared.key.begin(), shared.key.end());
  const SharedPart kept = {.area = shared.area, .key = key};
  writes(0).withdraw();
  EXPECT_FALSE(writes(0).share(to.range(), &shared));
  EXPECT_FALSE(writes(0).has_room(to.range()));
  ASSERT_TRUE(place(kept, from.at(0), to.at(0), 64 * 1024, 1).ok());
  EXPECT_TRUE(poll_until(
      [&] { return recorders_[1].losses.count(0) > 0 && recorders_[1].sent_count == 1; }));
  EXPECT_EQ(to.count(std::byte{0}), kMiB);
  EXPECT_EQ(recorders_[0].received[1], 0u);
}

// Given pieces on their way when the writer gives up, expect its memory to be its own at once.
TEST_F(UcxWrites, who_withdraws_reads_no_more) {
  const Memory to(kMiB), from(kMiB);
  ASSERT_TRUE(writes(0).know(to.range()));
  SharedPart shared;
  ASSERT_TRUE(writes(0).share(to.range(), &shared));
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(place(shared, from.at(0), to.at(0), 128 * 1024, i).ok());
  }
  writes(1).withdraw();
  ASSERT_EQ(mprotect(from.at(0), kMiB, PROT_NONE), 0) << "a look at it would end the process";
  EXPECT_TRUE(poll_until([&] { return recorders_[1].sent_count == 8; }));
  EXPECT_EQ(recorders_[1].losses.count(0), 1u);
}

}  // namespace
}  // namespace parallax::net
