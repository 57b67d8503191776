// SPDX-License-Identifier: Apache-2.0
// Dense gradients that lie on devices and go by host memory: what has come of one is on the wire
// while the rest is copied. Told by what happens while copies are held, not by clocks.
#include <barrier>

#include "cuda/module_arriving.h"

namespace cuda_double_test::arriving {
namespace {

constexpr uint64_t kElements = 4 * kPiece / sizeof(float) + 77;  // five pieces, the last one small

uint32_t add(const DeviceRank& own, bool managed, uint32_t dtype = PARALLAX_F32) {
  auto variable = sized<parallax_variable_t>();
  variable.name = managed ? "table" : "held";
  variable.rows = kElements;
  variable.row_elements = 1;
  variable.dtype = dtype;
  if (managed) variable.rule = PARALLAX_RULE_SGD;
  uint32_t id = 0;
  check(parallax_register(own.job, &variable, &id));
  return id;
}

// Sums of two of them have the same bits in either order.
std::vector<float> gradient(uint32_t rank, uint64_t count = kElements) {
  std::vector<float> made(count);
  for (uint64_t i = 0; i < count; ++i) {
    made[i] = static_cast<float>((i * 2654435761u + rank * 40503u) % 100003) / 977.f - 50.f;
  }
  return made;
}

// Given copies of which the last are held, expect the first ones to have been sent, into results in
// place and elsewhere; and then the bits of one process.
void reduce_ahead(const DeviceRank& own, bool in_place) {
  const DeviceNumbers<float> given(gradient(own.rank)),
      elsewhere(std::vector<float>(kElements, -9));
  std::vector<float> expected = gradient(0);
  const std::vector<float> other = gradient(1);
  for (uint64_t i = 0; i < kElements; ++i) expected[i] += other[i];
  const Stream stream;
  const uint64_t sent = wire_sent(own);
  hold_after(own, 4);
  const uint64_t step = own.begin();
  parallax_slice_t slice = own.slice(0, given.address(), stream.get());
  if (!in_place) slice.into = elsewhere.address();
  parallax_request_t* request = own.reduce(step, slice);
  parallax_request_t* ended = own.end(step);
  EXPECT_TRUE(await_sent(own, sent + kPiece / 2)) << "nothing goes before the last copy";
  EXPECT_EQ(DeviceRank::wait(request, 0), PARALLAX_TIMEOUT);
  let_go(own);
  DeviceRank::finish({request, ended});
  EXPECT_TRUE((in_place ? given : elsewhere).values() == expected);
  if (!in_place) {
    EXPECT_TRUE(given.values() == gradient(own.rank)) << "kept";
  }
}

TEST_F(ModuleArriving, AReduceIsOnTheWireBeforeItsLastCopyHasEnded) {
  for (const char* whole_max : {"256M", "0"}) {  // pinned as a whole; through pieces
    SCOPED_TRACE(whole_max);
    const EnvironmentVariable most("PARALLAX_PINNED_CALL_MAX_BYTES", whole_max);
    run_two([](DeviceRank& own) { add(own, false); },
            [](DeviceRank& own) {
              for (const bool in_place : {true, false, true}) reduce_ahead(own, in_place);
            });
  }
}

TEST_F(ModuleArriving, APushIsOnTheWireBeforeItsLastCopyHasEnded) {
  run_two([](DeviceRank& own) { add(own, true); },
          [](DeviceRank& own) {
            const DeviceNumbers<float> given(gradient(own.rank)), pulled(gradient(own.rank));
            std::vector<float> expected = gradient(0);
            const std::vector<float> other = gradient(1);
            for (uint64_t i = 0; i < kElements; ++i) expected[i] = -(expected[i] + other[i]);
            hold_after(own, 4);
            const uint64_t step = own.begin();
            const parallax_slice_t slice = own.slice(0, given.address());
            parallax_request_t* pushed = nullptr;
            check(parallax_push(own.job, step, &slice, 1, &pushed));
            auto options = sized<parallax_step_end_options_t>();
            options.learning_rate = 1;
            parallax_request_t* ended = nullptr;
            check(parallax_step_end(own.job, step, &options, &ended));
            EXPECT_TRUE(await_sent(own, kPiece / 2)) << "nothing goes before the last copy";
            EXPECT_EQ(DeviceRank::wait(pushed, 0), PARALLAX_TIMEOUT) << "it is borrowed";
            let_go(own);
            DeviceRank::finish({pushed, ended});
            const uint64_t next = own.begin();
            const parallax_slice_t pull = own.slice(0, pulled.address());
            parallax_request_t* request = nullptr;
            check(parallax_pull(own.job, next, &pull, 1, &request));
            DeviceRank::finish({request, own.end(next, 1)});
            EXPECT_TRUE(pulled.values() == expected);
          });
}

// Given a rank of a host whose copies are held, and a variable that nobody gives, of which ranks
// are to hear, expect the other to hear it behind the last piece, and no piece to be left out.
TEST_F(ModuleArriving, AStepEndsBehindItsLastPiece) {
  std::barrier both(2);
  run(
      2,
      [](DeviceRank& own) {
        add(own, false);
        own.add_on_host("never given");
      },
      [&](DeviceRank& own) {
        std::vector<float> expected = gradient(0);
        const std::vector<float> other = gradient(1);
        for (uint64_t i = 0; i < kElements; ++i) expected[i] += other[i];
        for (const uint32_t holder : {0, 1}) {
          const DeviceNumbers<float> given(gradient(own.rank));
          if (own.rank == holder) hold_after(own, 1);
          both.arrive_and_wait();
          const uint64_t step = own.begin();
          parallax_request_t* request = own.reduce(step, own.slice(0, given.address()));
          parallax_request_t* ended = own.end(step);
          EXPECT_EQ(DeviceRank::wait(request, 20), PARALLAX_TIMEOUT) << "some was not given";
          both.arrive_and_wait();
          let_go(own);
          DeviceRank::finish({request, ended});
          EXPECT_TRUE(given.values() == expected) << holder;
        }
      });
}

// Several in a call, of any order of pieces, in dtypes that are converted on the way, with sums in
// an order: the bits of slices in host memory.
TEST_F(ModuleArriving, TheBitsAreThoseOfTheHost) {
  for (const uint32_t deterministic : {0, 1}) {
    cuda_double_set_delay(deterministic + 3, 300);
    std::vector<std::vector<float>> sums[2];
    for (const bool on_device : {false, true}) {
      std::vector<std::vector<float>>& all = sums[on_device ? 1 : 0];
      all.resize(3);
      run(
          3,
          [](DeviceRank& own) {
            add(own, false);
            auto variable = sized<parallax_variable_t>();
            variable.name = "second";
            variable.rows = kElements;
            variable.row_elements = 1;
            variable.reduction = PARALLAX_MEAN_WORLD;
            uint32_t id = 0;
            check(parallax_register(own.job, &variable, &id));
          },
          [&](DeviceRank& own) {
            std::vector<float> one = gradient(own.rank), two = gradient(own.rank + 7);
            // Whatever their order the sums of whole numbers are the same.
            if (deterministic == 0) {
              for (float& each : one) each = static_cast<float>(static_cast<int>(each));
              for (float& each : two) each = static_cast<float>(static_cast<int>(each));
            }
            const DeviceNumbers<float> first(one), second(two);
            parallax_slice_t slices[] = {own.slice(1, second.address()),
                                         own.slice(0, first.address())};
            if (!on_device) {
              for (parallax_slice_t& each : slices) {
                each.memory = PARALLAX_MEMORY_HOST;
                each.device = 0;
              }
              slices[0].values = two.data();
              slices[1].values = one.data();
            }
            const uint64_t step = own.begin();
            parallax_request_t* request = nullptr;
            check(parallax_reduce(own.job, step, slices, 2, &request));
            DeviceRank::finish({request, own.end(step)});
            std::vector<float> got = on_device ? first.values() : one;
            const std::vector<float> more = on_device ? second.values() : two;
            got.insert(got.end(), more.begin(), more.end());
            all[own.rank] = got;
          },
          [&](parallax_options_t* options) {
            static const char* const kHosts[] = {"one", "two", "two"};
            options->host = kHosts[options->rank];
            options->deterministic = deterministic;
          });
    }
    EXPECT_TRUE(sums[0] == sums[1]) << deterministic;
    cuda_double_set_delay(0, 0);
  }
}

// Given a device that fails when others have a part, expect the job to end with its words, and
// nothing to be left.
TEST_F(ModuleArriving, AnErrorInMidCopyFailsTheJob) {
  std::barrier both(2);
  run_two([](DeviceRank& own) { add(own, false); },
          [&](DeviceRank& own) {
            const DeviceNumbers<float> given(gradient(own.rank));
            std::vector<float> on_host = gradient(own.rank);
            hold_after(own, 3);
            const uint64_t step = own.begin();
            parallax_slice_t slice = own.slice(0, given.address());
            // The other has nothing under way that could fail instead.
            if (own.rank == 0) slice = on_host_of(slice, on_host.data());
            parallax_request_t* request = own.reduce(step, slice);
            EXPECT_TRUE(await_sent(own, own.rank == 1 ? kPiece / 2 : 0));
            both.arrive_and_wait();
            if (own.rank == 1) expect_failed_copy(own, request);
            both.arrive_and_wait();
            let_go(own);
            EXPECT_NE(DeviceRank::wait(request), PARALLAX_OK);
            check(parallax_request_release(request));
            cuda_double_poison(static_cast<int>(own.device()), CUDA_SUCCESS);
          },
          false);
}

// Given a rank that is gone in mid-copy, expect the request to end behind the copies, which still
// read what the program gave.
TEST_F(ModuleArriving, ALostRankEndsTheRequestBehindItsCopies) {
  std::barrier both(2);
  run_two(
      [](DeviceRank& own) {
        add(own, false);
        own.add_on_host("on the host");
      },
      [&](DeviceRank& own) {
        const DeviceNumbers<float> given(gradient(own.rank));
        if (own.rank == 0) hold_after(own, 4);
        const uint64_t step = own.begin();
        if (own.rank == 1) {
          both.arrive_and_wait();
          EXPECT_EQ(parallax_abort(own.job, "enough"), PARALLAX_OK);
          return both.arrive_and_wait();
        }
        parallax_request_t* request = own.reduce(step, own.slice(0, given.address()));
        EXPECT_TRUE(await_sent(own, kPiece / 2));
        std::vector<float> values(kCount, 1);
        auto slice = sized<parallax_slice_t>();
        slice.variable = 1;
        slice.values = values.data();
        parallax_request_t* on_host = own.reduce(step, slice);
        both.arrive_and_wait();
        EXPECT_EQ(DeviceRank::wait(on_host), PARALLAX_ABORTED) << "the job has failed here";
        EXPECT_EQ(DeviceRank::wait(request, 0), PARALLAX_TIMEOUT) << "a copy reads its buffer";
        let_go(own);
        EXPECT_EQ(DeviceRank::wait(request), PARALLAX_ABORTED) << parallax_last_error();
        for (parallax_request_t* each : {request, on_host}) check(parallax_request_release(each));
        both.arrive_and_wait();
      },
      false);
}

}  // namespace
}  // namespace cuda_double_test::arriving
