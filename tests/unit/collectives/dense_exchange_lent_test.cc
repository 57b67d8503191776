// SPDX-License-Identifier: Apache-2.0
// DenseExchange where ranks of a host read each other's contributions and results where they lie:
// the sums are the same, memory is borrowed until it was read, and what was taken back is no sum.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/dense_exchange.h"
#include "unit/collectives/exchange_training.h"

namespace parallax::exchange_conformance {
namespace {

Candidate lending_allreduce(const char* name, Method method = Method::kAllreduce) {
  const DenseAlgorithm* found =
      std::find_if(std::begin(kDenseAlgorithms), std::end(kDenseAlgorithms),
                   [name](const DenseAlgorithm& each) { return each.name == std::string(name); });
  return {
      .make = [found, method](const Columns& columns, const Partition& partition, Outbox& outbox,
                              Compute&, ExchangeOptions options) -> std::unique_ptr<Exchange> {
        options.method = method;
        return std::make_unique<DenseExchange>(columns, partition, outbox, options, *found);
      },
      .delivers = method != Method::kPushPull};
}

Setting lending_setting(const std::vector<uint32_t>& hosts, SumType sum, uint64_t seed) {
  return {.hosts = hosts, .shape = {4001, 3}, .sum = sum, .seed = seed, .lends = true};
}

uint64_t loans_of_all(const ExchangeWorld& world) {
  uint64_t loans = 0;
  for (uint32_t rank = 0; rank < world.size(); ++rank) loans += world.loans_read(rank);
  return loans;
}

uint64_t returned_of_all(const ExchangeWorld& world) {
  uint64_t bytes = 0;
  for (uint32_t rank = 0; rank < world.size(); ++rank) bytes += world.returned_bytes(rank);
  return bytes;
}

// What `owner` sums, as it lies in a rank's buffer: that rank's numbers, or the total in place.
std::vector<std::byte> share_of(const ExchangeWorld& world, uint32_t owner, uint32_t rank) {
  const Range range = world.partition().range_of(owner);
  const auto share =
      world.slice_of(rank, 1).subspan(range.first * sizeof(float), range.count * sizeof(float));
  return {share.begin(), share.end()};
}

// Given steps that use the memory again, slices given in place and not, and absent ranks, expect
// every total right, and most of it read where it lay.
TEST(DenseExchangeLent, sums_are_as_those_of_messages) {
  for (const char* name : {"direct", "ring"}) {
    const Candidate candidate = lending_allreduce(name);
    for (const std::vector<uint32_t>& hosts :
         {std::vector<uint32_t>{0, 0}, {0, 0, 0, 0, 0}, {0, 1, 0, 1}}) {
      for (const SumType sum : {SumType::kF32, SumType::kF64, SumType::kI64}) {
        const Setting setting = lending_setting(hosts, sum, 3 + static_cast<uint64_t>(sum));
        SCOPED_TRACE(setting.say() + name);
        ExchangeWorld world(candidate, setting);
        SeededRandom random(7);
        std::vector<Contributions> gifts;
        for (uint32_t step = 0; step < 6; ++step) {
          gifts.push_back(draw_contributions(setting, {.absent_percent = 10 * step}, random));
        }
        run_steps(world, candidate, gifts);
        EXPECT_GT(loans_of_all(world), hosts.size());
        // Where a rank gives addends to, and gets their total from, one and the same.
        EXPECT_EQ(returned_of_all(world) > 0, std::string(name) == "direct" || hosts.size() == 2);
      }
    }
  }
}

// Given arbitrary numbers and a fixed order, expect the very bits that messages give.
TEST(DenseExchangeLent, ordered_sums_keep_their_bits) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Candidate candidate = lending_allreduce("direct");
    Setting setting = lending_setting({0, 0, 0}, SumType::kF32, seed);
    setting.ordered = true;
    SeededRandom random(seed);
    const Contributions gifts = draw_contributions(setting, {.arbitrary = true}, random);
    std::vector<std::vector<std::byte>> totals;
    for (const bool lends : {false, true}) {
      setting.lends = lends;
      ExchangeWorld world(candidate, setting);
      run_step(world, 1, gifts);
      EXPECT_EQ(loans_of_all(world) > 0, lends);
      const ReducedGradient whole = world.exchange(1).whole(1);
      totals.emplace_back(whole.values, whole.values + whole.count * sizeof(float));
    }
    EXPECT_EQ(totals[0], totals[1]) << seed;
  }
}

