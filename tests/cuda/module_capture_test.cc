// SPDX-License-Identifier: Apache-2.0
// Streams in capture: every call that takes slices on devices refuses one, by name, touches
// nothing, and does not spoil the capture; and takes the same slice once it has ended.
#include "cuda/module_job.h"

namespace parallax::module_test {
namespace {

using Call = decltype(&parallax_reduce);

class ModuleCapture : public ModuleTest {
 protected:
  static void set_capture(const Stream& stream, CUstreamCaptureStatus status) {
    cuda_double_set_capture(stream.get(), status);
  }
};

TEST_F(ModuleCapture, EveryCallWithSlicesOnDevicesRefusesIt) {
  One one;
  const Current current(0);
  const Stream stream;
  const DeviceNumbers<float> four({1, 2, 3, 4}), rows({1, 1, 2, 2});
  const DeviceNumbers<int64_t> ids({0, 5});
  parallax_slice_t of_rows = held(rows.address(), stream.get());
  of_rows.variable = 1;
  of_rows.ids = static_cast<const int64_t*>(ids.address());
  of_rows.row_count = 2;
  of_rows.form = PARALLAX_FORM_ROWS;
  const struct {
    const char* name;
    Call call;
    uint64_t step;
    parallax_slice_t slice;
  } calls[] = {{"reduce", parallax_reduce, one.step, held(four.address(), stream.get())},
               {"push", parallax_push, one.step, of_rows},
               {"pull", parallax_pull, one.step, of_rows}};
  for (const auto status :
       {CU_STREAM_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_INVALIDATED}) {
    set_capture(stream, status);
    for (const auto& each : calls) {
      parallax_request_t* request = nullptr;
      EXPECT_EQ(each.call(one.job, each.step, &each.slice, 1, &request), PARALLAX_UNSUPPORTED)
          << each.name;
      EXPECT_EQ(request, nullptr);
      EXPECT_TRUE(told("is being captured into a graph")) << parallax_last_error();
      EXPECT_TRUE(told(each.name)) << parallax_last_error();
    }
    set_capture(stream, CU_STREAM_CAPTURE_STATUS_NONE);
  }
  EXPECT_EQ(four.values(), (std::vector<float>{1, 2, 3, 4}));
  for (const auto& each : calls) {
    parallax_request_t* request = nullptr;
    ASSERT_EQ(each.call(one.job, each.step, &each.slice, 1, &request), PARALLAX_OK)
        << each.name << ": " << parallax_last_error();
    EXPECT_EQ(parallax_wait(&request, 1, kWait), PARALLAX_OK) << each.name;
    check(parallax_request_release(request));
  }
  // An evaluation is between steps.
  parallax_request_t* request = nullptr;
  check(parallax_step_end(one.job, one.step, nullptr, &request));
  check(parallax_wait(&request, 1, kWait));
  check(parallax_request_release(request));
  set_capture(stream, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(parallax_pull(one.job, 0, &of_rows, 1, &request), PARALLAX_UNSUPPORTED);
  EXPECT_TRUE(told("is being captured into a graph")) << parallax_last_error();
  set_capture(stream, CU_STREAM_CAPTURE_STATUS_NONE);
  ASSERT_EQ(parallax_pull(one.job, 0, &of_rows, 1, &request), PARALLAX_OK);
  check(parallax_wait(&request, 1, kWait));
  check(parallax_request_release(request));
}

// The default stream, while a blocking one captures: CUDA says that by an error of its own.
TEST_F(ModuleCapture, TheDefaultStreamIsRefusedWhileAnotherCaptures) {
  One one;
  const Current current(0);
  const Stream blocking(CU_STREAM_DEFAULT);
  const DeviceNumbers<float> four({1, 2, 3, 4});
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  set_capture(blocking, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(one.reduce(held(four.address())), PARALLAX_UNSUPPORTED);
  EXPECT_TRUE(told("is being captured into a graph")) << parallax_last_error();
  EXPECT_EQ(cuStreamIsCapturing(blocking.get(), &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE) << "the capture is not spoiled";
  set_capture(blocking, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(one.reduce(held(four.address())), PARALLAX_OK) << parallax_last_error();
  EXPECT_EQ(one.wait(), PARALLAX_OK);
}

// Memory has no stream, and is no part of a graph: it is had during a capture as at any time.
TEST_F(ModuleCapture, BuffersAreAllocatedAndFreedDuringACapture) {
  One one;
  const Current current(0);
  const Stream captured(CU_STREAM_DEFAULT);
  set_capture(captured, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  auto options = sized<parallax_buffer_options_t>();
  options.memory = PARALLAX_MEMORY_CUDA;
  void* buffer = nullptr;
  ASSERT_EQ(parallax_buffer_alloc(one.job, 16, &options, &buffer), PARALLAX_OK)
      << parallax_last_error();
  const auto* numbers =
      static_cast<const float*>(cuda_double_alias(reinterpret_cast<CUdeviceptr>(buffer), 16, -1));
  EXPECT_EQ(numbers[3], 0.f);
  EXPECT_EQ(parallax_buffer_free(one.job, buffer), PARALLAX_OK) << parallax_last_error();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(cuStreamIsCapturing(captured.get(), &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE) << "the capture is not spoiled";
  set_capture(captured, CU_STREAM_CAPTURE_STATUS_NONE);
}

// Another thread's capture, of a stream that no slice names, is left alone, too: the double says
// where a call would have invalidated it.
TEST_F(ModuleCapture, TheCaptureOfAnotherStreamIsNotSpoiled) {
  One one;
  const Current current(0);
  const Stream stream, captured;
  const DeviceNumbers<float> four({1, 2, 3, 4});
  set_capture(captured, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(one.reduce(held(four.address(), stream.get())), PARALLAX_OK);
  EXPECT_EQ(one.wait(), PARALLAX_OK);
  set_capture(captured, CU_STREAM_CAPTURE_STATUS_NONE);
}

}  // namespace
}  // namespace parallax::module_test
