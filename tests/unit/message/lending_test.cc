// SPDX-License-Identifier: Apache-2.0
// Loans: counted while they are out, ended by who has read them or taken back; and readers' turns.
#include "message/lending.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <vector>

#include "unit/message/outbox_fixture.h"

namespace parallax::outbox_tests {
namespace {

// One buffer of this rank, which rank 3 has mapped.
class OneBuffer final : public PeerMemory {
 public:
  bool share(const SharedMemory&) override { return false; }
  void unshare(const void*) override {}
  BufferPlace place_of(const void* data, uint64_t bytes) const override {
    const auto* const first = reinterpret_cast<const std::byte*>(values.data());
    const auto* const wanted = static_cast<const std::byte*>(data);
    if (wanted < first || wanted + bytes > first + values.size() * sizeof(float)) return {};
    return {.buffer = 5, .offset = static_cast<uint64_t>(wanted - first)};
  }
  uint64_t used_bytes(uint64_t buffer) const override { return buffer == 5 ? used : 0; }
  bool mapped_by(uint32_t rank, uint64_t buffer) const override { return rank == 3 && buffer == 5; }
  const std::byte* find(uint32_t, const BufferPlace&, uint64_t) override { return nullptr; }
  void retract(uint32_t rank) override { retracted.insert(rank); }
  bool was_meant(uint32_t) const override { return true; }
  bool make_private(const ByteRange& pages) override {
    EXPECT_FALSE(retracted.empty()) << "who reads is told first";
    if (has_pages) apart.push_back(pages);
    return has_pages;
  }
  PeerMemoryCounts counts() const override { return {}; }

  std::vector<float> values = std::vector<float>(5000, 1.0f);
  uint64_t used = 0;
  std::multiset<uint32_t> retracted;
  bool has_pages = true;
  std::vector<ByteRange> apart;
};

class LendingTest : public OutboxTest {
 protected:
  LendingTest() { transport_.memory = &memory_; }

  Send loan_to(uint32_t rank, uint64_t first) {
    Send send = dense_send(memory_.values, first, 9);
    send.header.flags = 0;
    send.dense += first * sizeof(float);
    send.count -= first;
    send.lent = outbox_.lending().place_for(rank, send.dense, send.count * sizeof(float));
    return send;
  }
  // The loan that the one section of a message to rank 3 tells of.
  LentPart told() {
    const std::vector<Got> sections = flush(3);
    EXPECT_EQ(sections.size(), 1u);
    LentPart part;
    if (sections.size() != 1 || sections[0].payload.size() != sizeof part) return part;
    EXPECT_EQ(sections[0].header.encoding, Encoding::kLent);
    std::memcpy(&part, sections[0].payload.data(), sizeof part);
    return part;
  }