// Given slices that are short, expect messages.
TEST(DenseExchangeLent, short_runs_are_copied) {
  Setting setting = lending_setting({0, 0}, SumType::kF32, 3);
  setting.lent_bytes_min = 1 << 20;
  setting.shape = {2 * kReturnedBytesMin / sizeof(float) - 2, 1};
  const Candidate candidate = lending_allreduce("direct");
  ExchangeWorld world(candidate, setting);
  SeededRandom random(1);
  const Contributions gifts = draw_contributions(setting, {}, random);
  run_step(world, 1, gifts);
  check_step(world, candidate, 1, gifts);
  EXPECT_EQ(loans_of_all(world), 0u);
}

// Given a rank that has reduced and another that has not yet, expect its slice to be borrowed, and
// read with the other's; of a push, to be read at once, so that who pushes waits for nobody's call.
TEST(DenseExchangeLent, addends_wait_for_the_readers_own_unless_pushed) {
  for (const bool push : {false, true}) {
    const Candidate candidate =
        lending_allreduce("direct", push ? Method::kPushPull : Method::kAllreduce);
    const Setting setting = lending_setting({0, 0}, SumType::kF32, 2);
    ExchangeWorld world(candidate, setting);
    SeededRandom random(1);
    const Contributions gifts = draw_contributions(setting, {}, random);
    world.contribute(0, 1, gifts[0]);
    world.run();
    EXPECT_EQ(world.loans_read(0) > 0, push);
    EXPECT_EQ(world.given_back(0, 1), push);
    world.contribute(1, 1, gifts[1]);
    world.run();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      world.end(rank, 1);
      EXPECT_TRUE(world.given_back(rank, 1)) << rank;
    }
    world.run();
    check_step(world, candidate, 1, gifts);
  }
}

// Given a loan that is taken back before it was read, expect that its bytes become nobody's sum,
// whatever else comes: the reader's step stands still until it hears why.
TEST(DenseExchangeLent, what_was_taken_back_is_no_sum) {
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0, 0}, {0, 0, 0}, {0, 0, 1}}) {
    const Setting setting = lending_setting(hosts, SumType::kF32, 2);
    SCOPED_TRACE(setting.say());
    ExchangeWorld world(lending_allreduce("direct"), setting);
    SeededRandom random(1);
    const Contributions gifts = draw_contributions(setting, {}, random);
    // What follows the loan comes behind it.
    world.hold([](const Parcel& parcel) { return parcel.from == 2; });
    world.contribute(1, 1, gifts[1]);
    world.run();
    EXPECT_FALSE(world.given_back(1, 1));
    world.take_back(1, 0);
    if (hosts.size() == 2) {
      EXPECT_TRUE(world.given_back(1, 1));
    }
    world.contribute(0, 1, gifts[0]);
    world.run();
    world.hold(nullptr);
    if (hosts.size() == 3) world.contribute(2, 1, gifts[2]);
    for (uint32_t rank = 0; rank < world.size(); ++rank) world.end(rank, 1);
    world.run();
    EXPECT_FALSE(world.exchange(0).state(1).reduced);
    EXPECT_FALSE(world.exchange(0).state(1).delivered);
    if (hosts.size() == 2) {
      EXPECT_EQ(world.loans_read(1), 0u);
    }
  }
}

