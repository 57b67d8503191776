// SPDX-License-Identifier: Apache-2.0
// Calls with slices on devices: what waits for what, what is borrowed meanwhile, and which request
// a copy that fails belongs to.
#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "support/words.h"
#include "unit/engine/device_calls_world.h"
#include "unit/engine/watched_memory.h"

namespace parallax::testkit {
namespace {

using DeviceOrderTest = DeviceCallsWorld;

// ---- order

// Given a pull whose ids wait for their stream while its step ends and the next one pulls, in host
// memory and on a stream that has nothing to wait for, expect the step to be over first: pulls are
// answered one at a time, those of the older step before.
TEST_F(DeviceOrderTest, APullIsNotOvertakenByTheNextStep) {
  for (const bool host : {true, false}) {
    shares_.clear();
    start({0});
    FakeStream stream = {.held = true};
    const std::vector<int64_t> ids = {2};
    const int64_t* there = devices().make(ids);
    float* values = devices().make<float>({0, 0});
    float* more = devices().make<float>({0, 0});
    std::vector<float> here(2);
    std::vector<Request*> requests;
    begin();
    requests.push_back(
        post(&StepCalls::pull, 1, {on_device(rows(kRows, there, 1, values), &stream)}));
    requests.push_back(end(1));
    begin();
    requests.push_back(post(
        &StepCalls::pull, 2,
        {host ? rows(kRows, ids.data(), 1, here.data()) : on_device(rows(kRows, there, 1, more))}));
    requests.push_back(end(2));
    world_->settle();
    for (const Request* request : requests) EXPECT_FALSE(request->done());
    stream.held = false;
    finish(requests);
    EXPECT_EQ(devices().read(values, 2), (std::vector<float>{10, 10}));
    EXPECT_EQ(host ? here : devices().read(more, 2), (std::vector<float>{10, 10}));
    world_.reset();
  }
}

// Given a gradient that waits for its stream, expect those of other variables of the step to be
// summed meanwhile, and the next step's of the same variable to come behind it.
TEST_F(DeviceOrderTest, AGradientWaitsForThoseOfItsVariableAlone) {
  start({0, 1});
  FakeStream stream = {.held = true};
  float* first = devices().make<float>({1, 2, 3, 4});
  float* other = devices().make<float>({1, 1, 1, 1});
  std::vector<float> next = {5, 5, 5, 5}, theirs(4), theirs_too(4), theirs_next(4);
  for (uint32_t rank = 0; rank < 2; ++rank) begin(rank);
  Request* held = post(&StepCalls::reduce, 1, {on_device(dense_slice(kHeld, first), &stream)});
  finish({post(&StepCalls::reduce, 1, {on_device(dense_slice(kParts, other))}),
          post(&StepCalls::reduce, 1, {dense_slice(kParts, theirs.data())}, 1)});
  EXPECT_FALSE(held->done());
  std::vector<Request*> requests = {
      held, post(&StepCalls::reduce, 1, {dense_slice(kHeld, theirs_too.data())}, 1)};
  for (uint32_t rank = 0; rank < 2; ++rank) requests.push_back(end(1, rank));
  for (uint32_t rank = 0; rank < 2; ++rank) begin(rank);
  Request* behind = post(&StepCalls::reduce, 2, {dense_slice(kHeld, next.data())});
  EXPECT_TRUE(has(world_->engine(0).reports().missing(*behind), "waits for an earlier call"))
      << world_->engine(0).reports().missing(*behind).message();
  requests.push_back(behind);
  requests.push_back(post(&StepCalls::reduce, 2, {dense_slice(kHeld, theirs_next.data())}, 1));
  for (uint32_t rank = 0; rank < 2; ++rank) requests.push_back(end(2, rank));
  world_->settle();
  for (const Request* request : requests) EXPECT_FALSE(request->done());
  stream.held = false;
  finish(requests);
  EXPECT_EQ(devices().read(first, 4), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(next, (std::vector<float>{5, 5, 5, 5}));
}

// Given ids in host memory that work on the stream writes (a copy from the device to pinned memory,
// a host function), expect them to be read behind it, whatever the call.
TEST_F(DeviceOrderTest, IdsInHostMemoryAreReadBehindTheStream) {
  start({0});
  FakeStream stream = {.held = true};
  std::vector<int64_t> ids = {99, 99};
  float* values = devices().make<float>({0, 0, 0, 0});
  Request* evaluation =
      post(&StepCalls::pull, 0, {on_device(rows(kRows, ids.data(), 2, values), &stream)});
  world_->settle();
  EXPECT_FALSE(evaluation->done());
  ids = {1, -1};
  stream.held = false;
  finish({evaluation});
  EXPECT_EQ(devices().read(values, 4), (std::vector<float>{10, 10, 0, 0}));
  begin();
  ids = {99, 99};
  stream.held = true;
  float* pulled = devices().make<float>({0, 0, 0, 0});
  float* pushed = devices().make<float>({2, 2, 4, 4});
  std::vector<Request*> requests = {
      post(&StepCalls::pull, 1, {on_device(rows(kRows, ids.data(), 2, pulled), &stream)}),
      post(&StepCalls::push, 1, {on_device(rows(kRows, ids.data(), 2, pushed), &stream)})};
  world_->settle();
  for (const Request* request : requests) EXPECT_FALSE(request->done());
  ids = {3, 3};
  stream.held = false;
  requests.push_back(end(1));
  finish(requests);
  EXPECT_EQ(devices().read(pulled, 4), (std::vector<float>{10, 10, 10, 10}));
  begin();
  finish({post(&StepCalls::pull, 2, {on_device(rows(kRows, ids.data(), 1, pulled))}), end(2)});
  EXPECT_EQ(devices().read(pulled, 2), (std::vector<float>{7, 7})) << "0.5 x (2 + 4) off";
}

// ---- what is borrowed

// Given calls that wait for a stream, expect every buffer that they name to be the request's: ids
// and slices in host memory, too, which are not copied.
TEST_F(DeviceOrderTest, WhatWaitsBorrowsAllItsBuffers) {
  start({0});
  begin();
  FakeStream stream = {.held = true};
  const auto borrower = [this](const void* at) {
    return world_->engine(0).borrower(ByteRange::at(at, 1));
  };
  const std::vector<int64_t> ids = {3};
  const std::vector<int32_t> narrow = {4};
  float* values = devices().make<float>({1, 1});
  float* pulled = devices().make<float>({1, 1});
  parallax_slice_t pull = on_device(rows(kRows, nullptr, 1, pulled), &stream);
  pull.ids_i32 = narrow.data();
  float* part = devices().make<float>({1, 1, 1, 1});
  std::vector<float> behind(4), into(4), mixed = {1, 1};
  const std::vector<int64_t> mixed_ids = {5};
  parallax_slice_t last = dense_slice(kParts, behind.data());
  last.into = into.data();
  parallax_slice_t first = on_device(dense_slice(kParts, part), &stream);
  first.more = 1;
  std::vector<Request*> requests = {
      post(&StepCalls::push, 1, {on_device(rows(kRows, ids.data(), 1, values), &stream)}),
      post(&StepCalls::pull, 1, {pull}), post(&StepCalls::reduce, 1, {first}),
      post(&StepCalls::reduce, 1, {last}),
      post(&StepCalls::reduce, 1,
           {on_device(dense_slice(kHeld, devices().make<float>({1, 1, 1, 1})), &stream),
            rows(kHeldRows, mixed_ids.data(), 1, mixed.data())})};
  world_->settle();
  EXPECT_EQ(borrower(values), "a pending push of step 1");
  EXPECT_EQ(borrower(ids.data()), "a pending push of step 1");
  EXPECT_EQ(borrower(narrow.data()), "a pending pull of step 1");
  EXPECT_EQ(borrower(behind.data()), "a pending reduce of step 1");
  EXPECT_EQ(borrower(into.data()), "a pending reduce of step 1");
  EXPECT_EQ(borrower(mixed.data()), "a pending reduce of step 1");
  EXPECT_EQ(borrower(mixed_ids.data()), "a pending reduce of step 1");
  stream.held = false;
  requests.push_back(end(1));
  finish(requests);
  for (const void* each :
       {static_cast<const void*>(ids.data()), static_cast<const void*>(into.data())}) {
    EXPECT_EQ(borrower(each), "");
  }
}

// ---- copies that fail

// Given results on two devices, of which the one fails while the other is still on its way, expect
// the request to say so.
TEST_F(DeviceOrderTest, ACopyThatFailsIsNotForgottenForOneThatEndsLater) {
  start({0, 1});
  for (uint32_t rank = 0; rank < 2; ++rank) begin(rank);
  FakeStream late;
  float* first = devices().make<float>({1, 2, 3, 4}, 0);
  float* second = devices().make<float>({1, 1, 1, 1}, 1);
  std::vector<float> theirs(4), theirs_too(4);
  Request* mine = post(
      &StepCalls::reduce, 1,
      {on_device(dense_slice(kHeld, first)), on_device(dense_slice(kParts, second), &late, 1)});
  world_->settle();  // taken
  late.held = true;
  devices().fail_next_copy = io_error("device 0: a copy: CUDA_ERROR_ECC_UNCORRECTABLE");
  std::vector<Request*> others = {
      post(&StepCalls::reduce, 1,
           {dense_slice(kHeld, theirs.data()), dense_slice(kParts, theirs_too.data())}, 1)};
  for (uint32_t rank = 0; rank < 2; ++rank) others.push_back(end(1, rank));
  finish(others);
  world_->settle();
  EXPECT_FALSE(mine->done());
  late.held = false;
  ASSERT_TRUE(world_->run_until_done(std::vector<Request*>{mine}));
  EXPECT_EQ(mine->status.code(), PARALLAX_IO);
  EXPECT_TRUE(has(mine->status, "copying its results to devices 0, 1: device 0: a copy"))
      << mine->status.message();
}

// Given results that a device never takes, expect the end of the job not to call them there.
TEST_F(DeviceOrderTest, ResultsThatNeverCameAreNoSuccess) {
  start({0});
  begin();
  float* values = devices().make<float>({0, 0, 0, 0});
  const std::vector<int64_t> ids = {5};
  devices().hold_to_device = true;
  Request* pull = post(&StepCalls::pull, 1, {on_device(rows(kRows, ids.data(), 1, values))});
  finish({end(1)});
  ASSERT_FALSE(pull->done());
  world_->engine(0).complete_all();
  ASSERT_TRUE(pull->done());
  EXPECT_EQ(pull->status.code(), PARALLAX_ABORTED) << pull->status.message();
  EXPECT_TRUE(has(pull->status, "device 0 did not end")) << pull->status.message();
}

// ---- without memory

// Given memory that runs out anywhere in a call with slices on two devices, one of which does not
// end its copy, expect the call refused with nothing held, or a request that fails once that copy
// is over; and the call to which nothing is refused as if nothing had been.
TEST_F(DeviceOrderTest, WithoutMemoryACallOnTwoDevicesHoldsNothing) {
  if (!PARALLAX_TEST_WATCHES_MEMORY) GTEST_SKIP() << "a sanitizer owns malloc: run dev";
  start({0});
  begin();
  float* first = devices().make<float>({1, 2, 3, 4}, 0);
  float* second = devices().make<float>({1, 1, 1, 1}, 1);
  const parallax_slice_t slices[] = {on_device(dense_slice(kHeld, first)),
                                     on_device(dense_slice(kParts, second), nullptr, 1)};
  devices().copies_held = true;
  uint64_t failed = 0;
  for (uint64_t passed = 0;; ++passed) {
    Request* request = nullptr;
    bool thrown = false;
    Status status;
    RefusedMemory refused(passed);
    try {
      status = steps().reduce(1, slices, &request);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    const bool any = refused.end();
    if (request == nullptr) {
      ASSERT_TRUE(any && (thrown || status.code() == PARALLAX_LIMIT)) << "after " << passed;
    } else {
      devices().copies_held = false;
      ASSERT_TRUE(world_->run_until_done(std::vector<Request*>{request}));
      if (!any) {
        ASSERT_TRUE(request->status.ok()) << request->status.message();
        EXPECT_GT(failed, 0u) << "memory was never refused behind a copy that had begun";
        return finish({end(1)});
      }
      ++failed;
      ASSERT_EQ(request->status.code(), PARALLAX_LIMIT) << request->status.message();
      ASSERT_TRUE(world_->engine(0).release(request).ok());
      devices().copies_held = true;
    }
    ASSERT_EQ(devices().marks() + devices().batches(), 0u) << "after " << passed;
    ASSERT_EQ(shares_[0]->pinned.bytes_in_use(), 0u) << "after " << passed;
    ASSERT_EQ(devices().pinned(), shares_[0]->pinned.bytes_held() / 65536) << "none is abandoned";
  }
}

}  // namespace
}  // namespace parallax::testkit
