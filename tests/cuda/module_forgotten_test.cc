// SPDX-License-Identifier: Apache-2.0
// Registered memory that is to go while NCCL does not return, is at something else, or keeps it.
#include <nccl.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "cuda/held.h"
#include "cuda/module_ranks.h"
#include "support/environment_variable.h"

namespace cuda_double_test::forgotten {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kAWhile(150);

void add_one(DeviceRank& own) { own.add("w"); }

// Memory of the program's on a rank's device, named to the job.
class Named {
 public:
  explicit Named(const DeviceRank& own)
      : own_(own), numbers_(std::vector<float>(kCount, static_cast<float>(own.rank + 1))) {
    check(parallax_buffer_register(own.job, address(), kCount * sizeof(float)));
  }
  void* address() const { return numbers_.address(); }
  const DeviceNumbers<float>& numbers() const { return numbers_; }
  parallax_status_t unregister() const { return parallax_buffer_unregister(own_.job, address()); }
  std::future<parallax_status_t> unregister_meanwhile() const {
    return std::async(std::launch::async, [this] { return unregister(); });
  }
  std::vector<parallax_request_t*> give() const {
    const uint64_t step = own_.begin();
    return {own_.reduce(step, own_.slice(0, address())), own_.end(step)};
  }
  // NCCL knows it from then on.
  void sum() const { DeviceRank::finish(give()); }

 private:
  const DeviceRank& own_;
  const DeviceNumbers<float> numbers_;
};

bool is_over(const std::future<parallax_status_t>& call) {
  return call.wait_for(milliseconds(0)) == std::future_status::ready;
}

class ModuleForgotten : public NcclJobs {
 protected:
  void SetUp() override {
    NcclJobs::SetUp();
    deregisters_ = cuda_double_calls("ncclCommDeregister");
    registers_ = cuda_double_calls("ncclCommRegister");
    aborts_ = cuda_double_calls("ncclCommAbort");
    splits_ = cuda_double_calls("ncclCommSplit");
  }
  void TearDown() override {
    nccl_double_hold_registrations(0);
    nccl_double_hold_splits(0);
    NcclJobs::TearDown();
  }
  uint64_t deregistered() const { return cuda_double_calls("ncclCommDeregister") - deregisters_; }
  uint64_t registered() const { return cuda_double_calls("ncclCommRegister") - registers_; }
  uint64_t aborted() const { return cuda_double_calls("ncclCommAbort") - aborts_; }

  // By rank 0, behind what both ranks did before, and before what they do then.
  template <typename Work>
  void by_one(const DeviceRank& own, Work work) {
    both_.arrive_and_wait();
    if (own.rank == 0) work();
    both_.arrive_and_wait();
  }
  void hold_registrations(const DeviceRank& own) {
    by_one(own, [this] {
      nccl_double_hold_registrations(1);
      held_ = std::make_unique<Held>("NCCL to return from a registration, or its end",
                                     [] { nccl_double_hold_registrations(0); });
    });
  }
  void hold_splits(const DeviceRank& own) {
    by_one(own, [this] {
      nccl_double_hold_splits(1);
      held_ = std::make_unique<Held>("a part", [] { nccl_double_hold_splits(0); });
    });
  }
  void release(const DeviceRank& own) {
    by_one(own, [this] { held_.reset(); });
  }
  static void await_held(int calls) {
    EXPECT_TRUE(comes([calls] { return nccl_double_held_registrations() >= calls; }));
  }
  void await_launches(uint64_t count) const {
    EXPECT_TRUE(comes([this, count] { return launched() >= count; }));
  }
  // A part of both ranks, whose communicator is being made out of the job's; its commit, which
  // begins at about the same time on both.
  std::future<parallax_status_t> commit_part(const DeviceRank& own, DeviceRank* part,
                                             const char* timeout_ms = "60000") {
    const uint32_t ranks[] = {0, 1};
    *part = own;
    check(parallax_split(own.job, ranks, 2, &part->job));
    part->add("in part");
    check(parallax_set(own.job, "timeout_ms", timeout_ms));
    both_.arrive_and_wait();
    auto committed = std::async(std::launch::async, [part] { return parallax_commit(part->job); });
    EXPECT_TRUE(comes([this] { return cuda_double_calls("ncclCommSplit") >= splits_ + 2; }));
    return committed;
  }

  std::barrier<> both_{2};
  std::unique_ptr<Held> held_;

