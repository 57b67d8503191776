// SPDX-License-Identifier: Apache-2.0
// Calls with slices on devices, over whole engines and devices that move when the test says so.
#include "engine/device_calls.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <vector>

#include "support/words.h"
#include "unit/engine/device_calls_world.h"
#include "unit/engine/watched_memory.h"

namespace parallax::testkit {
namespace {

using DeviceCallsTest = DeviceCallsWorld;

// Given a push, a pull and a reduce of slices on devices at every rank, with ids there and in host
// memory, expect on the devices what host slices would have got, and nothing held afterwards.
TEST_F(DeviceCallsTest, AStepOfDeviceSlices) {
  for (const auto& hosts : {std::vector<uint32_t>{0}, {0, 1}, {0, 0, 1, 1}}) {
    shares_.clear();
    start(hosts);
    const auto size = static_cast<uint32_t>(hosts.size());
    const std::vector<int64_t> ids = {8, 3}, host_ids = {3};
    std::vector<Request*> requests;
    std::vector<float*> pulled(size), into(size), given(size);
    std::vector<uint64_t> next(size);
    for (uint32_t rank = 0; rank < size; ++rank) {
      const auto mine = static_cast<float>(rank + 1);
      FakeDevices& its = devices(rank);
      const uint64_t step = begin(rank);
      const int64_t* device_ids = its.make(ids, 1);
      requests.push_back(post(
          &StepCalls::push, step,
          {on_device(rows(kRows, device_ids, 2, its.make<float>({1, 2, 3, 4}, 1)), nullptr, 1)},
          rank));
      given[rank] = its.make<float>({mine, 2, 3, 4});
      into[rank] = its.make<float>({0, 0, 0, 0});
      parallax_slice_t held = on_device(dense_slice(kHeld, given[rank]));
      held.into = into[rank];
      requests.push_back(
          post(&StepCalls::reduce, step,
               {held, on_device(rows(kHeldRows, host_ids.data(), 1, its.make<float>({mine, 1})))},
               rank));
      requests.push_back(end(step, rank));
      next[rank] = begin(rank);
      pulled[rank] = its.make<float>({0, 0, 0, 0});
      requests.push_back(post(&StepCalls::pull, next[rank],
                              {on_device(rows(kRows, its.make(ids), 2, pulled[rank]))}, rank));
    }
    finish(requests);
    const auto n = static_cast<float>(size);
    const float sum = n * (n + 1) / 2;
    for (uint32_t rank = 0; rank < size; ++rank) {
      EXPECT_EQ(devices(rank).read(into[rank], 4), (std::vector<float>{sum, 2 * n, 3 * n, 4 * n}));
      EXPECT_EQ(devices(rank).read(given[rank], 1)[0], static_cast<float>(rank + 1));
      const float half = 0.5f * n;
      EXPECT_EQ(devices(rank).read(pulled[rank], 4),
                (std::vector<float>{10 - half, 10 - 2 * half, 10 - 3 * half, 10 - 4 * half}));
      const Request& reduce = *requests[rank * 4 + 1];
      ASSERT_EQ(reduce.rows[1].ids, host_ids) << "unions are the request's, in host memory";
      EXPECT_EQ(devices(rank).marks(), 0u);
      EXPECT_EQ(devices(rank).batches(), 0u);
      EXPECT_EQ(shares_[rank]->pinned.bytes_in_use(), 0u);
    }
    world_.reset();
  }
}

// Given a stream that has not come to the call yet, expect the gradient as the stream leaves it, no
// end of the step before, and a sentence that says what is waited for.
TEST_F(DeviceCallsTest, CopiesFollowTheStreamAndTheStepFollowsThem) {
  start({0, 1});
  FakeStream stream = {.held = true};
  std::vector<Request*> requests;
  float* values = devices().make<float>({9, 9, 9, 9});
  std::vector<float> other = {1, 1, 1, 1};
  for (uint32_t rank = 0; rank < 2; ++rank) begin(rank);
  requests.push_back(post(&StepCalls::reduce, 1, {on_device(dense_slice(kHeld, values), &stream)}));
  requests.push_back(post(&StepCalls::reduce, 1, {dense_slice(kHeld, other.data())}, 1));
  for (uint32_t rank = 0; rank < 2; ++rank) requests.push_back(end(1, rank));
  world_->settle();
  for (const Request* request : requests) EXPECT_FALSE(request->done());
  const Status missing = world_->engine(0).reports().missing(*requests[0]);
  EXPECT_TRUE(has(missing, "reduce of step 1 waits for device 0: the work")) << missing.message();
  EXPECT_LT(world_->engine(0).next_deadline_ns() - world_->clock().now_ns(), 100'000'000)
      << "a device that has failed is asked";
  devices().write<float>(values, {1, 2, 3, 4});  // by work that was on the stream before
  stream.held = false;
  finish(requests);
  EXPECT_EQ(devices().read(values, 4), (std::vector<float>{2, 3, 4, 5}));
}

// Given results that are on their way back, expect the request to complete behind them, and the
// pinned memory to be held as long.
TEST_F(DeviceCallsTest, ARequestCompletesBehindItsLastCopy) {
  start({0});
  begin();
  float* values = devices().make<float>({0, 0});
  const std::vector<int64_t> ids = {5};
  devices().hold_to_device = true;
  Request* pull = post(&StepCalls::pull, 1, {on_device(rows(kRows, ids.data(), 1, values))});
  Request* ended = end(1);
  world_->settle();
  EXPECT_FALSE(pull->done());
  EXPECT_TRUE(ended->done()) << "the step needs the pull's answer, not its copy";
  EXPECT_GT(shares_[0]->pinned.bytes_in_use(), 0u);
  EXPECT_TRUE(has(world_->engine(0).reports().missing(*pull), "to end"));
  const ByteRange range = ByteRange::at(values, 8);
  EXPECT_EQ(world_->engine(0).borrower(range), "a pending pull of step 1");
  devices().hold_to_device = false;
  finish({pull});
  EXPECT_EQ(world_->engine(0).borrower(range), "");
  EXPECT_EQ(devices().read(values, 2), (std::vector<float>{10, 10}));
}

// Given ids on a device of which one is past the end, expect the request to fail with its name, and
// the step to end without the call.
TEST_F(DeviceCallsTest, WrongIdsAreFoundWhenTheyAreHere) {
  start({0});
  begin();
  const int64_t* ids = devices().make(std::vector<int64_t>{1, 99});
  float* values = devices().make<float>({1, 1, 1, 1});
  Request* push = post(&StepCalls::push, 1, {on_device(rows(kRows, ids, 2, values))});
  Request* pull = post(&StepCalls::pull, 1, {on_device(rows(kRows, ids, 2, values))});
  Request* ended = end(1);
  ASSERT_TRUE(world_->run_until_done(std::vector<Request*>{push, pull, ended}));
  for (const Request* each : {push, pull}) {
    EXPECT_EQ(each->status.code(), PARALLAX_INVALID);
    EXPECT_TRUE(has(each->status, "slice 0 (variable 'rows'): ids[1] is 99"))
        << each->status.message();
    EXPECT_EQ(each->status.facts().row, 99);
  }
  EXPECT_TRUE(ended->status.ok());
  EXPECT_EQ(shares_[0]->pinned.bytes_in_use(), 0u);
}

// Given micro-batches on a device and in host memory, expect them to be taken in the order of the
// calls: the last says that it is the last.
TEST_F(DeviceCallsTest, CallsOfOneVariableKeepTheirOrder) {
  start({0});
  begin();
  FakeStream stream = {.held = true};
  float* first = devices().make<float>({1, 2, 3, 4});
  float* second = devices().make<float>({1, 1, 1, 1});
  std::vector<float> last = {10, 10, 10, 10}, again = last;
  parallax_slice_t one = on_device(dense_slice(kParts, first), &stream);
  parallax_slice_t two = on_device(dense_slice(kParts, second));  // its copy is over before
  one.more = two.more = 1;
  Request* requests[] = {post(&StepCalls::reduce, 1, {one}), post(&StepCalls::reduce, 1, {two}),
                         post(&StepCalls::reduce, 1, {dense_slice(kParts, last.data())})};
  Request* too_many = post(&StepCalls::reduce, 1, {dense_slice(kParts, again.data())});
  world_->settle();
  for (const Request* request : requests) EXPECT_FALSE(request->done());
  stream.held = false;
  finish({requests[0], requests[1], requests[2]});
  EXPECT_EQ(last, (std::vector<float>{12, 13, 14, 15}));
  ASSERT_TRUE(too_many->done());
  EXPECT_TRUE(has(too_many->status, "was given in step 1 already")) << too_many->status.message();
  finish({end(1)});
}

TEST_F(DeviceCallsTest, MemoryThatIsNotWhatTheSliceSaysIsRefused) {
  start({0});
  begin();
  std::vector<float> host(4);
  float* here = devices().make<float>({1, 2, 3, 4});
  parallax_slice_t slice = dense_slice(kHeld, host.data());
  slice.stream = &slice;
  EXPECT_EQ(refused(&StepCalls::reduce, 1, slice).facts().field, "stream");
  slice = dense_slice(kHeld, host.data());
  slice.device = 1;
  EXPECT_EQ(refused(&StepCalls::reduce, 1, slice).facts().field, "device");
  slice.memory = 7;
  EXPECT_TRUE(has(refused(&StepCalls::reduce, 1, slice), "memory is 7"));
  const Status host_given =
      refused(&StepCalls::reduce, 1, on_device(dense_slice(kHeld, host.data())));
  EXPECT_EQ(host_given.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(host_given, "reduce, slice 0 (variable 'held'): values is in host memory"))
      << host_given.message();
  const Status device_given = refused(&StepCalls::reduce, 1, dense_slice(kHeld, here));
  EXPECT_EQ(device_given.code(), PARALLAX_INVALID) << "once the job has devices";
  EXPECT_TRUE(has(device_given, "it has a buffer on device 0")) << device_given.message();
  EXPECT_EQ(device_given.facts().field, "memory");
  slice = on_device(dense_slice(kHeld, here), nullptr, 1);
  EXPECT_TRUE(has(refused(&StepCalls::reduce, 1, slice), "memory of device 0, and device is 1"));
  slice = on_device(dense_slice(kHeld, here), nullptr, 2);
  EXPECT_EQ(refused(&StepCalls::reduce, 1, slice).code(), PARALLAX_UNSUPPORTED);
  slice = on_device(dense_slice(kHeld, here));
  slice.into = host.data();
  EXPECT_EQ(refused(&StepCalls::reduce, 1, slice).facts().field, "into");
  FakeStream captured = {.capturing = true};
  const Status capture =
      refused(&StepCalls::reduce, 1, on_device(dense_slice(kHeld, here), &captured));
  EXPECT_EQ(capture.code(), PARALLAX_UNSUPPORTED);
  EXPECT_EQ(capture.facts().field, "stream");
  EXPECT_EQ(devices().marks(), 0u);
  EXPECT_EQ(shares_[0]->pinned.bytes_in_use(), 0u);
  finish({post(&StepCalls::reduce, 1, {on_device(dense_slice(kHeld, here))}), end(1)});
}

TEST_F(DeviceCallsTest, AJobWithoutDevicesSaysWhatIsMissing) {
  EngineWorld world({});
  const parallax_variable_t held = dense_variable("held", 2, 2);
  ASSERT_TRUE(world.commit({&held, 1})[0].ok());
  uint64_t step = 0;
  ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
  std::vector<float> values(4);
  const parallax_slice_t slice = on_device(dense_slice(0, values.data()));
  Request* request = nullptr;
  const Status status = world.engine(0).step_calls().reduce(step, {&slice, 1}, &request);
  EXPECT_EQ(status.code(), PARALLAX_UNSUPPORTED);
  EXPECT_TRUE(has(status, "no device can be used: this job has no way to a device"));
  EXPECT_EQ(status.facts().field, "memory");
  uint32_t id = 0;
  parallax_variable_t late = dense_variable("late", 2, 2);
  late.memory = PARALLAX_MEMORY_CUDA;
  EXPECT_EQ(world.engine(0).job_calls().register_variable(late, &id).code(), PARALLAX_STATE)
      << "within a step";
}

// Given copies that fail, as they are ordered or as they run, expect the request to say so with its
// call and device, and the step to end without it.
TEST_F(DeviceCallsTest, CopiesThatFailEndTheirRequestAlone) {
  start({0});
  begin();
  float* values = devices().make<float>({1, 2, 3, 4});
  devices().refuse_next_copy = io_error("device 0: cuMemcpyDtoHAsync: CUDA_ERROR_INVALID_VALUE");
  const Status ordered = refused(&StepCalls::reduce, 1, on_device(dense_slice(kHeld, values)));
  EXPECT_EQ(ordered.code(), PARALLAX_IO);
  EXPECT_TRUE(has(ordered, "reduce: copying its slices from device 0: device 0: cuMemcpy"));
  devices().fail_next_copy = io_error("device 0: a copy: CUDA_ERROR_ILLEGAL_ADDRESS");
  Request* in = post(&StepCalls::reduce, 1, {on_device(dense_slice(kHeld, values))});
  ASSERT_TRUE(world_->run_until_done(std::vector<Request*>{in}));
  EXPECT_EQ(in->status.code(), PARALLAX_IO);
  EXPECT_TRUE(has(in->status, "CUDA_ERROR_ILLEGAL_ADDRESS"));
  const std::vector<int64_t> ids = {5};
  Request* out = post(&StepCalls::pull, 1, {on_device(rows(kRows, ids.data(), 1, values))});
  devices().hold_to_device = true;
  world_->settle();
  devices().fail_next_copy = io_error("gone");
  devices().hold_to_device = false;
  ASSERT_TRUE(world_->run_until_done(std::vector<Request*>{out}));
  EXPECT_TRUE(has(out->status, "pull: copying its results to device 0: gone"))
      << out->status.message();
  finish({end(1)});
  EXPECT_EQ(shares_[0]->pinned.bytes_in_use(), 0u);
  EXPECT_EQ(devices().marks(), 0u);
}

// Given a job that fails while copies read the caller's buffers, expect requests to complete with
// the failure, and not before these copies end.
TEST_F(DeviceCallsTest, AFailedJobWaitsForItsCopies) {
  start({0, 1});
  for (uint32_t rank = 0; rank < 2; ++rank) begin(rank);
  float* values = devices().make<float>({1, 2, 3, 4});
  devices().copies_held = true;
  Request* reduce = post(&StepCalls::reduce, 1, {on_device(dense_slice(kHeld, values))});
  world_->engine(0).job_calls().abort("enough");
  world_->clock().advance(1'000'000'000);
  world_->settle();
  EXPECT_FALSE(world_->engine(0).failure().ok());
  EXPECT_FALSE(reduce->done());
  devices().copies_held = false;
  ASSERT_TRUE(world_->run_until_done(std::vector<Request*>{reduce}));
  EXPECT_EQ(reduce->status.code(), PARALLAX_ABORTED);
  EXPECT_EQ(shares_[0]->pinned.bytes_in_use(), 0u);
}

// Given a device that never ends, expect the end of the job to complete the request all the same,
// and to leave the memory that the device may write to.
TEST_F(DeviceCallsTest, TheEndOfAJobCompletesWhatADeviceKeeps) {
  start({0});
  begin();
  float* values = devices().make<float>({1, 2, 3, 4});
  devices().copies_held = true;
  Request* reduce = post(&StepCalls::reduce, 1, {on_device(dense_slice(kHeld, values))});
  world_->engine(0).complete_all();
  ASSERT_TRUE(reduce->done());
  EXPECT_EQ(reduce->status.code(), PARALLAX_ABORTED);
  EXPECT_EQ(devices().pinned(), 1u);
  MemoryBlock next;
  ASSERT_TRUE(shares_[0]->pinned.take(1, &next).ok());
  EXPECT_EQ(devices().pinned(), 2u) << "it is not used again";
  shares_[0]->pinned.give_back(next);
}

TEST_F(DeviceCallsTest, AnEvaluationHoldsUpTheNextStep) {
  start({0});
  FakeStream stream = {.held = true};
  const int64_t* ids = devices().make(std::vector<int64_t>{2, -1});
  float* values = devices().make<float>({7, 7, 7, 7});
  Request* pull = post(&StepCalls::pull, 0, {on_device(rows(kRows, ids, 2, values), &stream)});
  uint64_t step = 0;
  EXPECT_TRUE(has(steps().begin(&step), "a read or write of rows is pending"));
  EXPECT_TRUE(has(world_->engine(0).reports().missing(*pull), "pull between steps waits"));
  stream.held = false;
  finish({pull});
  EXPECT_EQ(devices().read(values, 4), (std::vector<float>{10, 10, 0, 0}));
  finish({end(begin())});
}

TEST_F(DeviceCallsTest, ARankThatGaveOnADeviceIsNotAbsent) {
  start({0});
  begin();
  FakeStream stream = {.held = true};
  float* values = devices().make<float>({1, 2, 3, 4});
  Request* reduce = post(&StepCalls::reduce, 1, {on_device(dense_slice(kHeld, values), &stream)});
  parallax_step_end_options_t options = end_options(0.5f);
  options.absent = 1;
  Request* request = nullptr;
  const Status status = steps().end(1, options, &request);
  EXPECT_TRUE(has(status, "absent is 1, but variable 'held' was given")) << status.message();
  stream.held = false;
  finish({reduce, end(1)});
}

// Given more on devices at once than may be pinned, expect the call to be refused by name, and to
// pass once an earlier one is over.
TEST_F(DeviceCallsTest, PinnedMemoryHasABound) {
  start({0}, 65536);
  begin();
  FakeStream stream = {.held = true};
  float* values = devices().make<float>({1, 2, 3, 4});
  float* others = devices().make<float>({1, 2, 3, 4});
  Request* first = post(&StepCalls::reduce, 1, {on_device(dense_slice(kHeld, values), &stream)});
  const Status status = refused(&StepCalls::reduce, 1, on_device(dense_slice(kParts, others)));
  EXPECT_EQ(status.code(), PARALLAX_LIMIT);
  EXPECT_TRUE(
      has(status, "reduce: its slices need 65536 bytes of pinned host memory: 65536 are in"))
      << status.message();
  stream.held = false;
  finish({first});
  finish({post(&StepCalls::reduce, 1, {on_device(dense_slice(kParts, others))}), end(1)});
}

// Given a variable whose slices lie on devices, expect one in host memory to be refused, and ranks
// that say otherwise to differ.
TEST_F(DeviceCallsTest, AVariableThatSaysCudaTakesNoOther) {
  shares_.push_back(std::make_unique<FakeShare>());
  shares_.push_back(std::make_unique<FakeShare>());
  EngineWorld world(WorldOptions{.hosts = {0, 1}, .adjust = [this](uint32_t rank, auto* options) {
                                   options->devices = shares_[rank]->opener();
                                 }});
  parallax_variable_t held = dense_variable("held", 2, 2);
  held.memory = PARALLAX_MEMORY_CUDA;
  ASSERT_TRUE(world.commit({&held, 1})[0].ok());
  uint64_t step = 0;
  ASSERT_TRUE(world.engine(0).step_calls().begin(&step).ok());
  std::vector<float> values(4);
  const parallax_slice_t slice = dense_slice(0, values.data());
  Request* request = nullptr;
  const Status status = world.engine(0).step_calls().reduce(step, {&slice, 1}, &request);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "registered with memory = PARALLAX_MEMORY_CUDA")) << status.message();
  EngineWorld differ(WorldOptions{.hosts = {0, 1}, .adjust = [this](uint32_t rank, auto* options) {
                                    options->devices = shares_[rank]->opener();
                                  }});
  const std::vector<Status> statuses = differ.everywhere([&](uint32_t rank, Request** posted) {
    uint32_t id = 0;
    parallax_variable_t mine = dense_variable("held", 2, 2);
    mine.memory = rank == 1 ? PARALLAX_MEMORY_CUDA : PARALLAX_MEMORY_HOST;
    PARALLAX_RETURN_IF_ERROR(differ.engine(rank).job_calls().register_variable(mine, &id));
    return differ.engine(rank).job_calls().commit(posted);
  });
  EXPECT_EQ(statuses[0].code(), PARALLAX_MISMATCH);
  EXPECT_TRUE(has(statuses[0], "field memory")) << statuses[0].message();
}

// Given memory that runs out anywhere in a call, expect it refused and nothing held; and the call
// to which nothing is refused as if nothing had been.
TEST_F(DeviceCallsTest, WithoutMemoryACallHoldsNothing) {
  if (!PARALLAX_TEST_WATCHES_MEMORY) GTEST_SKIP() << "a sanitizer owns malloc: run dev";
  start({0});
  begin();
  float* values = devices().make<float>({1, 2, 3, 4});
  const parallax_slice_t slice = on_device(dense_slice(kHeld, values));
  const uint32_t outstanding = world_->engine(0).outstanding_requests();
  for (uint64_t passed = 0;; ++passed) {
    Request* request = nullptr;
    bool thrown = false;
    Status status;
    RefusedMemory refused(passed);
    try {
      status = steps().reduce(1, {&slice, 1}, &request);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    if (!refused.end()) {
      ASSERT_TRUE(!thrown && status.ok()) << status.message();
      EXPECT_GT(passed, 3u);
      return finish({request, end(1)});
    }
    ASSERT_TRUE(thrown || status.code() == PARALLAX_LIMIT) << "after " << passed;
    ASSERT_EQ(request, nullptr) << "after " << passed;
    ASSERT_EQ(world_->engine(0).outstanding_requests(), outstanding) << "after " << passed;
    ASSERT_EQ(devices().marks() + devices().batches(), 0u) << "after " << passed;
    ASSERT_EQ(shares_[0]->pinned.bytes_in_use(), 0u) << "after " << passed;
  }
}

}  // namespace
}  // namespace parallax::testkit
