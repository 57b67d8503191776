// SPDX-License-Identifier: Apache-2.0
// DeviceStore over a queue that moves when the test says so: what is read sees what was given
// before it, in pieces, and nothing of the caller's is touched before its time or after the end.
#include "server/device_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/held_table_queue.h"
#include "support/slot_maps.h"

namespace parallax::testkit {
namespace {

class DeviceStoreTest : public testing::Test {
 protected:
  void make(uint64_t units, uint32_t width) {
    DeviceStore::Shape shape = {.units = units};
    shape.widths[0] = width;
    store_ = std::make_unique<DeviceStore>(DeviceShare{&share_.devices, &share_.pinned},
                                           std::make_unique<HeldQueue>(queue_), shape);
    ASSERT_TRUE(store_->allocate().ok());
  }
  // All that there is, piece by piece.
  void finish() {
    while (store_->busy()) {
      ASSERT_TRUE(store_->advance().ok());
      queue_.run();
      ASSERT_TRUE(store_->advance().ok());
    }
  }
  static std::vector<std::byte> bytes(const std::vector<float>& values) {
    const auto* const first = reinterpret_cast<const std::byte*>(values.data());
    return {first, first + values.size() * sizeof(float)};
  }
  StoreRead into(std::vector<float>* values, uint64_t first = 0) {
    return {.units = {.first = first, .count = values->size()},
            .to = reinterpret_cast<std::byte*>(values->data()),
            .left = &left_};
  }
  DeviceStore::Update update_of(const std::vector<float>& gradient, uint64_t first,
                                const Partition& partition) {
    DeviceStore::Update update;
    update.gradient = {.contributed = true,
                       .has_values = true,
                       .values = reinterpret_cast<const std::byte*>(gradient.data()),
                       .first = first,
                       .count = gradient.size()};
    update.arguments = {.rule = PARALLAX_RULE_SGD, .learning_rate = 1};
    update.partition = &partition;
    update.left = &left_;
    return update;
  }