 private:
  uint64_t deregisters_ = 0, registers_ = 0, aborts_ = 0, splits_ = 0;
};

// ---- NCCL does not return

// Given a deregistration that lasts until its communicator is aborted, and a job that ends, expect
// the abort, nothing to be waited for beyond it, and the memory to be the program's then.
TEST_F(ModuleForgotten, AnAbortEndsADeregistrationThatDoesNotReturn) {
  run(
      2, add_one,
      [&](DeviceRank& own) {
        const Named named(own);
        named.sum();
        hold_registrations(own);
        auto gone = named.unregister_meanwhile();
        await_held(2);
        EXPECT_FALSE(is_over(gone));
        const auto before = std::chrono::steady_clock::now();
        both_.arrive_and_wait();
        EXPECT_EQ(parallax_abort(own.job, "enough"), PARALLAX_OK);
        EXPECT_EQ(gone.get(), PARALLAX_OK);
        EXPECT_GE(std::chrono::steady_clock::now() - before, milliseconds(kAbortMs))
            << "a call that may return by itself is given its time";
        EXPECT_NE(parallax_close(own.job), PARALLAX_OK);
        own.job = nullptr;
        EXPECT_FALSE(held_->vain()) << "it ends when NCCL returns by itself, and not before";
        release(own);
      },
      {}, false);
  EXPECT_EQ(aborted(), 2u);
  EXPECT_EQ(deregistered(), 2u) << "nor is NCCL called again for what is aborted";
}

// The same of a registration, with another behind it, which is not begun any more.
TEST_F(ModuleForgotten, AnAbortEndsARegistrationThatDoesNotReturn) {
  run(
      2,
      [](DeviceRank& own) {
        own.add("w");
        own.add("v");
      },
      [&](DeviceRank& own) {
        const Named named(own), other(own);
        hold_registrations(own);
        const uint64_t step = own.begin();
        parallax_request_t* requests[] = {own.reduce(step, own.slice(0, named.address())),
                                          own.reduce(step, own.slice(1, other.address()))};
        await_held(2);
        both_.arrive_and_wait();
        EXPECT_EQ(parallax_abort(own.job, "enough"), PARALLAX_OK);
        for (parallax_request_t* each : requests) {
          EXPECT_EQ(DeviceRank::wait(each), PARALLAX_ABORTED);
          check(parallax_request_release(each));
        }
        EXPECT_EQ(named.unregister(), PARALLAX_OK);
        EXPECT_EQ(other.unregister(), PARALLAX_OK);
        EXPECT_FALSE(held_->vain());
        release(own);
      },
      {}, false);
  EXPECT_EQ(registered(), 2u) << "the second one of a rank begins behind the abort";
}

// What still waits in vain is told by the time that the job has for its calls, and goes later.
TEST_F(ModuleForgotten, ACallThatWaitsForNcclHasADeadline) {
  run(2, add_one, [&](DeviceRank& own) {
    const Named named(own);
    named.sum();
    hold_registrations(own);
    check(parallax_set(own.job, "timeout_ms", "50"));
    EXPECT_EQ(named.unregister(), PARALLAX_TIMEOUT);
    const std::string sentence = parallax_last_error();
    for (const char* words : {"may be tried again", "NCCL has them still after timeout_ms"}) {
      EXPECT_NE(sentence.find(words), std::string::npos) << sentence;
    }
    check(parallax_set(own.job, "timeout_ms", "60000"));
    release(own);
    EXPECT_EQ(named.unregister(), PARALLAX_OK);
    DeviceNumbers<float> other(std::vector<float>(kCount, 1));
    const uint64_t step = own.begin();
    DeviceRank::finish({own.reduce(step, own.slice(0, other.address())), own.end(step)});
    EXPECT_EQ(other.host()[0], 2.f) << "the job goes on";
  });
  EXPECT_EQ(deregistered(), 2u);
}

// Given a reduction that waits for nothing else, expect the deadline of sums to end the job.
TEST_F(ModuleForgotten, ASumThatWaitsForItHasTheDeadlineOfSums) {
  const parallax::testkit::EnvironmentVariable deadline("PARALLAX_NCCL_TIMEOUT_MS", "300");
  run(
      2, add_one,
      [&](DeviceRank& own) {
        const Named named(own);
        named.sum();
        hold_registrations(own);
        auto gone = named.unregister_meanwhile();
        await_held(2);
        const DeviceNumbers<float> other(std::vector<float>(kCount, 1));
        parallax_request_t* const request = own.reduce(own.begin(), own.slice(0, other.address()));
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_IO);
        for (const char* words : {"variable 'w'", "in step 2", "within 300 ms since it was due",
                                  "ncclCommDeregister does not return"}) {
          EXPECT_NE(std::string(parallax_last_error()).find(words), std::string::npos)
              << parallax_last_error();
        }
        check(parallax_request_release(request));
        EXPECT_EQ(gone.get(), PARALLAX_OK);
        EXPECT_FALSE(held_->vain());
        release(own);
      },
      {}, false);
  EXPECT_EQ(aborted(), 2u);
}

// ---- NCCL is at something else

