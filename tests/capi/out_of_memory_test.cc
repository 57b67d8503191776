// SPDX-License-Identifier: Apache-2.0
// Calls that find no memory for what they would say: a status comes back, and no exception.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "parallax/parallax.hpp"

// Sanitizers have an allocator of their own, which takes no other beside it.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

constinit thread_local bool no_memory = false;

void* take(size_t bytes) {
  void* const taken = no_memory ? nullptr : std::malloc(bytes);
  if (taken == nullptr) throw std::bad_alloc();
  return taken;
}

}  // namespace

void* operator new(size_t bytes) { return take(bytes); }
void* operator new[](size_t bytes) { return take(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace {

// Runs a call of which the library gets no memory.
template <typename Call>
parallax_status_t without_memory(Call call) {
  no_memory = true;
  const parallax_status_t status = call();
  no_memory = false;
  return status;
}

// Given bad arguments whose sentences need memory, expect LIMIT from every call that would refuse
// them, and the calls that need none to work.
TEST(OutOfMemory, IsAStatusOfEveryCall) {
  using parallax::sized;
  parallax::Job job(sized<parallax_options_t>());
  job.commit();
  parallax_job_t* const handle = job.get();
  parallax::Request request = job.barrier();
  request.wait();
  parallax_request_t* raw = request.get();
  auto error = sized<parallax_error_info_t>();
  parallax_request_t* none = nullptr;
  void* pointer = nullptr;
  int word = 0;

  EXPECT_EQ(without_memory([] { return parallax_last_error_info(nullptr); }), PARALLAX_LIMIT);
  error.size = 3;
  EXPECT_EQ(without_memory([&] { return parallax_last_error_info(&error); }), PARALLAX_LIMIT);
  error.size = sizeof error;
  const auto refused = [&](const char* call, auto body) {
    EXPECT_EQ(without_memory(body), PARALLAX_LIMIT) << call;
    EXPECT_EQ(without_memory([&] { return parallax_last_error_info(&error); }), PARALLAX_OK);
    EXPECT_EQ(error.status, PARALLAX_LIMIT) << call;
    EXPECT_STRNE(parallax_last_error(), "") << call;
  };
  refused("open", [] { return parallax_open(nullptr, nullptr); });
  refused("query", [&] { return parallax_query(handle, nullptr); });
  refused("set", [&] { return parallax_set(handle, "milk", "1"); });
  refused("split", [&] { return parallax_split(handle, nullptr, 1, nullptr); });
  refused("report", [&] { return parallax_report(handle, 0, nullptr, nullptr); });
  refused("register", [&] { return parallax_register(handle, nullptr, nullptr); });
  refused("step_begin", [&] { return parallax_step_begin(handle, nullptr); });
  refused("pull", [&] { return parallax_pull(handle, 1, nullptr, 1, &none); });
  refused("barrier", [&] { return parallax_barrier(handle, nullptr); });
  refused("collective", [&] { return parallax_collective(handle, nullptr, &none); });
  refused("read", [&] { return parallax_read(handle, nullptr, &none); });
  refused("buffer_alloc", [&] { return parallax_buffer_alloc(handle, 8, nullptr, &pointer); });
  refused("buffer_free", [&] { return parallax_buffer_free(handle, &word); });
  refused("buffer_register", [&] { return parallax_buffer_register(handle, &word, 4); });
  refused("buffer_unregister", [&] { return parallax_buffer_unregister(handle, &word); });
  refused("wait", [&] { return parallax_wait(&none, 1, 0); });
  refused("request_step", [&] { return parallax_request_step(raw, nullptr); });
  refused("request_error_info", [&] { return parallax_request_error_info(raw, nullptr); });
  refused("release", [&] { return parallax_request_cancel(nullptr); });
  EXPECT_EQ(pointer, nullptr);

  EXPECT_EQ(without_memory([&] { return parallax_request_test(raw); }), PARALLAX_OK);
  EXPECT_EQ(without_memory([&] { return parallax_wait(&raw, 1, 0); }), PARALLAX_OK);
  void* kept = nullptr;
  parallax::check(parallax_buffer_alloc(handle, 8, nullptr, &kept));
  EXPECT_EQ(without_memory([&] { return parallax_buffer_free(handle, kept); }), PARALLAX_OK);
}

}  // namespace

#endif