  FakeShare share_;
  HeldQueue::State queue_;
  std::unique_ptr<DeviceStore> store_;
  uint32_t left_ = 0;
};

TEST_F(DeviceStoreTest, AReadSeesWhatWasGivenBeforeItAndNothingBehind) {
  make(4, 1);
  const SlotMap slots = even_slots(1);
  const Partition dense(4, 1, false, slots, 0);
  const std::vector<float> gradient = {1, 2, 3, 4}, another = {5, 5};
  std::vector<float> before(4, 77), between(4, 77), last(4, 77);
  store_->write({.count = 4}, bytes({10, 10, 10, 10}));
  left_ = 5;  // of three reads and two updates
  store_->read(into(&before));
  store_->update(update_of(gradient, 0, dense));
  store_->read(into(&between));
  store_->update(update_of(another, 1, dense));
  store_->read(into(&last));
  // Nothing has come of the device: nothing was written here.
  ASSERT_TRUE(store_->advance().ok());
  EXPECT_EQ(before, std::vector<float>(4, 77));
  EXPECT_EQ(left_, 5u);
  finish();
  EXPECT_EQ(left_, 0u);
  EXPECT_EQ(before, (std::vector<float>{10, 10, 10, 10}));
  EXPECT_EQ(between, (std::vector<float>{9, 8, 7, 6}));
  EXPECT_EQ(last, (std::vector<float>{9, 3, 2, 6}));
}

TEST_F(DeviceStoreTest, WhatIsMoreThanAPieceGoesInPieces) {
  constexpr uint64_t kMany = 3 * DeviceStore::kPieceBytes / sizeof(float) + 5;
  make(kMany, 1);
  std::vector<float> values(kMany), read(kMany);
  for (uint64_t i = 0; i < kMany; ++i) values[i] = static_cast<float>(i % 1009);
  store_->write({.count = kMany}, bytes(values));
  // So many are begun at once; the rest waits, and is told.
  EXPECT_EQ(queue_.enqueued.size(), size_t{2 * DeviceStore::kPieces});
  EXPECT_EQ(store_->backlog_bytes(), DeviceStore::kPieceBytes + 5 * sizeof(float));
  left_ = 1;
  store_->read(into(&read));
  finish();
  EXPECT_EQ(left_, 0u);
  EXPECT_EQ(store_->backlog_bytes(), 0u);
  EXPECT_EQ(read, values);
}

// Given a read to memory on the device, expect it there in the dtype that was asked for, and
// nothing by way of the host; and that who forgets it waits for what is being written, not for
// another.
TEST_F(DeviceStoreTest, ReadsOnTheDeviceStayThere) {
  make(4, 2);
  const SlotMap slots = even_slots(1);
  const Partition rows(4, 2, true, slots, 0);
  const std::vector<int64_t> ids = {3, -1, 0};
  std::vector<float> here(6, 77), all(8, 77);
  std::vector<uint16_t> half(6, 7);
  store_->write({.count = 4}, bytes({0, 1, 10, 11, 20, 21, 30, 31}));
  left_ = 3;
  StoreRead by_ids = {.units = {.count = 3, .ids = {ids.data(), nullptr}, .keys = &rows},
                      .to = reinterpret_cast<std::byte*>(here.data()),
                      .on_device = true,
                      .left = &left_};
  store_->read(by_ids);
  by_ids.to = reinterpret_cast<std::byte*>(half.data());
  by_ids.dtype = PARALLAX_F16;
  store_->read(by_ids);
  StoreRead every = {.units = {.count = 4},
                     .to = reinterpret_cast<std::byte*>(all.data()),
                     .on_device = true,
                     .left = &left_};
  store_->read(every);
  finish();
  EXPECT_EQ(left_, 0u);
  // Units are row keys.
  const auto last = static_cast<float>(rows.row_key_of(3)),
             first = static_cast<float>(rows.row_key_of(0));
  EXPECT_EQ(here, (std::vector<float>{10 * last, 10 * last + 1, 0, 0, 10 * first, 10 * first + 1}));
  for (size_t i = 0; i < here.size(); ++i) EXPECT_EQ(half[i], to_half(here[i]).bits);
  EXPECT_EQ(all, (std::vector<float>{0, 1, 10, 11, 20, 21, 30, 31}));
  left_ = 1;
  store_->read(into(&here));
  store_->abandon();
  EXPECT_EQ(queue_.drains, 0u) << "the host's memory is the store's until the end";
}

TEST_F(DeviceStoreTest, WhoForgetsAReadOnTheDeviceWaitsForIt) {
  make(4, 2);
  std::vector<float> all(8, 77);
  left_ = 1;
  store_->read({.units = {.count = 4},
                .to = reinterpret_cast<std::byte*>(all.data()),
                .on_device = true,
                .left = &left_});
  store_->abandon();
  EXPECT_EQ(queue_.drains, 1u);
}

// Given a shard, a slice on the device that names rows of it and of others, and the others' rows in
// host memory, expect each where its id is, in more pieces than one, in another dtype too; nobody
// waits for the device but who forgets what it writes.
TEST_F(DeviceStoreTest, OthersRowsArePutBetweenItsOwn) {
  constexpr uint64_t kRows = 40, kCount = 2 * DeviceStore::kPieceBytes / sizeof(double);
  const SlotMap slots = even_slots(2);
  const Partition rows(kRows, 2, true, slots, 0);
  const uint64_t own = rows.rows_owned(1);
  ASSERT_GT(own, 0u);
  ASSERT_LT(own, kRows);
  make(own, 2);
  // Of each row twice its key, and that and one.
  const auto key_of = [&](uint64_t id) { return static_cast<double>(rows.row_key_of(id)); };
  std::vector<float> shard;
  for (uint64_t i = 0; i < own; ++i) {
    const auto key = static_cast<float>(rows.row_key_at(1, i));
    shard.insert(shard.end(), {2 * key, 2 * key + 1});
  }
  store_->write({.count = own}, bytes(shard));
  std::vector<int64_t> ids;
  std::vector<uint32_t> places;
  std::vector<float> others;
  std::vector<double> expected;
  for (uint64_t i = 0; i < kCount; ++i) {
    const uint64_t id = i * 7 % kRows;
    ids.push_back(i % 11 == 0 ? -1 : static_cast<int64_t>(id));
    const double first = i % 11 == 0 ? 0 : 2 * key_of(id);
    expected.insert(expected.end(), {first, i % 11 == 0 ? 0 : first + 1});
    if (i % 11 == 0 || rows.owner_of(rows.row_key_of(id)) == 1) continue;
    places.push_back(static_cast<uint32_t>(i));
    others.insert(others.end(), {static_cast<float>(first), static_cast<float>(first + 1)});
  }
  std::vector<double> slice(2 * kCount, 77);
  const StoreRead read = {
      .units = {.count = kCount, .ids = {ids.data(), nullptr}, .keys = &rows, .owner = 1},
      .to = reinterpret_cast<std::byte*>(slice.data()),
      .dtype = PARALLAX_F64,
      .on_device = true,
      .left = &left_};
  const StorePut put = {.from = reinterpret_cast<const std::byte*>(others.data()),
                        .count = places.size(),
                        .places = places.data(),
                        .to = reinterpret_cast<std::byte*>(slice.data()),
                        .dtype = PARALLAX_F64,
                        .rows = kCount,
                        .left = &left_};
  left_ = 1;
  store_->read(read);
  finish();
  std::vector<double> own_alone = expected;
  for (const uint32_t place : places) own_alone[2 * place] = own_alone[2 * place + 1] = 0;
  EXPECT_EQ(slice, own_alone);
  left_ = 2;
  store_->read(read);
  store_->put(put);
  finish();
  EXPECT_EQ(left_, 0u);
  EXPECT_EQ(slice, expected);
  left_ = 1;
  store_->put(put);
  store_->abandon();
  EXPECT_EQ(queue_.drains, 1u) << "it writes to the caller's memory";
}

// Given a table of one row, expect a row of a wider dtype to fit into a piece.
TEST_F(DeviceStoreTest, ARowOfAnyDtypeFitsIntoAPiece) {
  make(1, 9);
  std::vector<double> slice(18, 77);
  const uint32_t places[] = {1, 0};
  const std::vector<float> both = {1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1};
  left_ = 1;
  store_->put({.from = reinterpret_cast<const std::byte*>(both.data()),
               .count = 2,
               .places = places,
               .to = reinterpret_cast<std::byte*>(slice.data()),
               .dtype = PARALLAX_F64,
               .rows = 2,
               .left = &left_});
  finish();
  EXPECT_EQ(slice, (std::vector<double>{9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(DeviceStoreTest, RowsByListAndByIdsWithPadding) {
  make(5, 2);
  const SlotMap slots = even_slots(1);
  const Partition rows(5, 2, true, slots, 0);
  store_->write({.count = 5}, bytes({0, 1, 10, 11, 20, 21, 30, 31, 40, 41}));
  const std::vector<uint32_t> list = {4, 0, 2};
  store_->write({.count = 2, .list = list.data()}, bytes({44, 45, 4, 5}));
  std::vector<float> listed(6), by_id(8, 77);
  const std::vector<int64_t> ids = {3, -1, 4, 3};
  left_ = 2;
  store_->read({.units = {.count = 3, .list = list.data()},
                .to = reinterpret_cast<std::byte*>(listed.data()),
                .left = &left_});
  store_->read({.units = {.count = 4, .ids = {ids.data(), nullptr}, .keys = &rows},
                .to = reinterpret_cast<std::byte*>(by_id.data()),
                .left = &left_});
  finish();
  EXPECT_EQ(listed, (std::vector<float>{44, 45, 4, 5, 20, 21}));
  const std::vector<float> all = {4, 5, 10, 11, 20, 21, 30, 31, 44, 45};
  std::vector<float> expected;
  for (const int64_t id : ids) {
    const uint64_t at = id < 0 ? 0 : rows.row_key_of(static_cast<uint64_t>(id)) * 2;
    expected.push_back(id < 0 ? 0 : all[at]);
    expected.push_back(id < 0 ? 0 : all[at + 1]);
  }
  EXPECT_EQ(by_id, expected);
}

// Rows that were made dense: those of nobody are left alone. Rows that end in their ranks are
// divided by them.
TEST_F(DeviceStoreTest, RowsOfAnUpdate) {
  make(4, 1);
  const SlotMap slots = even_slots(1);
  const Partition rows(4, 1, true, slots, 0);
  store_->write({.count = 4}, bytes({8, 8, 8, 8}));
  left_ = 3;
  const std::vector<float> made_dense = {-0.0f, 1, -0.0f, 2};
  store_->update(update_of(made_dense, 0, rows));
  const std::vector<float> counted = {6, 3};
  const uint32_t keys[] = {2};
  DeviceStore::Update update = update_of(counted, 0, rows);
  update.gradient.rows = update.gradient.counted = true;
  update.gradient.row_count = 1;
  update.gradient.row_keys = keys;
  store_->update(update);
  std::vector<float> read(4);
  store_->read(into(&read));
  finish();
  EXPECT_EQ(left_, 0u);
  EXPECT_EQ(read, (std::vector<float>{8, 7, 6, 6}));
  EXPECT_EQ(queue_.updates, 2u);
}

TEST_F(DeviceStoreTest, AnErrorIsToldAndNothingGoesOn) {
  make(4, 1);
  std::vector<float> read(4, 77);
  left_ = 1;
  queue_.refuse = io_error("device 3: cuMemcpyDtoHAsync: broken");
  store_->read(into(&read));
  const Status status = store_->advance();
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_EQ(status.message(), "device 3: cuMemcpyDtoHAsync: broken");
  queue_.refuse = {};
  EXPECT_EQ(store_->advance().code(), PARALLAX_IO) << "an error is final";
  EXPECT_EQ(read, std::vector<float>(4, 77));
  EXPECT_EQ(left_, 1u);
}

TEST_F(DeviceStoreTest, WhatIsAbandonedTouchesNothingAnyMore) {
  make(4, 1);
  std::vector<float> read(4, 77);
  left_ = 1;
  store_->read(into(&read));
  store_->abandon();
  EXPECT_FALSE(store_->busy());
  queue_.run();
  EXPECT_FALSE(store_->advance().ok());
  EXPECT_EQ(read, std::vector<float>(4, 77));
  store_.reset();
  EXPECT_EQ(share_.pinned.bytes_in_use(), 0u);
}

TEST_F(DeviceStoreTest, MemoryThatIsNotThereIsALimit) {
  queue_.room = 100;
  DeviceStore::Shape shape = {.units = 1000};
  shape.widths[0] = 4;
  EXPECT_EQ(DeviceStore::needed_bytes(shape), 16000u);
  DeviceStore store(DeviceShare{&share_.devices, &share_.pinned},
                    std::make_unique<HeldQueue>(queue_), shape);
  EXPECT_EQ(store.allocate().code(), PARALLAX_LIMIT);
  EXPECT_EQ(share_.pinned.bytes_in_use(), 0u);
}

}  // namespace
}  // namespace parallax::testkit