// Given a launch that NCCL has still in progress, expect it not to be called beside it, however
// often it is asked; the double notes two calls at once.
TEST_F(ModuleForgotten, NothingIsDeregisteredWhileALaunchSettles) {
  run(2, add_one, [&](DeviceRank& own) {
    const Named named(own), other(own);
    named.sum();
    by_one(own, [this] {
      nccl_double_set_launch_in_progress(-1);
      held_ = std::make_unique<Held>("a launch", [] { nccl_double_set_launch_in_progress(0); });
    });
    const uint64_t before = launched();
    const auto begun = other.give();
    await_launches(before + 1);
    auto gone = named.unregister_meanwhile();
    EXPECT_EQ(gone.wait_for(kAWhile), std::future_status::timeout);
    EXPECT_EQ(deregistered(), 0u);
    release(own);
    DeviceRank::finish(begun);
    EXPECT_EQ(gone.get(), PARALLAX_OK);
    EXPECT_EQ(other.unregister(), PARALLAX_OK);
  });
  EXPECT_EQ(deregistered(), 4u);
}

// Given sums under way, and more that are given all the time, expect the memory to go between two
// of them: to deregister may wait for what is under way, and a job that never stands still is not
// waited for forever.
TEST_F(ModuleForgotten, MemoryGoesWhenWhatWasLaunchedHasEnded) {
  run(2, add_one, [&](DeviceRank& own) {
    const Named named(own);
    const DeviceNumbers<float> first(std::vector<float>(kCount, 1)),
        second(std::vector<float>(kCount, 1));
    named.sum();
    const Stream stream;
    both_.arrive_and_wait();
    const uint64_t before = launched();
    both_.arrive_and_wait();
    cuda_double_hold(stream.get(), 1);
    uint64_t step = own.begin();
    parallax_request_t* const one = own.reduce(step, own.slice(0, first.address(), stream.get()));
    parallax_request_t* const one_ended = own.end(step);
    await_launches(before + 2);
    auto gone = named.unregister_meanwhile();
    EXPECT_EQ(gone.wait_for(kAWhile), std::future_status::timeout);
    EXPECT_EQ(deregistered(), 0u) << "beside what is under way";
    hold_registrations(own);
    step = own.begin();
    parallax_request_t* const two = own.reduce(step, own.slice(0, second.address()));
    parallax_request_t* const two_ended = own.end(step);
    cuda_double_hold(stream.get(), 0);
    await_held(2);
    EXPECT_EQ(DeviceRank::wait(two, 10), PARALLAX_TIMEOUT);
    EXPECT_EQ(launched(), before + 2) << "nothing is launched beside it";
    release(own);
    DeviceRank::finish({one, one_ended, two, two_ended});
    EXPECT_EQ(gone.get(), PARALLAX_OK);
    EXPECT_EQ(second.host()[0], 2.f);
  });
  EXPECT_EQ(deregistered(), 2u);
}

// Given a part that is being made out of the job's communicator, expect memory that NCCL does not
// know to go at once, and other memory to have a deadline and to go behind it.
TEST_F(ModuleForgotten, MemoryThatNcclDoesNotKnowWaitsForNoPart) {
  run(2, add_one, [&](DeviceRank& own) {
    const Named known(own), never_used(own), refused(own);
    known.sum();
    by_one(own, [] { cuda_double_fail_always("ncclCommRegister", ncclInvalidUsage); });
    refused.sum();
    by_one(own, [] { cuda_double_clear_failures(); });
    hold_splits(own);
    DeviceRank part;
    auto committed = commit_part(own, &part);
    for (const uint32_t memory : {PARALLAX_MEMORY_HOST, PARALLAX_MEMORY_CUDA}) {
      auto options = sized<parallax_buffer_options_t>();
      options.memory = memory;
      options.device = memory == PARALLAX_MEMORY_CUDA ? own.device() : 0;
      void* buffer = nullptr;
      check(parallax_buffer_alloc(own.job, 4096, &options, &buffer));
      EXPECT_EQ(parallax_buffer_free(own.job, buffer), PARALLAX_OK) << parallax_last_error();
    }
    EXPECT_EQ(never_used.unregister(), PARALLAX_OK) << parallax_last_error();
    EXPECT_EQ(refused.unregister(), PARALLAX_OK) << parallax_last_error();
    EXPECT_FALSE(is_over(committed)) << "none of it waited";
    check(parallax_set(own.job, "timeout_ms", "50"));
    EXPECT_EQ(known.unregister(), PARALLAX_TIMEOUT);
    check(parallax_set(own.job, "timeout_ms", "60000"));
    EXPECT_EQ(deregistered(), 0u);
    auto gone = known.unregister_meanwhile();
    release(own);
    EXPECT_EQ(committed.get(), PARALLAX_OK);
    EXPECT_EQ(gone.get(), PARALLAX_OK) << "the job's is idle again";
    both_.arrive_and_wait();
    check(parallax_close(part.job));
  });
}

