// SPDX-License-Identifier: Apache-2.0
// Memory that the job knows, registered with NCCL's communicators: once, until it goes.
#include <nccl.h>

#include <atomic>
#include <barrier>

#include "cuda/module_ranks.h"

namespace cuda_double_test::registered {
namespace {

class ModuleRegistered : public NcclJobs {
 protected:
  void SetUp() override {
    NcclJobs::SetUp();
    registers_ = cuda_double_calls("ncclCommRegister");
    deregisters_ = cuda_double_calls("ncclCommDeregister");
  }
  void TearDown() override {
    EXPECT_FALSE(log_has("registrations are left")) << log();
    EXPECT_FALSE(log_has("is registered already")) << log();
    NcclJobs::TearDown();
  }
  uint64_t registered() const { return cuda_double_calls("ncclCommRegister") - registers_; }
  uint64_t deregistered() const { return cuda_double_calls("ncclCommDeregister") - deregisters_; }

  static void* allocate(const DeviceRank& own, uint64_t numbers) {
    auto options = sized<parallax_buffer_options_t>();
    options.memory = PARALLAX_MEMORY_CUDA;
    options.device = own.rank;
    void* memory = nullptr;
    check(parallax_buffer_alloc(own.job, numbers * sizeof(float), &options, &memory));
    return memory;
  }
  static void step(const DeviceRank& own, void* values) {
    const uint64_t step = own.begin();
    DeviceRank::finish({own.reduce(step, own.slice(0, values)), own.end(step)});
  }
  static bool told(const DeviceRank& own, const std::string& words) {
    return own.report(PARALLAX_REPORT_STATS).find(words) != std::string::npos;
  }

