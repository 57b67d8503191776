// SPDX-License-Identifier: Apache-2.0
// DeviceCallsWorld: whole engines whose ranks have devices that move when the test says so, with a
// variable of each kind.
#ifndef PARALLAX_TESTS_UNIT_ENGINE_DEVICE_CALLS_WORLD_H_
#define PARALLAX_TESTS_UNIT_ENGINE_DEVICE_CALLS_WORLD_H_

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/engine_world.h"
#include "support/fake_devices.h"

namespace parallax::testkit {

class DeviceCallsWorld : public testing::Test {
 protected:
  enum : uint32_t { kRows, kHeld, kHeldRows, kParts };
  static constexpr uint64_t kCount = 9;

  void start(const std::vector<uint32_t>& hosts, uint64_t pinned_max_bytes = 0) {
    for (size_t i = 0; i < hosts.size(); ++i) {
      shares_.push_back(std::make_unique<FakeShare>(pinned_max_bytes));
    }
    world_ = std::make_unique<EngineWorld>(
        WorldOptions{.hosts = hosts,
                     .plan_after_steps = 1000,
                     .adjust = [this](uint32_t rank, EngineOptions* options) {
                       options->devices = shares_[rank]->opener();
                     }});
    parallax_variable_t rows = sparse_variable("rows", kCount, 2, 4, PARALLAX_RULE_SGD);
    rows.init_low = 10;
    parallax_variable_t parts = dense_variable("parts", 2, 2);
    parts.accumulate = 1;
    const parallax_variable_t all[] = {rows, dense_variable("held", 2, 2),
                                       sparse_variable("held rows", kCount, 2, 4), parts};
    for (const Status& status : world_->commit(all)) ASSERT_TRUE(status.ok()) << status.message();
  }

  FakeDevices& devices(uint32_t rank = 0) { return shares_[rank]->devices; }
  StepCalls& steps(uint32_t rank = 0) { return world_->engine(rank).step_calls(); }
  uint64_t begin(uint32_t rank = 0) {
    uint64_t step = 0;
    EXPECT_TRUE(steps(rank).begin(&step).ok());
    return step;
  }
  Request* end(uint64_t step, uint32_t rank = 0, uint32_t absent = 0) {
    parallax_step_end_options_t options = end_options(0.5f);
    options.absent = absent;
    Request* request = nullptr;
    const Status status = steps(rank).end(step, options, &request);
    EXPECT_TRUE(status.ok()) << status.message();
    return request;
  }
  void finish(std::vector<Request*> requests) {
    ASSERT_TRUE(world_->run_until_done(requests));
    for (Request* request : requests)
      EXPECT_TRUE(request->status.ok()) << request->status.message();
  }

  static parallax_slice_t on_device(parallax_slice_t slice, FakeStream* stream = nullptr,
                                    uint32_t device = 0) {
    slice.memory = PARALLAX_MEMORY_CUDA;
    slice.stream = stream;
    slice.device = device;
    return slice;
  }
  static parallax_slice_t rows(uint32_t variable, const int64_t* ids, uint64_t count,
                               float* values) {
    parallax_slice_t slice = dense_slice(variable, values);
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = ids;
    slice.row_count = count;
    return slice;
  }
  using Post = Status (StepCalls::*)(uint64_t, std::span<const parallax_slice_t>, Request**);
  Request* post(Post call, uint64_t step, const std::vector<parallax_slice_t>& slices,
                uint32_t rank = 0) {
    Request* request = nullptr;
    const Status status = (steps(rank).*call)(step, slices, &request);
    EXPECT_TRUE(status.ok()) << status.message();
    return request;
  }
  Status refused(Post call, uint64_t step, const parallax_slice_t& slice) {
    Request* request = nullptr;
    Status status = (steps().*call)(step, {&slice, 1}, &request);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(request, nullptr);
    return status;
  }

  std::vector<std::unique_ptr<FakeShare>> shares_;
  std::unique_ptr<EngineWorld> world_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_ENGINE_DEVICE_CALLS_WORLD_H_
