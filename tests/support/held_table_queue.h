// SPDX-License-Identifier: Apache-2.0
// HeldQueue: tables on a device that move when the test says so. TableDevices has one for each
// table, over the same state. One thread.
#ifndef PARALLAX_TESTS_SUPPORT_HELD_TABLE_QUEUE_H_
#define PARALLAX_TESTS_SUPPORT_HELD_TABLE_QUEUE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "server/update_rules.h"
#include "support/fake_devices.h"

namespace parallax::testkit {

// What is enqueued runs with run(); memory is the host's.
class HeldQueue final : public TableQueue {
 public:
  struct State {
    std::deque<std::function<void()>> enqueued;
    uint64_t done = 0;  // marks
    uint64_t updates = 0;
    Status refuse, fail;
    uint64_t room = UINT64_MAX;
    uint32_t drains = 0;

    void run() {
      while (!enqueued.empty()) {
        enqueued.front()();
        enqueued.pop_front();
      }
    }
  };
  explicit HeldQueue(State& state) : state_(state) {}

  uint32_t device() const override { return 3; }
  Status allocate(uint64_t bytes, std::byte** memory) override {
    if (bytes > state_.room) return limit("device 3 has no memory for so much");
    blocks_.push_back(std::make_unique<std::vector<std::byte>>(bytes));
    *memory = blocks_.back()->data();
    return {};
  }
  Status copy_in(std::byte* to, const std::byte* from, uint64_t bytes) override {
    return add([=] { std::memcpy(to, from, bytes); });
  }
  Status copy_out(std::byte* to, const std::byte* from, uint64_t bytes) override {
    return add([=] { std::memcpy(to, from, bytes); });
  }
  Status gather(const TableArray& array, const TableRows& rows, const TableTarget& to) override {
    return add([=] {
      const size_t bytes = bytes_of_dtype(to.dtype);
      for (uint32_t i = 0; i < rows.count; ++i) {
        std::byte* const out = to.values + i * array.elements * bytes;
        if (number(rows, i) < 0) {
          std::memset(out, 0, array.elements * bytes);
        } else {
          convert_or_copy(converter(PARALLAX_F32, to.dtype), row(array, number(rows, i)), out,
                          array.elements, bytes);
        }
      }
    });
  }
  Status cast(const std::byte* values, uint64_t count, const TableTarget& to) override {
    return add([=] {
      convert_or_copy(converter(PARALLAX_F32, to.dtype), values, to.values, count,
                      bytes_of_dtype(to.dtype));
    });
  }
  Status scatter(const TableArray& array, const TableRows& rows, const std::byte* in) override {
    return add([=] {
      const size_t bytes = array.elements * size_t{bytes_of_dtype(array.dtype)};
      for (uint32_t i = 0; i < rows.count; ++i) {
        const auto at = static_cast<uint64_t>(number(rows, i));
        EXPECT_LT(at, array.rows);
        std::memcpy(array.values + at * bytes, in + i * bytes, bytes);
      }
    });
  }
  // value -= scale * gradient.
  Status update(const TableUpdate& given) override {
    const auto scale = static_cast<float>(given.arguments->scale);
    TableUpdate update = given;
    update.arguments = nullptr;
    ++state_.updates;
    return add([=] {
      for (uint32_t i = 0; i < update.rows.count; ++i) {
        const int64_t to = update.rows.numbers == nullptr ? i : number(update.rows, i);
        auto* const values = reinterpret_cast<float*>(row(update.values, to));
        const auto* const gradients = reinterpret_cast<const float*>(update.gradients);
        for (uint32_t e = 0; e < update.values.elements; ++e) {
          values[e] -= scale * gradients[i * update.values.elements + e];
        }
      }
    });
  }
  Status mark(uint64_t* mark) override {
    *mark = ++marked_;
    return add([this, at = marked_] { state_.done = at; });
  }
  Status passed(uint64_t mark, bool* passed) override {
    *passed = state_.done >= mark;
    return state_.fail;
  }
  bool drain(int64_t) override {
    ++state_.drains;
    return true;
  }

 private:
  static int64_t number(const TableRows& rows, uint32_t i) {
    int64_t number;
    std::memcpy(&number, rows.numbers + i * sizeof number, sizeof number);
    return number;
  }
  static std::byte* row(const TableArray& array, int64_t at) {
    EXPECT_LT(static_cast<uint64_t>(at), array.rows);
    return array.values + static_cast<uint64_t>(at) * array.elements * sizeof(float);
  }
  Status add(std::function<void()> run) {
    if (!state_.refuse.ok()) return state_.refuse;
    state_.enqueued.push_back(std::move(run));
    return {};
  }

  State& state_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> blocks_;
  uint64_t marked_ = 0;
};

class TableDevices final : public FakeDevices {
 public:
  Status form_table(uint32_t, std::unique_ptr<TableQueue>* queue) override {
    *queue = std::make_unique<HeldQueue>(state);
    return {};
  }
  HeldQueue::State state;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_HELD_TABLE_QUEUE_H_
