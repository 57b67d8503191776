// SPDX-License-Identifier: Apache-2.0
// Update rules on a device against those of the host, bit for bit, over several steps.
#include "cuda/on_device/rows.h"
#include "cuda/on_device/test_device.h"
#include "server/update_rules.h"

namespace parallax::kernels {

class UpdateKernels : public KernelTest {
 protected:
  static constexpr uint64_t kRows = 40;

  struct Table {
    std::vector<float> value, state0, state1;
  };

  static std::vector<float> draw(std::mt19937_64& random, size_t count) {
    const std::vector<std::byte> bytes = draw_numbers(random, PARALLAX_F32, count);
    std::vector<float> values(count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  // As the server's table applies a step.
  static void apply(const UpdateArguments& with, Table& table, const Ids& ids,
                    const std::vector<float>& gradients, uint32_t elements) {
    const Decay<float> decay(with);
    const bool by_row = with.rule == PARALLAX_RULE_ROWWISE_ADAGRAD;
    with_rule<float>(with, [&](const auto& rule) {
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0) continue;
        const size_t row = static_cast<size_t>(ids[i]), at = row * elements;
        update_row(
            rule, decay,
            RowParts<float>{table.value.data() + at, table.state0.data() + (by_row ? row : at),
                            table.state1.data() + at, gradients.data() + i * elements, elements},
            static_cast<float>(decay.sign * with.scale));
      }
    });
  }

  void expect_rule(UpdateArguments with, uint32_t elements, bool wide, bool dense) {
    std::mt19937_64 random(elements + with.rule);
    Table expected;
    expected.value = draw(random, kRows * elements);
    expected.state0.resize(kRows * elements);
    expected.state1.resize(kRows * elements);
    const DeviceBytes value(device(), expected.value), state0(device(), expected.state0);
    const DeviceBytes state1(device(), expected.state1), bad(device(), none_bad());
    for (with.updates = 1; with.updates <= 3; ++with.updates) {
      Ids ids = draw_ids(random, Spread::kDistinct, dense ? kRows : 25, kRows);
      for (size_t i = 0; i < ids.size() && dense; ++i) ids[i] = static_cast<int64_t>(i);
      if (!dense) ids[7] = -1;
      const std::vector<float> gradients = draw(random, ids.size() * elements);
      const DeviceBytes wide_ids(device(), ids), narrow(device(), narrow_ids(ids));
      const DeviceBytes given(device(), gradients);
      const CUdeviceptr on_device = dense ? 0 : (wide ? wide_ids : narrow).get();
      ASSERT_EQ(
          device().launcher.update(
              device().stream, with.rule, rule_numbers(with),
              {on_device, wide ? 8u : 4u, static_cast<uint32_t>(ids.size()), kRows, 0, bad.get()},
              elements, value.get(), state0.get(), state1.get(), given.get()),
          CUDA_SUCCESS);
      apply(with, expected, ids, gradients, elements);
    }
    const size_t count = kRows * elements;
    ASSERT_TRUE(same_bits(value.values<float>(count), expected.value));
    ASSERT_TRUE(same_bits(state0.values<float>(count), expected.state0));
    ASSERT_TRUE(same_bits(state1.values<float>(count), expected.state1));
  }

  // The rule by itself and with everything that the rates of a step can do.
  void expect_rule_and_rates(const UpdateArguments& rule) {
    for (const uint32_t elements : {1, 3, 64, 255, 256, 257, 1000}) {
      for (const int rates : {0, 1, 2, 3}) {
        SCOPED_TRACE(testing::Message() << elements << " elements, rates " << rates);
        UpdateArguments with = rule;
        with.scale = 1.0 / 3;
        if (rates > 0) with.weight_decay = 0.01;
        with.decoupled = rates == 2;
        with.maximize = rates == 3;
        expect_rule(with, elements, elements % 2 != 0, rates == 1);
      }
    }
  }

  static UpdateArguments arguments(uint32_t rule) {
    UpdateArguments with;
    with.rule = rule;
    with.learning_rate = 0.03;
    with.epsilon = 1e-8;
    with.momentum = 0.9;
    with.beta1 = 0.9;
    with.beta2 = 0.999;
    return with;
  }
};

TEST_F(UpdateKernels, Sgd) { expect_rule_and_rates(arguments(PARALLAX_RULE_SGD)); }

TEST_F(UpdateKernels, Momentum) {
  UpdateArguments with = arguments(PARALLAX_RULE_MOMENTUM);
  expect_rule_and_rates(with);
  with.nesterov = true;
  expect_rule_and_rates(with);
}

TEST_F(UpdateKernels, Adagrad) { expect_rule_and_rates(arguments(PARALLAX_RULE_ADAGRAD)); }

TEST_F(UpdateKernels, RowwiseAdagrad) {
  expect_rule_and_rates(arguments(PARALLAX_RULE_ROWWISE_ADAGRAD));
}

TEST_F(UpdateKernels, Adam) {
  UpdateArguments with = arguments(PARALLAX_RULE_ADAM);
  expect_rule_and_rates(with);
  with.sparse = false;
  expect_rule_and_rates(with);
}

TEST_F(UpdateKernels, ThereIsNoKernelOfOtherRules) {
  for (const uint32_t rule : {PARALLAX_RULE_SUM, PARALLAX_RULE_FTRL, PARALLAX_RULE_CALLBACK}) {
    EXPECT_EQ(
        device().launcher.update(device().stream, rule, {}, {0, 8, 1, 1, 0, 0}, 1, 0, 0, 0, 0),
        CUDA_ERROR_INVALID_VALUE);
  }
}

// Ids that coalescing gave, and their number, without either coming back to the host.
TEST_F(UpdateKernels, FollowsCoalescingOnTheStream) {
  std::mt19937_64 random(6);
  constexpr uint32_t kElements = 17;
  const Ids ids = draw_ids(random, Spread::kSkewed, 300, kRows);
  const std::vector<std::byte> rows = draw_numbers(random, PARALLAX_F32, ids.size() * kElements);
  Table expected;
  expected.value = draw(random, kRows * kElements);
  expected.state0.resize(kRows * kElements);
  expected.state1.resize(kRows * kElements);
  const DeviceBytes value(device(), expected.value), given(device(), ids), values(device(), rows);
  const DeviceBytes unique(device(), ids.size() * 8), count(device(), 4), bad(device(), none_bad());
  const DeviceBytes sums(device(), ids.size() * kElements * 4);
  const DeviceBytes work(device(), coalesce_work_bytes(300, 8));
  const UpdateArguments with = arguments(PARALLAX_RULE_SGD);
  ASSERT_EQ(device().launcher.coalesce(device().stream, {given.get(), 8, 300, kRows, 0, bad.get()},
                                       {values.get(), PARALLAX_F32, kElements},
                                       {unique.get(), sums.get(), count.get(), work.get()}),
            CUDA_SUCCESS);
  ASSERT_EQ(device().launcher.update(device().stream, with.rule, rule_numbers(with),
                                     {unique.get(), 8, 300, kRows, count.get(), bad.get()},
                                     kElements, value.get(), 0, 0, sums.get()),
            CUDA_SUCCESS);
  for (const auto& [id, sum] : sums_of(ids, rows, PARALLAX_F32, kElements)) {
    apply(with, expected, {id}, sum, kElements);
  }
  EXPECT_TRUE(same_bits(value.values<float>(kRows * kElements), expected.value));
}

}  // namespace parallax::kernels
