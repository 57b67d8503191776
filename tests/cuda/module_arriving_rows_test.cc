// SPDX-License-Identifier: Apache-2.0
// Rows that lie on devices: they are summed while the rest of them is copied, and those that are
// whole are on the wire. Told by what happens while copies are held, not by clocks.
#include <barrier>
#include <string>

#include "cuda/module_arriving_rows.h"

namespace cuda_double_test::arriving {
namespace {

std::vector<float> negative(std::vector<float> values) {
  for (float& each : values) each = -each;
  return values;
}

class ArrivingRows : public ModuleArriving {
 protected:
  // Two ranks on two hosts.
  static void run_two_as(uint32_t plan, const Body& variables, const Body& body,
                         bool closes = true) {
    run(
        2, variables, body,
        [plan](parallax_options_t* options) {
          options->host = options->rank == 0 ? "one" : "two";
          options->plan_mode = plan;
        },
        closes);
  }
};

// Given pushes of which the last copies are held, expect rows on the wire: those to which nothing
// is added any more; copied whole and behind the device's own sums, pinned and in pieces, with ids
// here and there. And then the bits of one process.
TEST_F(ArrivingRows, APushIsOnTheWireBeforeItsLastCopyHasEnded) {
  const std::vector<float> expected = negative(sum_of(2));
  for (const bool by_device : {false, true}) {
    for (const char* whole_max : {"256M", "0"}) {
      for (const Ids where : {Ids::kOnDevice, Ids::kInHostMemory}) {
        if (by_device && where == Ids::kInHostMemory) continue;  // the host's then
        SCOPED_TRACE(std::string(by_device ? "by device, " : "") + whole_max);
        const EnvironmentVariable least("PARALLAX_DEVICE_COALESCE_MIN_BYTES",
                                        by_device ? "0" : "1G");
        const EnvironmentVariable most("PARALLAX_PINNED_CALL_MAX_BYTES", whole_max);
        run_two_as(
            PARALLAX_PLAN_PS, [](DeviceRank& own) { add_rows(own, true); },
            [&](DeviceRank& own) {
              const Given given(own, where);
              // Counts, ids and three pieces.
              hold_after(own, (by_device ? 1 : 0) + (where == Ids::kOnDevice ? 1 : 0) + 3);
              const uint64_t step = own.begin();
              parallax_request_t* pushed = push(own, step, given.slice);
              parallax_request_t* ended = end(own, step);
              EXPECT_TRUE(await_sent(own, kPiece / 2)) << "nothing goes before the last copy";
              EXPECT_EQ(DeviceRank::wait(pushed, 0), PARALLAX_TIMEOUT) << "it is borrowed";
              let_go(own);
              DeviceRank::finish({pushed, ended});
              EXPECT_TRUE(pull_all(own) == expected);
            });
      }
    }
  }
}

// The same of sums that every rank gets back, by owners and by every host for itself.
TEST_F(ArrivingRows, AReduceIsOnTheWireBeforeItsLastCopyHasEnded) {
  const std::vector<float> expected = sum_of(2);
  for (const uint32_t plan : {PARALLAX_PLAN_PS, PARALLAX_PLAN_AR}) {
    SCOPED_TRACE(plan);
    const EnvironmentVariable least("PARALLAX_DEVICE_COALESCE_MIN_BYTES", "1G");
    run_two_as(
        plan, [](DeviceRank& own) { add_rows(own, false); },
        [&](DeviceRank& own) {
          for (int i = 0; i < 3; ++i) {
            const Given given(own);
            const uint64_t sent = wire_sent(own);
            hold_after(own, 4);
            const uint64_t step = own.begin();
            parallax_request_t* request = own.reduce(step, given.slice);
            parallax_request_t* ended = end(own, step);
            EXPECT_TRUE(await_sent(own, sent + kPiece / 2)) << "nothing goes before the last copy";
            EXPECT_EQ(DeviceRank::wait(request, 0), PARALLAX_TIMEOUT);
            let_go(own);
            check(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
            EXPECT_TRUE(rows_of(request) == expected) << i;
            DeviceRank::finish({request, ended});
          }
        });
  }
}

// Given a stream that never comes to the call, or a device that fails before anything has come,
// expect the request to fail alone, and the step to go on without it.
TEST_F(ArrivingRows, AnErrorBeforeTheFirstRowIsTheRequests) {
  const EnvironmentVariable least("PARALLAX_DEVICE_COALESCE_MIN_BYTES", "1G");
  run_two_as(
      PARALLAX_PLAN_PS,
      [](DeviceRank& own) {
        add_rows(own, true);
        own.add_on_host("on the host");
      },
      [](DeviceRank& own) {
        const Given given(own);
        const uint64_t step = own.begin();
        if (own.rank == 1) {
          hold_after(own, 1);
          parallax_request_t* pushed = push(own, step, given.slice);
          EXPECT_EQ(DeviceRank::wait(pushed, 20), PARALLAX_TIMEOUT);
          cuda_double_poison(static_cast<int>(own.device()), CUDA_ERROR_ILLEGAL_ADDRESS);
          EXPECT_EQ(DeviceRank::wait(pushed), PARALLAX_IO);
          check(parallax_request_release(pushed));
          let_go(own);
        }
        std::vector<float> values(kCount, 1);
        auto slice = sized<parallax_slice_t>();
        slice.variable = 1;
        slice.values = values.data();
        DeviceRank::finish({own.reduce(step, slice), end(own, step)});
        EXPECT_EQ(values[0], 2.f);
        EXPECT_TRUE(pull_all(own) == std::vector<float>(kRows * kWidth)) << "nobody gave";
        if (own.rank == 1) cuda_double_poison(static_cast<int>(own.device()), CUDA_SUCCESS);
      });
}

// Given a device that fails when others have a part, expect the job to end with its words, and
// nothing to be left.
TEST_F(ArrivingRows, AnErrorInMidCopyFailsTheJob) {
  const EnvironmentVariable least("PARALLAX_DEVICE_COALESCE_MIN_BYTES", "1G");
  std::barrier both(2);
  run_two_as(
      PARALLAX_PLAN_PS, [](DeviceRank& own) { add_rows(own, true); },
      [&](DeviceRank& own) {
        const Given given(own);
        std::vector<float> on_host = values_of(own.rank);
        hold_after(own, 3);
        const uint64_t step = own.begin();
        parallax_slice_t slice = given.slice;
        // The other has nothing under way that could fail instead.
        if (own.rank == 0) slice = on_host_of(slice, on_host.data());
        if (own.rank == 0) slice.ids = given.ids.data();
        parallax_request_t* request = push(own, step, slice);
        EXPECT_TRUE(await_sent(own, own.rank == 1 ? kPiece / 4 : 0));
        both.arrive_and_wait();
        if (own.rank == 1) expect_failed_copy(own, request);
        both.arrive_and_wait();
        let_go(own);
        // What was pushed from host memory had been sent.
        const parallax_status_t status = DeviceRank::wait(request);
        EXPECT_TRUE(own.rank == 0 || status == PARALLAX_IO);
        check(parallax_request_release(request));
        cuda_double_poison(static_cast<int>(own.device()), CUDA_SUCCESS);
      },
      false);
}

// Given a rank that is gone in mid-copy, expect the request to end behind the copies, which still
// read what the program gave; with the device's own sums, too, which it reads to the end.
TEST_F(ArrivingRows, ALostRankEndsTheRequestBehindItsCopies) {
  for (const char* by_device : {"0", "1G"}) {
    const EnvironmentVariable least("PARALLAX_DEVICE_COALESCE_MIN_BYTES", by_device);
    std::barrier both(2);
    run_two_as(
        PARALLAX_PLAN_PS, [](DeviceRank& own) { add_rows(own, true); },
        [&](DeviceRank& own) {
          const Given given(own);
          if (own.rank == 0) hold_after(own, 4);
          const uint64_t step = own.begin();
          if (own.rank == 1) {
            both.arrive_and_wait();
            EXPECT_EQ(parallax_abort(own.job, "enough"), PARALLAX_OK);
            return both.arrive_and_wait();
          }
          parallax_request_t* request = push(own, step, given.slice);
          EXPECT_TRUE(await_sent(own, kPiece / 4));
          both.arrive_and_wait();
          EXPECT_EQ(DeviceRank::wait(request, 30), PARALLAX_TIMEOUT) << "a copy reads its buffer";
          let_go(own);
          EXPECT_EQ(DeviceRank::wait(request), PARALLAX_ABORTED) << parallax_last_error();
          check(parallax_request_release(request));
          both.arrive_and_wait();
        },
        false);
  }
}

// Given rows of which some are here, and in the same call a slice of another device whose copy is
// held, expect the call to be taken when that is here.
TEST_F(ArrivingRows, ACallIsTakenOnceAllElseOfItIsHere) {
  const EnvironmentVariable least("PARALLAX_DEVICE_COALESCE_MIN_BYTES", "1G");
  for (const char* whole_max : {"256M", "0"}) {
    SCOPED_TRACE(whole_max);
    const EnvironmentVariable most("PARALLAX_PINNED_CALL_MAX_BYTES", whole_max);
    run(
        1,
        [](DeviceRank& own) {
          add_rows(own, true);
          auto variable = sized<parallax_variable_t>();
          variable.name = "small";
          variable.rows = kCount;
          variable.row_elements = 1;
          variable.rule = PARALLAX_RULE_SGD;
          uint32_t id = 0;
          check(parallax_register(own.job, &variable, &id));
        },
        [](DeviceRank& own) {
          const Given given(own);
          const Current elsewhere(1);
          const DeviceNumbers<float> small(std::vector<float>(kCount, 3));
          parallax_slice_t slices[] = {given.slice, own.slice(1, small.address())};
          slices[1].device = 1;
          cuda_double_hold_after(1, kCopyIn, 0);
          const uint64_t step = own.begin();
          parallax_request_t* request = nullptr;
          check(parallax_push(own.job, step, slices, 2, &request));
          EXPECT_EQ(DeviceRank::wait(request, 30), PARALLAX_TIMEOUT);
          cuda_double_hold_after(1, nullptr, 0);
          DeviceRank::finish({request, end(own, step)});
          std::vector<float> values(kCount);
          auto pulled = sized<parallax_slice_t>();
          pulled.variable = 1;
          pulled.values = values.data();
          parallax_request_t* pull = nullptr;
          check(parallax_pull(own.job, 0, &pulled, 1, &pull));
          DeviceRank::finish({pull});
          EXPECT_TRUE(values == std::vector<float>(kCount, -3));
        });
  }
}

// Given a step that the rank has ended while its rows come, expect it to end behind the last, for
// ranks that wait for the host's rows too.
TEST_F(ArrivingRows, AStepEndsBehindItsLastPiece) {
  const EnvironmentVariable least("PARALLAX_DEVICE_COALESCE_MIN_BYTES", "1G");
  const std::vector<float> expected = negative(sum_of(2));
  std::barrier both(2);
  run(
      2, [](DeviceRank& own) { add_rows(own, true); },
      [&](DeviceRank& own) {
        const Given given(own);
        if (own.rank == 0) hold_after(own, 3);
        both.arrive_and_wait();
        const uint64_t step = own.begin();
        parallax_request_t* request = push(own, step, given.slice);
        parallax_request_t* ended = end(own, step);
        EXPECT_EQ(DeviceRank::wait(ended, 30), PARALLAX_TIMEOUT) << "some was not given";
        both.arrive_and_wait();
        let_go(own);
        DeviceRank::finish({request, ended});
        EXPECT_TRUE(pull_all(own) == expected);
      });
}

// Given an id that is no row, behind pieces or not, expect the host to find it before anything of
// the slice is summed, while its values still come.
TEST_F(ArrivingRows, AnIdThatIsNoRowIsFoundBeforeItsValuesHaveCome) {
  const EnvironmentVariable least("PARALLAX_DEVICE_COALESCE_MIN_BYTES", "1G");
  run(
      1, [](DeviceRank& own) { add_rows(own, true); },
      [](DeviceRank& own) {
        Given given(own);
        given.ids_there.host()[kTokens - 1] = kRows;
        hold_after(own, 3);
        const uint64_t step = own.begin();
        parallax_request_t* request = push(own, step, given.slice);
        EXPECT_EQ(DeviceRank::wait(request, 30), PARALLAX_TIMEOUT) << "a copy reads its buffer";
        let_go(own);
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_INVALID);
        EXPECT_NE(std::string(parallax_last_error()).find("4096"), std::string::npos)
            << parallax_last_error();
        check(parallax_request_release(request));
        DeviceRank::finish({end(own, step)});
        EXPECT_TRUE(pull_all(own) == std::vector<float>(kRows * kWidth));
      });
}

}  // namespace
}  // namespace cuda_double_test::arriving
