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
  double report(const std::string& what, double bytes, double seconds) {
    const double share = bytes / seconds / copy_bandwidth();
    if (on_double()) return 1;
    std::printf("report: %s: %.0f us, %.0f GB/s, %.0f%% of a copy\n", what.c_str(), seconds * 1e6,
                bytes / seconds / 1e9, share * 100);
    return share;
  }
  // Every row is read once, every sum written once; the ids with what sorts them count for nothing.
  double coalesce(Spread spread, uint32_t count, uint64_t table_rows, uint32_t elements,
                  uint32_t dtype) {
    std::mt19937_64 random(1);
    const Ids ids = draw_ids(random, spread, count, table_rows);
    const size_t row_bytes = size_t{elements} * bytes_of_dtype(dtype);
    const DeviceBytes given_ids(device(), ids), bad(device(), none_bad());
    const DeviceBytes rows(device(), count * row_bytes);
    const DeviceBytes unique_ids(device(), ids.size() * sizeof(int64_t)), unique_count(device(), 4);
    const DeviceBytes sums(device(), size_t{count} * elements * sizeof(float));
    const DeviceBytes work(device(), coalesce_work_bytes(count, sizeof(int64_t)));
    const DeviceIds given = {given_ids.get(), sizeof(int64_t), count, table_rows, 0, bad.get()};
    const double seconds = best_seconds([&] {
      EXPECT_EQ(device().launcher.coalesce(
                    device().stream, given, {rows.get(), dtype, elements},
                    {unique_ids.get(), sums.get(), unique_count.get(), work.get()}),
                CUDA_SUCCESS);
    });
    const uint32_t unique = unique_count.values<uint32_t>(1)[0];
    const double bytes = static_cast<double>(count) * static_cast<double>(row_bytes) +
                         static_cast<double>(unique) * elements * sizeof(float);
    std::string name = "coalesce " + std::to_string(count) + " rows of " +
                       std::to_string(elements) + " " + dtype_name(dtype) + ", ";
    name += spread == Spread::kZipf ? "Zipf(1), " : "uniform, ";
    return report(name + std::to_string(unique) + " distinct", bytes, seconds);
  }
};

// Each id on average twice.
TEST_F(Bandwidth, CoalesceIsAShareOfACopy) {
  const uint32_t count = on_double() ? 500 : 400'000;
  EXPECT_GE(coalesce(Spread::kUniform, count, count / 2, 256, PARALLAX_F32), kShareLeast);
}

// Where rows are short or few the sort of their ids takes most of the time: reported, not judged.
TEST_F(Bandwidth, OfOtherShapes) {
  const uint32_t few = on_double() ? 300 : 20'000, many = on_double() ? 600 : 2'000'000;
  for (const Spread spread : {Spread::kUniform, Spread::kZipf}) {
    coalesce(spread, few, 793'470, 512, PARALLAX_F32);
    coalesce(spread, many / 5, 793'470, 512, PARALLAX_F32);
    coalesce(spread, many / 5, 793'470, 512, PARALLAX_BF16);
    coalesce(spread, many, 20'000'000, 64, PARALLAX_F32);
    coalesce(spread, many, 20'000'000, 16, PARALLAX_F32);
  }
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
  EXPECT_GE(report("scatter_add", 3.0 * count * elements * sizeof(float), seconds), kShareLeast);
}

}  // namespace
}  // namespace parallax::kernels
