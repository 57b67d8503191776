// SPDX-License-Identifier: Apache-2.0
// Results that go to their devices while the rest of them is written. Told by what happens while
// ranks or copies are held, and by the number of copies: of a result that goes as a whole there is
// one, and the last takes all that has not gone.
#include <barrier>

#include "cuda/module_arriving_rows.h"

namespace cuda_double_test::leaving {

using namespace arriving;

namespace {

constexpr const char* kCopyOut = "cuMemcpyHtoDAsync_v2";
constexpr const char* kCopyOutRuns = "cuMemcpyHtoDAsync";
constexpr uint64_t kElements = 4 * kPiece / sizeof(float) + 77;

uint64_t copies_out() { return cuda_double_calls(kCopyOut); }

bool await_to_device(uint64_t bytes) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (cuda_double_bytes_to_device() < bytes) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

uint32_t add_dense(const DeviceRank& own, const char* name, bool managed,
                   uint32_t reduction = PARALLAX_SUM) {
  auto variable = sized<parallax_variable_t>();
  variable.name = name;
  variable.rows = kElements;
  variable.row_elements = 1;
  variable.reduction = reduction;
  if (managed) variable.rule = PARALLAX_RULE_SGD;
  uint32_t id = 0;
  check(parallax_register(own.job, &variable, &id));
  return id;
}

std::vector<float> gradient(uint32_t rank) {
  std::vector<float> made(kElements);
  for (uint64_t i = 0; i < made.size(); ++i) {
    made[i] = static_cast<float>((i * 2654435761u + rank * 40503u) % 100003) / 977.f - 50.f;
  }
  return made;
}

std::vector<float> sum_of_two() {
  std::vector<float> sum = gradient(0);
  const std::vector<float> other = gradient(1);
  for (uint64_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  return sum;
}

parallax_request_t* pull(const DeviceRank& own, uint64_t step, const parallax_slice_t& slice) {
  parallax_request_t* request = nullptr;
  check(parallax_pull(own.job, step, &slice, 1, &request));
  return request;
}

class Leaving : public ModuleArriving {
 protected:
  // Ranks on hosts of their own, or on one.
  static void run_as(uint32_t plan, bool one_host, const Body& variables, const Body& body,
                     bool closes = true) {
    run(
        2, variables, body,
        [plan, one_host](parallax_options_t* options) {
          options->host = options->rank == 0 || one_host ? "one" : "two";
          options->plan_mode = plan;
        },
        closes);
  }
};

// Given gradients whose last copies in are held, expect what is summed of them on its way back,
// in place too; and then all of it.
TEST_F(Leaving, ASumGoesBackBeforeTheLastGradientHasCome) {
  std::barrier both(2);
  run_two([](DeviceRank& own) { add_dense(own, "held", false); },
          [&](DeviceRank& own) {
            const std::vector<float> expected = sum_of_two();
            for (const bool in_place : {true, false}) {
              const DeviceNumbers<float> given(gradient(own.rank)),
                  elsewhere(std::vector<float>(kElements, -9));
              hold_after(own, 4);
              const uint64_t before = cuda_double_bytes_to_device();
              both.arrive_and_wait();
              const uint64_t step = own.begin();
              parallax_slice_t slice = own.slice(0, given.address());
              if (!in_place) slice.into = elsewhere.address();
              parallax_request_t* request = own.reduce(step, slice);
              parallax_request_t* ended = own.end(step);
              EXPECT_TRUE(await_to_device(before + kPiece)) << "nothing goes before the last copy";
              EXPECT_EQ(DeviceRank::wait(request, 0), PARALLAX_TIMEOUT);
              both.arrive_and_wait();
              let_go(own);
              DeviceRank::finish({request, ended});
              EXPECT_TRUE((in_place ? given : elsewhere).values() == expected);
              both.arrive_and_wait();
            }
          });
}

// A mean is made of the sum when that is whole: none of it goes before.
TEST_F(Leaving, AMeanIsThatOfTheWhole) {
  run_two([](DeviceRank& own) { add_dense(own, "held", false, PARALLAX_MEAN_WORLD); },
          [&](DeviceRank& own) {
            std::vector<float> expected = sum_of_two();
            for (float& each : expected) each *= 0.5f;
            const DeviceNumbers<float> given(gradient(own.rank));
            const uint64_t step = own.begin();
            DeviceRank::finish({own.reduce(step, own.slice(0, given.address())), own.end(step)});
            EXPECT_TRUE(given.values() == expected);
          });
}

// Elements of a table that several own, in several copies: each piece as its owners have sent it.
TEST_F(Leaving, PulledElementsGoInPieces) {
  run_as(
      PARALLAX_PLAN_PS, false, [](DeviceRank& own) { add_dense(own, "table", true); },
      [&](DeviceRank& own) {
        const DeviceNumbers<float> given(gradient(own.rank)),
            pulled(std::vector<float>(kElements, -9));
        uint64_t step = own.begin();
        DeviceRank::finish({push(own, step, own.slice(0, given.address())), end(own, step)});
        std::vector<float> expected = sum_of_two();
        for (float& each : expected) each = -each;
        step = own.begin();
        const uint64_t before = copies_out();
        parallax_request_t* request = pull(own, step, own.slice(0, pulled.address()));
        check(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
        EXPECT_GE(copies_out() - before, 2u);
        DeviceRank::finish({request, end(own, step)});
        EXPECT_TRUE(pulled.values() == expected);
      });
}

// Rows with duplicates and padding, that owners send, that are read where they lie and of mirrors:
// the numbers of pulls to host memory, in several copies. And every row of the table.
TEST_F(Leaving, PulledRowsAreThoseOfTheHost) {
  struct Way {
    uint32_t plan;
    bool one_host;
  };
  for (const Way way :
       {Way{PARALLAX_PLAN_PS, false}, Way{PARALLAX_PLAN_PS, true}, Way{PARALLAX_PLAN_AR, true}}) {
    SCOPED_TRACE(std::to_string(way.plan) + (way.one_host ? ", one host" : ", two hosts"));
    run_as(
        way.plan, way.one_host, [](DeviceRank& own) { add_rows(own, true); },
        [&](DeviceRank& own) {
          const Given given(own);
          const uint64_t step = own.begin();
          DeviceRank::finish({push(own, step, given.slice), end(own, step)});
          std::vector<float> host(kTokens * kWidth);
          const DeviceNumbers<float> there(std::vector<float>(kTokens * kWidth, -9));
          const DeviceNumbers<float> all_there(std::vector<float>(kRows * kWidth, -9));
          parallax_slice_t slice = given.slice;
          slice.values = there.address();
          parallax_slice_t on_host = on_host_of(slice, host.data());
          on_host.ids = given.ids.data();
          const uint64_t next = own.begin();
          const uint64_t before = copies_out();
          parallax_request_t* request = pull(own, next, slice);
          check(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
          EXPECT_GE(copies_out() - before, 2u);
          parallax_slice_t every = own.slice(0, all_there.address());
          every.form = PARALLAX_FORM_DENSE;
          DeviceRank::finish(
              {request, pull(own, next, on_host), pull(own, next, every), end(own, next)});
          EXPECT_TRUE(there.values() == host);
          EXPECT_TRUE(all_there.values() == pull_all(own));
        });
  }
}

// Given copies out of which but the first has ended, expect a stream that waits for the result to
// wait for the last of them.
TEST_F(Leaving, AStreamWaitsForTheLastPiece) {
  run(
      1, [](DeviceRank& own) { add_rows(own, true); },
      [](DeviceRank& own) {
        const Given given(own);
        uint64_t step = own.begin();
        DeviceRank::finish({push(own, step, given.slice), end(own, step)});
        const std::vector<float> none(kTokens * kWidth, -9);
        const DeviceNumbers<float> there(none), seen(none);
        parallax_slice_t slice = given.slice;
        slice.values = there.address();
        step = own.begin();
        cuda_double_hold_after(static_cast<int>(own.device()), kCopyOutRuns, 1);
        parallax_request_t* request = pull(own, step, slice);
        const Stream reader;
        EXPECT_EQ(
            parallax_stream_wait(&request, 1, own.device(), reader.get(), PARALLAX_WAIT_DEFAULT),
            PARALLAX_OK)
            << parallax_last_error();
        EXPECT_EQ(cuMemcpyDtoDAsync(seen.pointer(), there.pointer(), none.size() * sizeof(float),
                                    reader.get()),
                  CUDA_SUCCESS);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_EQ(cuStreamQuery(reader.get()), CUDA_ERROR_NOT_READY);
        EXPECT_EQ(DeviceRank::wait(request, 0), PARALLAX_TIMEOUT);
        let_go(own);
        DeviceRank::finish({request, end(own, step)});
        EXPECT_EQ(cuStreamSynchronize(reader.get()), CUDA_SUCCESS);
        EXPECT_TRUE(seen.values() == there.values());
        EXPECT_FALSE(seen.values() == none);
      });
}

// Given a device that fails while a piece goes out, expect the request's IO, and the job to go on.
TEST_F(Leaving, AnErrorOfAPieceIsTheRequests) {
  run(
      1, [](DeviceRank& own) { add_rows(own, true); },
      [](DeviceRank& own) {
        const Given given(own);
        uint64_t step = own.begin();
        DeviceRank::finish({push(own, step, given.slice), end(own, step)});
        step = own.begin();
        cuda_double_hold_after(static_cast<int>(own.device()), kCopyOutRuns, 0);
        parallax_request_t* request = pull(own, step, given.slice);
        EXPECT_EQ(DeviceRank::wait(request, 30), PARALLAX_TIMEOUT);
        cuda_double_poison(static_cast<int>(own.device()), CUDA_ERROR_ILLEGAL_ADDRESS);
        let_go(own);
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_IO);
        EXPECT_NE(std::string(parallax_last_error()).find("copying its results to device 0"),
                  std::string::npos)
            << parallax_last_error();
        check(parallax_request_release(request));
        DeviceRank::finish({end(own, step)});
        EXPECT_EQ(pull_all(own).size(), kRows * kWidth);
        cuda_double_poison(static_cast<int>(own.device()), CUDA_SUCCESS);
      });
}

// Given a rank that is lost while gradients come in and sums go out, expect requests to end behind
// the copies of both.
TEST_F(Leaving, ALostRankEndsTheRequestBehindItsPieces) {
  std::barrier both(2);
  run_two([](DeviceRank& own) { add_dense(own, "held", false); },
          [&](DeviceRank& own) {
            const DeviceNumbers<float> given(gradient(own.rank));
            const uint64_t before = cuda_double_bytes_to_device();
            hold_after(own, 4);
            cuda_double_hold_operation(kCopyOutRuns);
            both.arrive_and_wait();
            const uint64_t step = own.begin();
            parallax_request_t* request = own.reduce(step, own.slice(0, given.address()));
            // One rank's are 4 at most, so that each has one.
            EXPECT_TRUE(await_to_device(before + 5 * kPiece));
            both.arrive_and_wait();
            if (own.rank == 1) {
              EXPECT_EQ(parallax_abort(own.job, "enough"), PARALLAX_OK);
            }
            let_go(own);
            EXPECT_EQ(DeviceRank::wait(request, 30), PARALLAX_TIMEOUT)
                << "a piece is written to it";
            both.arrive_and_wait();
            cuda_double_hold_operation(nullptr);
            EXPECT_EQ(DeviceRank::wait(request), PARALLAX_ABORTED) << parallax_last_error();
            check(parallax_request_release(request));
          },
          false);
}

}  // namespace
}  // namespace cuda_double_test::leaving