// Given a rank that gives up another whose sum of its addends is not whole yet, expect that the
// total, once it is, is not written there: that memory is its owner's again.
TEST(DenseExchangeLent, totals_are_not_written_where_they_are_not_meant) {
  uint32_t in_place = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    for (const bool gives_up : {true, false}) {
      const Setting setting = lending_setting({0, 0, 0}, SumType::kF32, seed);
      SCOPED_TRACE(setting.say());
      ExchangeWorld world(lending_allreduce("direct"), setting);
      SeededRandom random(seed);
      const Contributions gifts = draw_contributions(setting, {}, random);
      world.contribute(0, 1, gifts[0]);
      world.contribute(1, 1, gifts[1]);
      world.run();
      if (gives_up) world.take_back(1, 0);
      const std::vector<std::byte> before = share_of(world, 0, 1);
      world.contribute(2, 1, gifts[2]);
      world.run();
      if (gives_up) {
        EXPECT_EQ(share_of(world, 0, 1), before);
      } else if (share_of(world, 0, 1) != before) {
        ++in_place;
      }
    }
  }
  EXPECT_GT(in_place, 0u) << "seeds in which it would be";
}

// Given sections that say what no lender says, expect each to be refused.
TEST(DenseExchangeLent, lies_are_refused) {
  Setting setting = lending_setting({0, 0}, SumType::kF32, 2);
  setting.lent_bytes_min = 4096;
  const Candidate candidate = lending_allreduce("direct");
  std::vector<Parcel> loans;
  ExchangeWorld honest(candidate, setting);
  honest.tap([&loans](const Parcel& parcel) {
    if (parcel.header.encoding == Encoding::kLent && parcel.to == 0) loans.push_back(parcel);
  });
  SeededRandom random(1);
  const Contributions gifts = draw_contributions(setting, {}, random);
  run_step(honest, 1, gifts);
  ASSERT_FALSE(loans.empty());

  ExchangeWorld world(candidate, setting);
  world.contribute(1, 1, gifts[1]);
  world.run();
  const auto lie = [&](auto change) {
    ExchangeWorld told(candidate, setting);
    told.contribute(1, 1, gifts[1]);
    Parcel parcel = loans.front();
    LentPart part;
    std::memcpy(&part, parcel.payload().data(), sizeof part);
    change(parcel, part);
    if (!parcel.payload().empty()) {
      std::memcpy(parcel.payload().data(), &part, std::min(parcel.payload().size(), sizeof part));
    }
    return !told.inject(parcel);
  };
  EXPECT_FALSE(lie([](Parcel&, LentPart&) {})) << "the truth";
  EXPECT_TRUE(lie([](Parcel&, LentPart& part) { part.place.buffer = 0; }));
  EXPECT_TRUE(lie([](Parcel&, LentPart& part) { part.place.buffer = 99; }));
  EXPECT_TRUE(lie([](Parcel&, LentPart& part) { part.place.offset += 1 << 20; }));
  EXPECT_TRUE(lie([](Parcel&, LentPart& part) { part.place.offset = UINT64_MAX; }));
  EXPECT_TRUE(lie([](Parcel&, LentPart& part) { --part.bytes; }));
  EXPECT_TRUE(lie([](Parcel&, LentPart& part) { part.returns.end = part.bytes + 1; }));
  EXPECT_TRUE(lie([](Parcel&, LentPart& part) { part.returns = {part.bytes, part.bytes - 1}; }));
  EXPECT_TRUE(lie([](Parcel& parcel, LentPart&) { parcel.bytes.pop_back(); }));
  EXPECT_TRUE(lie([](Parcel& parcel, LentPart&) { parcel.bytes.push_back({}); }));
  EXPECT_TRUE(lie([](Parcel& parcel, LentPart&) { parcel.bytes.resize(1); }));
  const auto counts = [](uint32_t count) {
    return [count](Parcel& parcel, LentPart& part) {
      parcel.header.count = count;
      part.bytes = count * sizeof(float);
      part.returns = {};
    };
  };
  const uint32_t whole = loans.front().header.count;
  EXPECT_FALSE(lie(counts(whole - 1))) << "the others may come";
  EXPECT_TRUE(lie(counts(8))) << "too short";
  EXPECT_TRUE(lie(counts(whole + 1)));
  EXPECT_TRUE(lie([](Parcel& parcel, LentPart&) { ++parcel.header.first; }));
  EXPECT_TRUE(lie([](Parcel& parcel, LentPart&) {
    parcel.header.count = 0;
    parcel.header.flags = kSectionLast;
  }));
}