 private:
  uint64_t registers_ = 0, deregisters_ = 0;
};

void add_one(DeviceRank& own) { own.add("w"); }

TEST_F(ModuleRegistered, WhatTheJobMadeIsRegisteredOnceWhereverSlicesLieInIt) {
  run(2, add_one, [](DeviceRank& own) {
    auto* const memory = static_cast<float*>(allocate(own, 4 * kCount));
    for (int i = 0; i < 4; ++i) step(own, memory + static_cast<uint64_t>(i) * kCount);
    EXPECT_TRUE(told(own, R"("registered_buffer_bytes":96,"registered_buffers":1)"))
        << own.report(PARALLAX_REPORT_STATS);
    check(parallax_buffer_free(own.job, memory));
    EXPECT_TRUE(told(own, R"("registered_buffers":0})"));
  });
  EXPECT_EQ(registered(), 2u);
  EXPECT_EQ(deregistered(), 2u) << "before it was freed, which the double checks";
}

TEST_F(ModuleRegistered, WhatTheProgramNamesIsRegisteredUntilItIsUnregistered) {
  run(2, add_one, [](DeviceRank& own) {
    const DeviceNumbers<float> named(std::vector<float>(kCount, 1)),
        unnamed(std::vector<float>(kCount, 1));
    check(parallax_buffer_register(own.job, named.address(), kCount * sizeof(float)));
    step(own, named.address());
    step(own, unnamed.address());
    EXPECT_TRUE(told(own, R"("registered_buffer_bytes":24,"registered_buffers":1)"));
    check(parallax_buffer_unregister(own.job, named.address()));
    EXPECT_TRUE(told(own, R"("registered_buffers":0})"));
    // As memory that nobody knows.
    step(own, named.address());
    EXPECT_EQ(named.host()[0], 4.f);
  });
  EXPECT_EQ(registered(), 2u);
  EXPECT_EQ(deregistered(), 2u);
}

// Whatever NCCL says, memory that it may still know is not given back before the job ends, and NCCL
// is asked once.
TEST_F(ModuleRegistered, WhatNcclDoesNotLetGoOfStays) {
  std::barrier<> together(2);
  for (int code = ncclUnhandledCudaError; code <= ncclRemoteError; ++code) {
    SCOPED_TRACE(code);
    run(2, add_one, [&](DeviceRank& own) {
      void* const memory = allocate(own, kCount);
      const DeviceNumbers<float> named(std::vector<float>(kCount, 1));
      check(parallax_buffer_register(own.job, named.address(), kCount * sizeof(float)));
      step(own, memory);
      step(own, named.address());
      together.arrive_and_wait();
      if (own.rank == 0) cuda_double_fail_always("ncclCommDeregister", code);
      together.arrive_and_wait();
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(parallax_buffer_free(own.job, memory), PARALLAX_IO);
        const std::string sentence = parallax_last_error();
        EXPECT_NE(sentence.find("did not let go of memory"), std::string::npos) << sentence;
        EXPECT_NE(sentence.find("ncclCommDeregister: "), std::string::npos) << sentence;
        EXPECT_EQ(parallax_buffer_unregister(own.job, named.address()), PARALLAX_IO);
        EXPECT_TRUE(told(own, R"("registered_buffers":2)"));
        step(own, memory);
        together.arrive_and_wait();
        if (own.rank == 0) cuda_double_clear_failures();
        together.arrive_and_wait();
      }
      check(parallax_close(own.job));  // before the program's memory goes
      own.job = nullptr;
    });
  }
  EXPECT_EQ(registered(), 4u * ncclRemoteError);
  EXPECT_EQ(deregistered(), registered());
}

// A buffer that a pending reduction uses stays, and stays registered.
TEST_F(ModuleRegistered, ABorrowedBufferStaysRegistered) {
  run(2, add_one, [](DeviceRank& own) {
    void* const memory = allocate(own, kCount);
    step(own, memory);
    const Stream stream;
    cuda_double_hold(stream.get(), 1);
    const uint64_t number = own.begin();
    parallax_request_t* request = own.reduce(number, own.slice(0, memory, stream.get()));
    EXPECT_EQ(parallax_buffer_free(own.job, memory), PARALLAX_STATE);
    EXPECT_TRUE(told(own, R"("registered_buffers":1})"));
    cuda_double_hold(stream.get(), 0);
    DeviceRank::finish({request, own.end(number)});
    check(parallax_buffer_free(own.job, memory));
  });
  EXPECT_EQ(registered(), deregistered());
}

// Groups have communicators of their own, each of which knows what it was launched with.
TEST_F(ModuleRegistered, EachCommunicatorKnowsItsOwn) {
  run(2, add_one, [](DeviceRank& own) {
    void* const memory = allocate(own, kCount);
    step(own, memory);
    const uint32_t ranks[] = {0, 1};
    DeviceRank part = own;
    check(parallax_split(own.job, ranks, 2, &part.job));
    part.add("in part");
    check(parallax_commit(part.job));
    step(part, memory);
    check(parallax_buffer_free(own.job, memory));
    check(parallax_close(part.job));
  });
  EXPECT_EQ(registered(), 4u);
  EXPECT_EQ(deregistered(), 4u);
}

TEST_F(ModuleRegistered, NoMoreThanTheBound) {
  run(1, add_one, [](DeviceRank& own) {
    std::vector<void*> all;
    for (int i = 0; i < 258; ++i) {
      all.push_back(allocate(own, kCount));
      step(own, all.back());
    }
    EXPECT_TRUE(told(own, R"("registered_buffers":256})"));
    for (void* each : all) check(parallax_buffer_free(own.job, each));
    EXPECT_TRUE(told(own, R"("registered_buffers":0})"));
  });
  EXPECT_EQ(registered(), 256u);
}

// What NCCL refuses it is not offered again, and reductions go on without.
TEST_F(ModuleRegistered, WhatNcclRefusesIsLeftAlone) {
  for (int code = ncclUnhandledCudaError; code <= ncclRemoteError; ++code) {
    const uint64_t before = registered();
    run(2, add_one, [&](DeviceRank& own) {
      void* const memory = allocate(own, kCount);
      cuda_double_fail_always("ncclCommRegister", code);
      for (int i = 0; i < 3; ++i) step(own, memory);
      EXPECT_TRUE(
          told(own, R"("refused_buffers":1,"registered_buffer_bytes":0,"registered_buffers":0)"));
      check(parallax_buffer_free(own.job, memory));
    });
    cuda_double_clear_failures();
    EXPECT_EQ(registered() - before, 2u) << code;
  }
  EXPECT_EQ(deregistered(), 0u);
}

TEST_F(ModuleRegistered, WhatIsThereAtTheEndIsDeregistered) {
  run(2, add_one, [](DeviceRank& own) {
    void* const memory = allocate(own, kCount);
    const DeviceNumbers<float> other(std::vector<float>(kCount, 1));
    step(own, memory);
    step(own, other.address());
    EXPECT_EQ(other.host()[0], 2.f);
    EXPECT_TRUE(told(own, R"("registered_buffers":1})"));
  });
  EXPECT_EQ(deregistered(), 2u) << "at the end of the communicators";
}

// Given an abort while reductions are under way, expect kernels to keep what they use: it goes with
// the communicator, and the memory after it.
TEST_F(ModuleRegistered, WhatIsUnderWayAtAnAbortGoesWithTheCommunicator) {
  std::atomic<bool> waiting{false};
  run(
      2, add_one,
      [&](DeviceRank& own) {
        void* const memory = allocate(own, kCount);
        step(own, memory);
        if (own.rank == 1) {
          while (!waiting) std::this_thread::yield();
          check(parallax_abort(own.job, "enough"));
          return;
        }
        const uint64_t number = own.begin();
        parallax_request_t* request = own.reduce(number, own.slice(0, memory));
        EXPECT_EQ(DeviceRank::wait(request, 50), PARALLAX_TIMEOUT);
        waiting = true;
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_ABORTED);
        check(parallax_request_release(request));
        check(parallax_buffer_free(own.job, memory));
      },
      {}, false);
}

}  // namespace
}  // namespace cuda_double_test::registered