  OneBuffer memory_;
};

TEST_F(LendingTest, places_are_of_what_a_peer_has_mapped) {
  const Lending& lending = outbox_.lending();
  EXPECT_EQ(lending.place_for(3, &memory_.values[100], 40).buffer, 5u);
  EXPECT_EQ(lending.place_for(3, &memory_.values[100], 40).offset, 400u);
  EXPECT_EQ(lending.place_for(2, &memory_.values[100], 40).buffer, 0u) << "not mapped there";
  EXPECT_EQ(lending.place_for(3, &memory_, 8).buffer, 0u) << "in no buffer";
  transport_.memory = nullptr;
  EXPECT_EQ(lending.place_for(3, &memory_.values[100], 40).buffer, 0u);
}

// Given a loan, expect it to be told of in one section however long it is, and to count until the
// rank that has it, and no other, says once that it has read it.
TEST_F(LendingTest, counts_until_it_was_read) {
  outbox_.add(3, loan_to(3, 1000));
  const LentPart part = told();
  EXPECT_EQ(part.place.buffer, 5u);
  EXPECT_EQ(part.place.offset, 4000u);
  EXPECT_EQ(pending_, 1u);
  EXPECT_EQ(outbox_.lending().counts().lent_bytes, 16000u);
  EXPECT_TRUE(outbox_.idle());
  Lending& lending = outbox_.lending();
  EXPECT_FALSE(lending.returned(2, part.loan)) << "another rank's";
  EXPECT_FALSE(lending.returned(3, part.loan + 1));
  EXPECT_FALSE(lending.returned(3, part.loan + (uint64_t{1} << 32)));
  EXPECT_EQ(pending_, 1u);
  EXPECT_TRUE(lending.returned(3, part.loan));
  EXPECT_EQ(pending_, 0u);
  EXPECT_FALSE(lending.returned(3, part.loan)) << "twice";
  EXPECT_EQ(memory_.retracted.size(), 0u);
}

TEST_F(LendingTest, what_is_added_while_it_waits_is_lent_with_it) {
  Send* queued = nullptr;
  Send send = loan_to(3, 1000);
  send.count -= 500;
  send.handle = &queued;
  outbox_.add(3, send);
  Outbox::extend(queued, 500);
  const std::vector<Got> sections = flush(3);
  ASSERT_EQ(sections.size(), 1u);
  EXPECT_EQ(sections[0].header.count, 4000u);
  EXPECT_EQ(queued, nullptr) << "what comes now is another loan";
}

// Given a peer that is lost, or a job that has failed, expect its loans to be taken back before
// they cease to count, and those of others to go on.
TEST_F(LendingTest, is_taken_back_from_who_is_lost) {
  outbox_.add(3, loan_to(3, 0));
  const LentPart first = told();
  outbox_.add(3, loan_to(3, 10));
  const LentPart second = told();
  EXPECT_NE(first.loan, second.loan);
  outbox_.drop(2);
  EXPECT_EQ(pending_, 2u);
  EXPECT_EQ(memory_.retracted.size(), 0u);
  outbox_.drop(3);
  EXPECT_EQ(pending_, 0u);
  EXPECT_EQ(memory_.retracted, (std::multiset<uint32_t>{3}));
  EXPECT_FALSE(outbox_.lending().returned(3, first.loan));
}

TEST_F(LendingTest, is_taken_back_where_the_job_fails) {
  outbox_.add(3, loan_to(3, 0));
  told();
  outbox_.add(3, loan_to(3, 10));  // still queued
  EXPECT_EQ(pending_, 2u);
  outbox_.drop_data();
  EXPECT_EQ(pending_, 0u);
  EXPECT_EQ(memory_.retracted, (std::multiset<uint32_t>{3}));
  outbox_.add(3, loan_to(3, 20));
  EXPECT_EQ(pending_, 0u) << "nothing is lent any more";
}

TEST_F(LendingTest, numbers_of_ended_loans_do_not_end_others) {
  Lending& lending = outbox_.lending();
  std::vector<uint32_t> pending(200);
  std::vector<uint64_t> numbers;
  for (uint32_t& each : pending) numbers.push_back(lending.lend(3, 100, &each));
  for (uint64_t number : numbers) EXPECT_TRUE(lending.returned(3, number));
  uint32_t again = 0;
  for (size_t i = 0; i < numbers.size(); ++i) lending.lend(3, 100, &again);
  for (uint64_t number : numbers) EXPECT_FALSE(lending.returned(3, number));
  EXPECT_EQ(again, numbers.size());
  lending.take_back_all();
  EXPECT_EQ(again, 0u);
}

// ---- what comes back

uint64_t page_bytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

TEST_F(LendingTest, whole_pages_are_those_that_nothing_else_lies_in) {
  const Lending& lending = outbox_.lending();
  const uint64_t page = page_bytes();
  EXPECT_FALSE(lending.whole_pages({5, 0}, page - 1, {}).any());
  EXPECT_FALSE(lending.whole_pages({5, 8}, 2 * page - 9, {}).any());
  const WholePages all = lending.whole_pages({5, 3 * page}, 2 * page, {});
  EXPECT_EQ(all.first, 0u);
  EXPECT_EQ(all.end, 2 * page);
  const WholePages inner = lending.whole_pages({5, page + 8}, 3 * page, {});
  EXPECT_EQ(inner.first, page - 8);
  EXPECT_EQ(inner.end, 3 * page - 8);
}

// Given bytes with others of the same request about them, expect a page that has nothing else to
// count as theirs, and the pages that they make private to be all borrowed.
TEST_F(LendingTest, pages_are_whole_with_what_is_borrowed_beside) {
  const Lending& lending = outbox_.lending();
  const uint64_t page = page_bytes();
  std::byte* const base = reinterpret_cast<std::byte*>(memory_.values.data());
  const BufferPlace middle = {5, page + 100};
  const WholePages all = lending.whole_pages(middle, page, {.before = 100, .behind = page - 100});
  EXPECT_EQ(all.first, 0u);
  EXPECT_EQ(all.end, page);
  const ByteRange pages = lending.pages_of(middle, base + middle.offset, all);
  EXPECT_EQ(pages.first, reinterpret_cast<uintptr_t>(base) + page);
  EXPECT_EQ(pages.bytes, 2 * page);
  // A byte of the first page, and of the last, is somebody else's.
  const WholePages less = lending.whole_pages(middle, page, {.before = 99, .behind = page - 101});
  EXPECT_FALSE(less.any());
  const WholePages last = lending.whole_pages(middle, 2 * page, {.before = 99, .behind = 8});
  EXPECT_EQ(last.first, page - 100);
  EXPECT_EQ(last.end, 2 * page - 100);
  EXPECT_EQ(lending.pages_of(middle, base + middle.offset, last).bytes, page);
  // It is in them whole, and fills none.
  const WholePages few = lending.whole_pages({5, 8}, 8, {.before = 8, .behind = page - 16});
  EXPECT_EQ(few.first, 0u);
  EXPECT_EQ(few.end, 8u);
}

// Given a buffer whose last page is filled up, expect that page to be whole once all before that is
// borrowed, and in that buffer alone.
TEST_F(LendingTest, what_fills_up_the_last_page_is_nobodys) {
  const Lending& lending = outbox_.lending();
  const uint64_t page = page_bytes();
  memory_.used = 3 * page + 100;
  const WholePages all = lending.whole_pages({5, 2 * page}, page + 100, {});
  EXPECT_EQ(all.first, 0u);
  EXPECT_EQ(all.end, page + 100);
  std::byte* const base = reinterpret_cast<std::byte*>(memory_.values.data());
  EXPECT_EQ(lending.pages_of({5, 2 * page}, base + 2 * page, all).bytes, 2 * page);
  EXPECT_EQ(lending.whole_pages({5, 3 * page}, 50, {.before = 0, .behind = 50}).end, 50u);
  EXPECT_EQ(lending.whole_pages({5, 2 * page}, page + 99, {}).end, page);
  EXPECT_EQ(lending.whole_pages({6, 2 * page}, page + 100, {}).end, page);
}

// Given loans whose readers write, expect their whole pages, and no byte beside them, to become
// this rank's own before it has them again; and where there is no memory for that, expect the loan
// to go on until it is returned.
TEST_F(LendingTest, what_a_lost_rank_may_write_becomes_private) {
  const uint64_t page = page_bytes();
  for (const bool has_pages : {true, false}) {
    memory_.has_pages = has_pages;
    memory_.apart.clear();
    Send send = loan_to(3, 100);
    send.returns = outbox_.lending().whole_pages(send.lent, send.count * sizeof(float), {});
    outbox_.add(3, send);
    const LentPart part = told();
    EXPECT_TRUE(part.returns.any());
    outbox_.lending().take_back(3);
    EXPECT_EQ(pending_, has_pages ? 0u : 1u);
    if (!has_pages) {
      EXPECT_TRUE(outbox_.lending().returned(3, part.loan));
      continue;
    }
    ASSERT_EQ(memory_.apart.size(), 1u);
    EXPECT_EQ(memory_.apart[0].first, reinterpret_cast<uintptr_t>(memory_.values.data()) + page);
    EXPECT_EQ(memory_.apart[0].bytes, memory_.values.size() * sizeof(float) / page * page - page);
  }
}

TEST_F(LendingTest, what_is_only_read_stays_where_it_is) {
  outbox_.add(3, loan_to(3, 0));
  EXPECT_FALSE(told().returns.any());
  outbox_.drop(3);
  EXPECT_EQ(pending_, 0u);
  EXPECT_TRUE(memory_.apart.empty());
}

struct Reader final : public LentReader {
  bool read_lent() override { return ++turns < until; }
  int turns = 0;
  int until = 1;
};

TEST_F(LendingTest, readers_have_turns_while_they_have_something_to_read) {
  Lending& lending = outbox_.lending();
  EXPECT_FALSE(lending.read());
  Reader once, thrice, gone;
  thrice.until = 3;
  for (Reader* each : {&once, &thrice, &gone, &once}) lending.wake(each);
  lending.forget(&gone);
  EXPECT_TRUE(lending.to_read());
  EXPECT_TRUE(lending.read());
  EXPECT_EQ(once.turns, 1);
  EXPECT_TRUE(lending.read());
  EXPECT_TRUE(lending.read());
  EXPECT_FALSE(lending.to_read());
  EXPECT_FALSE(lending.read());
  EXPECT_EQ(once.turns, 1);
  EXPECT_EQ(thrice.turns, 3);
  EXPECT_EQ(gone.turns, 0);
}

// Given readers of several priorities, expect turns for the highest alone, until none of those has
// anything to read; and of a reader that is woken twice the higher.
TEST_F(LendingTest, urgent_readers_have_their_turns_first) {
  Lending& lending = outbox_.lending();
  Reader slow, urgent, raised;
  slow.until = urgent.until = raised.until = 2;
  lending.wake(&slow, -1);
  lending.wake(&raised, -1);
  lending.wake(&urgent, 3);
  lending.wake(&raised, 3);
  lending.wake(&raised, 0);
  for (int turn = 1; turn <= 2; ++turn) {
    EXPECT_TRUE(lending.read());
    EXPECT_EQ(urgent.turns, turn);
    EXPECT_EQ(raised.turns, turn);
    EXPECT_EQ(slow.turns, 0);
  }
  EXPECT_TRUE(lending.read());
  EXPECT_EQ(slow.turns, 1);
  lending.wake(&slow, -1);
  EXPECT_TRUE(lending.read());
  EXPECT_EQ(slow.turns, 2);
  EXPECT_FALSE(lending.read());
}

// Wakes others in its turn.
struct Waker final : public LentReader {
  bool read_lent() override {
    for (const auto& [reader, priority] : wakes) lending->wake(reader, priority);
    return ++turns < 2;
  }
  Lending* lending = nullptr;
  std::vector<std::pair<LentReader*, int32_t>> wakes;
  int turns = 0;
};

// Given a reader that wakes others, one that had its turn among them, expect those of its priority
// to have a turn at once, and the more urgent first the next time.
TEST_F(LendingTest, readers_that_are_woken_by_one_have_turns) {
  Lending& lending = outbox_.lending();
  Reader before, beside, urgent;
  Waker waker;
  waker.lending = &lending;
  waker.wakes = {{&before, 0}, {&beside, 0}, {&urgent, 5}};
  lending.wake(&before);
  lending.wake(&waker);
  EXPECT_TRUE(lending.read());
  EXPECT_EQ(before.turns, 2) << "woken again behind its last piece";
  EXPECT_EQ(waker.turns, 1);
  EXPECT_EQ(beside.turns, 1);
  EXPECT_EQ(urgent.turns, 0);
  EXPECT_TRUE(lending.read());
  EXPECT_EQ(urgent.turns, 1);
  EXPECT_EQ(waker.turns, 1);
  waker.wakes.clear();
  EXPECT_TRUE(lending.read());
  EXPECT_EQ(waker.turns, 2);
  EXPECT_FALSE(lending.to_read());
}

}  // namespace
}  // namespace parallax::outbox_tests