// Given a part that does not come to be, expect who waits for it to be told: by the job's end.
TEST_F(ModuleForgotten, AnAbortedPartEndsTheWait) {
  run(
      2, add_one,
      [&](DeviceRank& own) {
        const Named known(own);
        known.sum();
        hold_splits(own);
        DeviceRank part;
        auto committed = commit_part(own, &part);
        auto gone = known.unregister_meanwhile();
        by_one(own, [&own] { EXPECT_EQ(parallax_abort(own.job, "enough"), PARALLAX_OK); });
        EXPECT_EQ(gone.get(), PARALLAX_OK);
        EXPECT_EQ(committed.get(), PARALLAX_ABORTED);
        EXPECT_FALSE(held_->vain());
        release(own);
        parallax_close(part.job);
      },
      {}, false);
}

// Its close while it is being made ends the job, and with it the job's communicator, which NCCL has
// in progress: nobody waits for either.
TEST_F(ModuleForgotten, APartThatIsClosedWhileItFormsEndsTheJob) {
  run(
      2, add_one,
      [&](DeviceRank& own) {
        const Named known(own);
        known.sum();
        hold_splits(own);
        DeviceRank part;
        EXPECT_EQ(commit_part(own, &part, "500").get(), PARALLAX_TIMEOUT);
        check(parallax_set(own.job, "timeout_ms", "60000"));
        both_.arrive_and_wait();
        parallax_close(part.job);
        EXPECT_EQ(known.unregister(), PARALLAX_OK) << parallax_last_error();
        parallax_request_t* request = nullptr;
        parallax_status_t ended = parallax_barrier(own.job, &request);
        if (ended == PARALLAX_OK) {
          ended = DeviceRank::wait(request);
          check(parallax_request_release(request));
        }
        EXPECT_EQ(ended, PARALLAX_ABORTED);
        EXPECT_NE(std::string(parallax_last_error()).find("before every rank had committed"),
                  std::string::npos)
            << parallax_last_error();
        EXPECT_FALSE(held_->vain());
        release(own);
      },
      {}, false);
}

// ---- answers

// Given an error that nobody waited for, expect every later call to tell it, and NCCL not to be
// asked again: it would say that it has let go of memory that it has still.
TEST_F(ModuleForgotten, WhatNcclKeptOnceIsItsOwnUntilTheEnd) {
  run(2, add_one, [&](DeviceRank& own) {
    const Named named(own);
    named.sum();
    by_one(own, [this] {
      cuda_double_fail_always("ncclCommDeregister", ncclSystemError);
      cuda_double_hold_call("ncclCommDeregister");
      held_ = std::make_unique<Held>("the end of a registration",
                                     [] { cuda_double_hold_call(nullptr); });
    });
    auto borrowed = named.unregister_meanwhile();
    EXPECT_TRUE(comes([this] { return deregistered() >= 2; }));
    // It is not launched beside the deregistration, and borrows the memory.
    const auto begun = named.give();
    EXPECT_EQ(borrowed.get(), PARALLAX_STATE);
    by_one(own, [this] { held_.reset(); });
    DeviceRank::finish(begun);
    by_one(own, [] { cuda_double_clear_failures(); });
    for (int i = 0; i < 2; ++i) EXPECT_EQ(named.unregister(), PARALLAX_IO);
    EXPECT_NE(std::string(parallax_last_error()).find("until its communicator ends"),
              std::string::npos)
        << parallax_last_error();
    named.sum();
    check(parallax_close(own.job));  // before the memory goes
    own.job = nullptr;
  });
  EXPECT_EQ(deregistered(), 2u);
}

// Given memory that NCCL refused and that went, expect other memory at its address to be offered.
TEST_F(ModuleForgotten, WhatWasRefusedIsForgottenWithItsMemory) {
  run(2, add_one, [&](DeviceRank& own) {
    by_one(own, [] { cuda_double_fail_always("ncclCommRegister", ncclInvalidUsage); });
    const Named named(own);
    named.sum();
    EXPECT_EQ(named.unregister(), PARALLAX_OK);
    by_one(own, [] { cuda_double_clear_failures(); });
    check(parallax_buffer_register(own.job, named.address(), kCount * sizeof(float)));
    named.sum();
    EXPECT_NE(own.report(PARALLAX_REPORT_STATS).find(R"("registered_buffers":1)"),
              std::string::npos);
    EXPECT_EQ(named.unregister(), PARALLAX_OK);
  });
  EXPECT_EQ(registered(), 4u);
  EXPECT_EQ(deregistered(), 2u);
}

}  // namespace
}  // namespace cuda_double_test::forgotten
