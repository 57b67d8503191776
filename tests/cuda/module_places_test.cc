// SPDX-License-Identifier: Apache-2.0
// Variables that say at registration where they lie: what is a place, what breaks the promise, and
// sums in windows that all ranks register together. module_places_apart_test.cc has where they do
// not, and how they end.
#include <algorithm>
#include <barrier>

#include "cuda/module_places.h"

namespace cuda_double_test::places {
namespace {

class ModulePlaces : public PlacedJobs {};

// At odd places, in place and not.
TEST_F(ModulePlaces, WhatLiesThereIsSummedInSymmetricMemory) {
  for (const int answers : {0, 2}) {
    nccl_double_set_launch_in_progress(answers);
    cuda_double_set_delay(5, 100);
    run(
        3,
        [this](DeviceRank& own) {
          PlacedMemory& memory = memory_[own.rank];
          memory.allocate(own);
          add_placed(own, "a", memory.address(1));
          add_placed(own, "b", memory.address(33), memory.address(501));
        },
        [this](DeviceRank& own) {
          const PlacedMemory& memory = memory_[own.rank];
          EXPECT_TRUE(planned(own, kInWindows)) << own.report(PARALLAX_REPORT_PLAN);
          EXPECT_FALSE(planned(own, kInNone));
          EXPECT_TRUE(has_windows(own, 0)) << "there is no communicator yet";
          const auto given = static_cast<float>(own.rank + 1);
          for (int i = 0; i < 3; ++i) {
            memory.fill(1, given);
            memory.fill(33, 10 * given);
            const uint64_t step = own.begin();
            parallax_slice_t slices[] = {own.slice(0, memory.address(1)),
                                         own.slice(1, memory.address(33))};
            slices[1].into = memory.address(501);
            parallax_request_t* request = nullptr;
            check(parallax_reduce(own.job, step, slices, 2, &request));
            DeviceRank::finish({request, own.end(step)});
            EXPECT_EQ(memory.values(1), std::vector<float>(kCount, 6));
            EXPECT_EQ(memory.values(33), std::vector<float>(kCount, 10 * given)) << "only read";
            EXPECT_EQ(memory.values(501), std::vector<float>(kCount, 60));
          }
          EXPECT_TRUE(has_windows(own, 1)) << own.report(PARALLAX_REPORT_STATS);
        });
    cuda_double_set_delay(0, 0);
  }
  EXPECT_EQ(symmetric(), 2u * 2 * 3 * 3);
  EXPECT_EQ(registered(), 2u * 3);
  EXPECT_EQ(deregistered(), registered()) << "before the communicators end";
  EXPECT_EQ(known(), 0u) << "it is NCCL's already";
  EXPECT_FALSE(log_has("registrations are left")) << log();
}

// As many as go together in one launch.
TEST_F(ModulePlaces, SmallOnesOfOneBufferGoTogether) {
  constexpr uint32_t kVariables = 20;
  const auto at = [](uint32_t variable) { return uint64_t{variable} * 7 + 3; };
  run(
      2,
      [&](DeviceRank& own) {
        memory_[own.rank].allocate(own);
        for (uint32_t i = 0; i < kVariables; ++i) {
          add_placed(own, ("v" + std::to_string(100 + i)).c_str(),
                     memory_[own.rank].address(at(i)));
        }
      },
      [&](DeviceRank& own) {
        const PlacedMemory& memory = memory_[own.rank];
        std::vector<parallax_slice_t> slices;
        for (uint32_t i = 0; i < kVariables; ++i) {
          memory.fill(at(i), static_cast<float>(i + own.rank));
          slices.push_back(own.slice(i, memory.address(at(i))));
        }
        const uint64_t step = own.begin();
        parallax_request_t* request = nullptr;
        check(parallax_reduce(own.job, step, slices.data(), slices.size(), &request));
        DeviceRank::finish({request, own.end(step)});
        for (uint32_t i = 0; i < kVariables; ++i) {
          EXPECT_EQ(memory.values(at(i)),
                    std::vector<float>(kCount, static_cast<float>(2 * i + 1)));
        }
      });
  EXPECT_EQ(symmetric(), 2u * kVariables);
  EXPECT_EQ(registered(), 2u);
}

// What lies there from the step before is no gradient of this one.
TEST_F(ModulePlaces, ARankThatGivesNothingTakesPartWithZerosFromThere) {
  run(
      3,
      [this](DeviceRank& own) {
        PlacedMemory& memory = memory_[own.rank];
        memory.allocate(own);
        add_placed(own, "a", memory.address(1));
        add_placed(own, "b", memory.address(33), memory.address(501));
      },
      [this](DeviceRank& own) {
        const PlacedMemory& memory = memory_[own.rank];
        for (uint32_t absent = 0; absent < 3; ++absent) {
          memory.fill(1, 1);
          memory.fill(33, 5);
          memory.fill(501, 77);
          const uint64_t step = own.begin();
          std::vector<parallax_request_t*> requests;
          if (own.rank != absent) {
            requests.push_back(own.reduce(step, own.slice(0, memory.address(1))));
            parallax_slice_t slice = own.slice(1, memory.address(33));
            slice.into = memory.address(501);
            requests.push_back(own.reduce(step, slice));
          }
          requests.push_back(own.end(step));
          DeviceRank::finish(requests);
          EXPECT_EQ(memory.values(1), std::vector<float>(kCount, 2));
          EXPECT_EQ(memory.values(501), std::vector<float>(kCount, 10));
          EXPECT_EQ(memory.values(33), std::vector<float>(kCount, own.rank == absent ? 0.f : 5.f));
          EXPECT_EQ(memory.values(7, 1)[0], 0) << "nothing beside them";
        }
      });
  EXPECT_EQ(symmetric(), 2u * 3 * 3);
}

// ---- the promise

TEST_F(ModulePlaces, ASliceElsewhereIsRefused) {
  run(
      2,
      [this](DeviceRank& own) {
        PlacedMemory& memory = memory_[own.rank];
        memory.allocate(own);
        add_placed(own, "a", memory.address(8));
        add_placed(own, "b", memory.address(32), memory.address(64));
      },
      [this](DeviceRank& own) {
        const PlacedMemory& memory = memory_[own.rank];
        const uint64_t step = own.begin();
        const auto refused = [&](parallax_slice_t slice, const char* words) {
          parallax_request_t* request = nullptr;
          EXPECT_EQ(parallax_reduce(own.job, step, &slice, 1, &request), PARALLAX_INVALID);
          EXPECT_TRUE(told(slice.variable == 0 ? "'a'" : "'b'")) << parallax_last_error();
          EXPECT_TRUE(told(words)) << parallax_last_error();
        };
        const parallax_slice_t a = own.slice(0, memory.address(8));
        parallax_slice_t b = own.slice(1, memory.address(32));
        refused(own.slice(0, memory.address(9)), "values is 0x");
        refused(b, "into is NULL, which is values");
        b.into = memory.address(65);
        refused(b, "registered with place_into 0x");
        b.into = memory.address(64);
        parallax_slice_t wrong = a;
        wrong.into = memory.address(64);
        refused(wrong, "into is 0x");
        wrong = a;
        wrong.device = (own.device() + 1) % 4;
        refused(wrong, "its place is in memory of device");
        wrong = a;
        wrong.as_dtype = PARALLAX_AS(PARALLAX_F16);
        refused(wrong, "as_dtype is f16");
        wrong = a;
        wrong.as_dtype = PARALLAX_AS(PARALLAX_F32);
        wrong.into = memory.address(8);  // the same, said in other words
        memory.fill(8, 1);
        memory.fill(32, 2);
        DeviceRank::finish({own.reduce(step, wrong), own.reduce(step, b), own.end(step)});
        EXPECT_EQ(memory.values(8), std::vector<float>(kCount, 2));
        EXPECT_EQ(memory.values(64), std::vector<float>(kCount, 4));
      });
}

// NCCL goes by addresses: what lies in a window on one rank lies there on all.
TEST_F(ModulePlaces, SlicesOfOtherVariablesMayNotLieInWindows) {
  run(
      2,
      [this](DeviceRank& own) {
        memory_[own.rank].allocate(own);
        add_placed(own, "a", memory_[own.rank].address(0));
        own.add("free");
      },
      [this](DeviceRank& own) {
        const PlacedMemory& memory = memory_[own.rank];
        const DeviceNumbers<float> other(std::vector<float>(kCount, 1));
        const uint64_t step = own.begin();
        parallax_slice_t slice = own.slice(1, memory.address(100));
        parallax_request_t* request = nullptr;
        EXPECT_EQ(parallax_reduce(own.job, step, &slice, 1, &request), PARALLAX_INVALID);
        EXPECT_TRUE(told("'free'): values lies in a buffer")) << parallax_last_error();
        slice = own.slice(1, other.address());
        slice.into = memory.address(100);
        EXPECT_EQ(parallax_reduce(own.job, step, &slice, 1, &request), PARALLAX_INVALID);
        EXPECT_TRUE(told("into lies in a buffer")) << parallax_last_error();
        memory.fill(0, 1);
        DeviceRank::finish({own.reduce(step, own.slice(0, memory.address(0))),
                            own.reduce(step, own.slice(1, other.address())), own.end(step)});
        EXPECT_EQ(memory.values(0), std::vector<float>(kCount, 2));
        EXPECT_EQ(other.values(), std::vector<float>(kCount, 2));
      });
  EXPECT_EQ(symmetric(), 2u);
}

TEST_F(ModulePlaces, TheMemoryStaysUntilTheJobIsClosed) {
  run(
      1,
      [this](DeviceRank& own) {
        memory_[0].allocate(own);
        add_placed(own, "kept", memory_[0].address(4));
      },
      [this](DeviceRank& own) {
        step_in_place(own, 0, memory_[0], 4);
        EXPECT_EQ(parallax_buffer_free(own.job, memory_[0].begin()), PARALLAX_STATE);
        EXPECT_TRUE(told("variable 'kept' has its place")) << parallax_last_error();
        step_in_place(own, 0, memory_[0], 4);
      });
}

// A registration that is refused keeps nothing.
TEST_F(ModulePlaces, WhatIsNoPlaceIsRefusedByName) {
  run(
      1,
      [this](DeviceRank& own) {
        PlacedMemory& memory = memory_[0];
        memory.allocate(own);
        PlacedMemory elsewhere;
        elsewhere.allocate_on(own, 1, 1, kBytes);
        const DeviceNumbers<float> unknown(std::vector<float>(kCount, 1));
        const auto refused = [&](const parallax_variable_t& variable, parallax_status_t status,
                                 const char* words) {
          uint32_t id = 77;
          EXPECT_EQ(parallax_register(own.job, &variable, &id), status) << words;
          EXPECT_EQ(id, 77u);
          EXPECT_TRUE(told(words)) << parallax_last_error();
          EXPECT_TRUE(told("variable 'v'")) << parallax_last_error();
        };
        const auto at = [&](uint64_t place) { return memory.address(place); };
        refused(described("v", nullptr, at(0)), PARALLAX_INVALID, "place_values is NULL");
        refused(described("v", unknown.address()), PARALLAX_INVALID, "of place_values");
        refused(described("v", at(kBytes / 4 - kCount + 1)), PARALLAX_INVALID,
                "not all lie in one");
        refused(described("v", at(0), unknown.address()), PARALLAX_INVALID, "of place_into");
        refused(described("v", at(0), elsewhere.address(0)), PARALLAX_INVALID, "on device 1");
        refused(described("v", at(0), at(3)), PARALLAX_INVALID, "overlaps place_values in part");
        refused(described("v", reinterpret_cast<char*>(at(0)) + 2), PARALLAX_INVALID,
                "aligned to 4");
        parallax_variable_t other = described("v", at(0));
        other.memory = PARALLAX_MEMORY_HOST;
        refused(other, PARALLAX_UNSUPPORTED, "PARALLAX_MEMORY_HOST");
        other = described("v", at(0));
        other.rule = PARALLAX_RULE_SGD;
        refused(other, PARALLAX_UNSUPPORTED, "update rule");
        other = described("v", at(0));
        other.rows_max = 2;
        refused(other, PARALLAX_UNSUPPORTED, "row ids");
        own.add("v");
        refused(described("v", at(0)), PARALLAX_INVALID, "");  // the name is taken
        EXPECT_EQ(parallax_buffer_free(own.job, memory.begin()), PARALLAX_OK);
        EXPECT_EQ(parallax_buffer_free(own.job, elsewhere.begin()), PARALLAX_OK);
      },
      [](DeviceRank&) {});
}

TEST_F(ModulePlaces, BuffersOfNcclAreDevicesAlone) {
  run(
      1, [](DeviceRank&) {},
      [](DeviceRank& own) {
        void* memory = nullptr;
        auto options = sized<parallax_buffer_options_t>();
        options.symmetric = 1;
        EXPECT_EQ(parallax_buffer_alloc(own.job, 8, &options, &memory), PARALLAX_INVALID);
        EXPECT_TRUE(told("symmetric is 1, and memory is")) << parallax_last_error();
        options.memory = PARALLAX_MEMORY_CUDA;
        options.symmetric = 2;
        EXPECT_EQ(parallax_buffer_alloc(own.job, 8, &options, &memory), PARALLAX_INVALID);
        options.symmetric = 1;
        options.reserved = 1;
        EXPECT_EQ(parallax_buffer_alloc(own.job, 8, &options, &memory), PARALLAX_UNSUPPORTED);
        options.reserved = 0;
        options.device = 9;
        EXPECT_EQ(parallax_buffer_alloc(own.job, 8, &options, &memory), PARALLAX_UNSUPPORTED);
        options.device = 0;
        cuda_double_fail("ncclMemAlloc", 1, ncclUnhandledCudaError, 0);
        EXPECT_EQ(parallax_buffer_alloc(own.job, 8, &options, &memory), PARALLAX_LIMIT);
        EXPECT_TRUE(told("ncclMemAlloc")) << parallax_last_error();
        cuda_double_clear_failures();
        const uint64_t frees = cuda_double_calls("ncclMemFree");
        cuda_double_fail("cuMemsetD8Async", 1, CUDA_ERROR_INVALID_VALUE, 0);
        EXPECT_EQ(parallax_buffer_alloc(own.job, 8, &options, &memory), PARALLAX_IO);
        cuda_double_clear_failures();
        check(parallax_buffer_alloc(own.job, 8, &options, &memory));
        EXPECT_EQ(parallax_buffer_free(own.job, memory), PARALLAX_OK);
        EXPECT_EQ(cuda_double_calls("ncclMemFree"), frees + 2);
      });
}

// ---- later, and parts

TEST_F(ModulePlaces, ALaterCommitRegistersItsOwn) {
  std::vector<PlacedMemory> later(2);
  run(
      2,
      [this](DeviceRank& own) {
        memory_[own.rank].allocate(own);
        add_placed(own, "first", memory_[own.rank].address(1));
      },
      [&](DeviceRank& own) {
        step_in_place(own, 0, memory_[own.rank], 1);
        parallax_variable_t variable = described("second", memory_[own.rank].address(64));
        uint32_t id = 0;
        EXPECT_EQ(parallax_register(own.job, &variable, &id), PARALLAX_UNSUPPORTED);
        EXPECT_TRUE(told("variables of an earlier commit")) << parallax_last_error();
        later[own.rank].allocate(own);
        EXPECT_EQ(add_placed(own, "second", later[own.rank].address(5)), 1u);
        check(parallax_commit(own.job));
        EXPECT_TRUE(has_windows(own, 1));
        for (int i = 0; i < 2; ++i) {
          const uint64_t step = own.begin();
          memory_[own.rank].fill(1, 1);
          later[own.rank].fill(5, 2);
          DeviceRank::finish({own.reduce(step, own.slice(1, later[own.rank].address(5))),
                              own.reduce(step, own.slice(0, memory_[own.rank].address(1))),
                              own.end(step)});
          EXPECT_EQ(memory_[own.rank].values(1), std::vector<float>(kCount, 2));
          EXPECT_EQ(later[own.rank].values(5), std::vector<float>(kCount, 4));
        }
        EXPECT_TRUE(has_windows(own, 2));
      });
  EXPECT_EQ(symmetric(), 2u * 5);
  EXPECT_EQ(deregistered(), 4u);
}

// Memory that was registered by its rank alone, before all register it together.
TEST_F(ModulePlaces, WhatWasKnownBeforeBecomesAWindow) {
  run(
      2, [](DeviceRank& own) { own.add("free"); },
      [this](DeviceRank& own) {
        const PlacedMemory& memory = memory_[own.rank];
        memory_[own.rank].allocate(own);
        step_in_place(own, 0, memory, 0);
        EXPECT_EQ(add_placed(own, "placed", memory.address(8)), 1u);
        check(parallax_commit(own.job));
        const DeviceNumbers<float> other(std::vector<float>(kCount, 1));
        const uint64_t step = own.begin();
        memory.fill(8, 1);
        DeviceRank::finish({own.reduce(step, own.slice(0, other.address())),
                            own.reduce(step, own.slice(1, memory.address(8))), own.end(step)});
        EXPECT_EQ(memory.values(8), std::vector<float>(kCount, 2));
        EXPECT_TRUE(has_windows(own, 1));
        EXPECT_TRUE(reported(own, PARALLAX_REPORT_STATS, R"("registered_buffers":0)"));
      });
  EXPECT_EQ(known(), 2u);
  EXPECT_EQ(symmetric(), 2u);
}

// Given NCCL that keeps it, expect a job that fails, and says which call did.
TEST_F(ModulePlaces, WhatNcclDoesNotLetGoOfBecomesNoWindow) {
  std::barrier both(2);
  run(
      2, [](DeviceRank& own) { own.add("free"); },
      [&](DeviceRank& own) {
        const PlacedMemory& memory = memory_[own.rank];
        memory_[own.rank].allocate(own);
        step_in_place(own, 0, memory, 0);
        EXPECT_EQ(add_placed(own, "placed", memory.address(8)), 1u);
        check(parallax_commit(own.job));
        const DeviceNumbers<float> other(std::vector<float>(kCount, 1));
        both.arrive_and_wait();
        cuda_double_fail_always("ncclCommDeregister", ncclInternalError);
        cuda_double_hold_call("ncclCommDeregister");
        parallax_request_t* const request = own.reduce(own.begin(), own.slice(0, other.address()));
        both.arrive_and_wait();
        cuda_double_hold_call(nullptr);
        EXPECT_NE(DeviceRank::wait(request), PARALLAX_OK);
        EXPECT_NE(std::string(parallax_last_error())
                      .find("ncclCommDeregister of memory that a window is to have"),
                  std::string::npos)
            << parallax_last_error();
        check(parallax_request_release(request));
        EXPECT_NE(parallax_close(own.job), PARALLAX_OK);
        own.job = nullptr;
      },
      {}, false);
  cuda_double_clear_failures();
  EXPECT_EQ(symmetric(), 0u);
}

// Out of the job's, and with one of its own: the same memory in windows of both.
TEST_F(ModulePlaces, PartsRegisterTheirOwn) {
  for (const bool reduced : {true, false}) {
    run(
        3,
        [this](DeviceRank& own) {
          memory_[own.rank].allocate(own);
          add_placed(own, "whole", memory_[own.rank].address(1));
        },
        [&](DeviceRank& own) {
          const PlacedMemory& memory = memory_[own.rank];
          if (reduced) step_in_place(own, 0, memory, 1);
          if (own.rank != 1) {
            const uint32_t ranks[] = {0, 2};
            DeviceRank part = own;
            check(parallax_split(own.job, ranks, 2, &part.job));
            add_placed(part, "in part", memory.address(40));
            check(parallax_commit(part.job));
            EXPECT_TRUE(planned(part, kInWindows)) << part.report(PARALLAX_REPORT_PLAN);
            EXPECT_EQ(planned(part, "made out of the job's"), reduced);
            for (int i = 0; i < 2; ++i) {
              memory.fill(40, static_cast<float>(own.rank));
              const uint64_t step = part.begin();
              std::vector<parallax_request_t*> requests;
              if (i == 0 || own.rank == 2) {
                requests.push_back(part.reduce(step, part.slice(0, memory.address(40))));
              }
              requests.push_back(part.end(step));
              DeviceRank::finish(requests);
              EXPECT_EQ(memory.values(40), std::vector<float>(kCount, 2));
            }
            EXPECT_TRUE(has_windows(part, 1));
            check(parallax_close(part.job));
          }
          step_in_place(own, 0, memory, 1);
        });
  }
  EXPECT_EQ(registered(), 2u * 5);
  EXPECT_EQ(deregistered(), registered());
}

}  // namespace
}  // namespace cuda_double_test::places