// Given a loan that returns into memory that is not the reader's to write, or of a part of what
// goes back, expect it to be refused; and without that word to be read.
TEST(DenseExchangeLent, returns_to_nowhere_are_refused) {
  const Candidate candidate = lending_allreduce("direct");
  Setting setting = lending_setting({0, 0}, SumType::kF32, 2);
  SeededRandom random(1);
  const Contributions gifts = draw_contributions(setting, {}, random);
  Parcel loan;
  ExchangeWorld honest(candidate, setting);
  honest.tap([&loan](const Parcel& parcel) {
    if (parcel.header.encoding == Encoding::kLent && parcel.to == 0 &&
        parcel.header.kind == SectionKind::kDenseReduce) {
      loan = parcel;
    }
  });
  run_step(honest, 1, gifts);
  ASSERT_EQ(loan.header.encoding, Encoding::kLent);
  const auto is_taken = [&](bool read_only, bool returns, uint32_t left_out) {
    setting.read_only = read_only;
    ExchangeWorld told(candidate, setting);
    told.contribute(1, 1, gifts[1]);
    Parcel parcel = loan;
    LentPart part;
    std::memcpy(&part, parcel.payload().data(), sizeof part);
    parcel.header.count -= left_out;
    part.bytes -= left_out * sizeof(float);
    part.returns = {0, returns ? part.bytes : 0};
    std::memcpy(parcel.payload().data(), &part, sizeof part);
    return told.inject(parcel);
  };
  EXPECT_TRUE(is_taken(false, true, 0));
  EXPECT_TRUE(is_taken(false, false, 1));
  EXPECT_TRUE(is_taken(true, false, 0));
  EXPECT_FALSE(is_taken(true, true, 0));
  EXPECT_FALSE(is_taken(false, true, 1));
}

// Elements that come in a message behind a loan of their operation come behind it.
TEST(DenseExchangeLent, messages_behind_a_loan_wait_for_it) {
  Setting setting = lending_setting({0, 0}, SumType::kF32, 2);
  ExchangeWorld world(lending_allreduce("direct"), setting);
  SeededRandom random(1);
  const Contributions gifts = draw_contributions(setting, {}, random);
  Parcel loan;
  world.hold([&loan](const Parcel& parcel) {
    if (parcel.header.encoding == Encoding::kLent && parcel.to == 0) loan = parcel;
    return parcel.to == 0;
  });
  world.contribute(1, 1, gifts[1]);
  world.run();
  ASSERT_EQ(loan.header.encoding, Encoding::kLent);
  // The first half as it was lent, the second as a message has it.
  const uint32_t half = loan.header.count / 2;
  Parcel message = loan;
  message.header.encoding = Encoding::kDense;
  message.header.first += half;
  message.header.count -= half;
  message.header.payload_bytes = message.header.count * static_cast<uint32_t>(sizeof(float));
  const std::vector<std::byte> values = bytes_of(PARALLAX_F32, gifts[1].values);
  const std::byte* const from = &values[message.header.first * sizeof(float)];
  message.bytes.resize(1);
  message.bytes.insert(message.bytes.end(), from, from + message.header.payload_bytes);
  loan.header.count = half;
  LentPart part;
  std::memcpy(&part, loan.payload().data(), sizeof part);
  part.bytes = half * sizeof(float);
  part.returns = {};  // as of a part
  std::memcpy(loan.payload().data(), &part, sizeof part);
  ASSERT_TRUE(world.inject(loan));
  ASSERT_TRUE(world.inject(message));
  world.contribute(0, 1, gifts[0]);
  world.run();
  ASSERT_TRUE(world.exchange(0).state(1).reduced);
  const ReducedGradient owned = world.exchange(0).owned(1);
  for (uint64_t i = 0; i < owned.count; ++i) {
    float sum;
    std::memcpy(&sum, owned.values + i * sizeof sum, sizeof sum);
    const auto at = static_cast<size_t>(owned.first + i);
    ASSERT_EQ(sum, static_cast<float>(gifts[0].values[at] + gifts[1].values[at])) << at;
  }
}

}  // namespace
}  // namespace parallax::exchange_conformance
