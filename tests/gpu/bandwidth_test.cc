// SPDX-License-Identifier: Apache-2.0
// Kernels of rows as a share of what a device copies: bytes that have to move, by the best of some
// runs, beside a copy from device memory to device memory of 256 MiB. Judged on a device; on the
// double, which has no bandwidth, they only run.
#include <chrono>
#include <functional>
#include <limits>
#include <numeric>

#include "cuda/on_device/rows.h"
#include "cuda/on_device/test_device.h"

namespace parallax::kernels {
namespace {

constexpr double kShareLeast = 0.6;

bool on_double() { return std::getenv("CUDA_DOUBLE_DEVICES") != nullptr; }

class Bandwidth : public KernelTest {
 protected:
  // Seconds of the shortest run, each behind all that was before.
  double best_seconds(const std::function<void()>& enqueue) {
    using Clock = std::chrono::steady_clock;
    double best = std::numeric_limits<double>::max();
    for (int i = 0; i < (on_double() ? 1 : 20); ++i) {
      device().wait();
      const Clock::time_point start = Clock::now();
      enqueue();
      device().wait();
      best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
    return best;
  }
  // Of a copy: bytes read and bytes written, a second.
  double copy_bandwidth() {
    const size_t bytes = size_t{on_double() ? 1u : 256u} << 20;
    const DeviceBytes from(device(), bytes), to(device(), bytes);
    const double seconds = best_seconds([&] {
      EXPECT_EQ(device().driver.cuMemcpyDtoDAsync_v2(to.get(), from.get(), bytes, device().stream),
                CUDA_SUCCESS);
    });
    return 2.0 * static_cast<double>(bytes) / seconds;
  }
  void judge(const char* what, double bytes, double seconds) {
    const double share = bytes / seconds / copy_bandwidth();
    if (on_double()) return;
    std::printf("report: %s: %.0f GB/s, %.0f%% of a copy\n", what, bytes / seconds / 1e9,
                share * 100);
    EXPECT_GE(share, kShareLeast) << what;
  }
};

// Rows of 256 floats, each id on average twice: every row is read once, every sum written once, and
// the ids with what sorts them count for nothing.
TEST_F(Bandwidth, CoalesceIsAShareOfACopy) {
  const uint32_t count = on_double() ? 500 : 400'000, elements = 256;
  const uint64_t table_rows = count / 2;
  std::mt19937_64 random(1);
  const Ids ids = draw_ids(random, Spread::kUniform, count, table_rows);
  const DeviceBytes given_ids(device(), ids), bad(device(), none_bad());
  const DeviceBytes rows(device(), size_t{count} * elements * sizeof(float));
  const DeviceBytes unique_ids(device(), ids.size() * sizeof(int64_t)), unique_count(device(), 4);
  const DeviceBytes sums(device(), size_t{count} * elements * sizeof(float));
  const DeviceBytes work(device(), coalesce_work_bytes(count, sizeof(int64_t)));
  const DeviceIds given = {given_ids.get(), sizeof(int64_t), count, table_rows, 0, bad.get()};
  const double seconds = best_seconds([&] {
    EXPECT_EQ(
        device().launcher.coalesce(device().stream, given, {rows.get(), PARALLAX_F32, elements},
                                   {unique_ids.get(), sums.get(), unique_count.get(), work.get()}),
        CUDA_SUCCESS);
  });
  const uint32_t unique = unique_count.values<uint32_t>(1)[0];
  judge("coalesce", (static_cast<double>(count) + unique) * elements * sizeof(float), seconds);
}

// Rows of 256 floats added to as many of a table: read twice, written once.
TEST_F(Bandwidth, ScatterAddIsAShareOfACopy) {
  const uint32_t count = on_double() ? 500 : 400'000, elements = 256;
  const uint64_t table_rows = uint64_t{count} * 2 + 1 + count % 3;
  std::mt19937_64 random(2);
  const Ids ids = draw_ids(random, Spread::kDistinct, count, table_rows);
  const DeviceBytes given_ids(device(), ids), bad(device(), none_bad());
  const DeviceBytes table(device(), table_rows * elements * sizeof(float));
  const DeviceBytes sums(device(), size_t{count} * elements * sizeof(float));
  const DeviceIds given = {given_ids.get(), sizeof(int64_t), count, table_rows, 0, bad.get()};
  const double seconds = best_seconds([&] {
    EXPECT_EQ(device().launcher.scatter_add(device().stream, {table.get(), PARALLAX_F32, elements},
                                            given, sums.get()),
              CUDA_SUCCESS);
  });
  EXPECT_EQ(bad.values<uint32_t>(1), none_bad());
  judge("scatter_add", 3.0 * count * elements * sizeof(float), seconds);
}

}  // namespace
}  // namespace parallax::kernels
