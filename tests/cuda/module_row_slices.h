// SPDX-License-Identifier: Apache-2.0
// Steps with slices of rows, once in host memory and once on devices: what every rank sees of them,
// which is to be the same bits. Numbers are such that every order of summing has bits of its own.
#ifndef PARALLAX_TESTS_CUDA_MODULE_ROW_SLICES_H_
#define PARALLAX_TESTS_CUDA_MODULE_ROW_SLICES_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/number.h"
#include "cuda/module_ranks.h"

namespace cuda_rows_test {

using namespace cuda_double_test;

// What is in a call before its slices of rows on devices, of the same variable.
enum class Before { kNothing, kEveryRow, kRowsInHostMemory };

// What is given, and how.
struct RowSteps {
  uint32_t dtype = PARALLAX_F32;  // of the variable
  uint32_t as = PARALLAX_F32;     // of the slices
  bool managed = true;            // pushed, else reduced
  bool narrow_ids = false;
  uint32_t reduction = PARALLAX_SUM;
  uint32_t calls = 1;  // in a step, with accumulate where there are several
  uint32_t tied = 1;   // slices in a call
  Before before = Before::kNothing;
  uint32_t world = 1;
  uint32_t plan = PARALLAX_PLAN_AUTO;
  uint32_t deterministic = 1;
  uint32_t refuse_nonfinite = 0;
  uint64_t distinct = 23;  // ids that occur; 0: padding alone
  uint64_t count = 120;    // rows of a slice
  uint64_t width = 7;
};
inline constexpr uint64_t kTableRows = 97;
inline constexpr int kRowSteps = 3;

using Bytes = std::vector<uint8_t>;

// Numbers drawn from a place in a training.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  float number() {
    const uint32_t kind = next() % 16;
    if (kind == 0) return -0.0f;
    const float mantissa = static_cast<float>(static_cast<int32_t>(next() % 20001) - 10000) / 7919;
    return kind == 1 ? mantissa * 1024 : kind == 2 ? mantissa / 4096 : mantissa;
  }

 private:
  uint64_t state_;
};

inline void append(Bytes* to, const void* from, size_t bytes) {
  const auto* first = static_cast<const uint8_t*>(from);
  to->insert(to->end(), first, first + bytes);
}

inline void append_number(Bytes* to, float number, uint32_t dtype) {
  const double wide = static_cast<double>(number) * (1 + 1e-9);  // is rounded as a float
  const uint16_t half = parallax::to_half(number).bits, brain = parallax::to_bfloat(number).bits;
  if (dtype == PARALLAX_F32) append(to, &number, sizeof number);
  if (dtype == PARALLAX_F64) append(to, &wide, sizeof wide);
  if (dtype == PARALLAX_F16) append(to, &half, sizeof half);
  if (dtype == PARALLAX_BF16) append(to, &brain, sizeof brain);
}

// A slice's ids and values, in host memory.
struct GivenRows {
  Bytes ids, values;
  GivenRows(const RowSteps& of, uint64_t seed) {
    Draw draw(seed);
    for (uint64_t i = 0; i < of.count; ++i) {
      int64_t id = of.distinct == 0 ? -1 : static_cast<int64_t>(draw.next() % of.distinct * 4 + 1);
      if (draw.next() % 9 == 0) id = -1;
      const auto narrow = static_cast<int32_t>(id);
      append(&ids, of.narrow_ids ? static_cast<const void*>(&narrow) : &id,
             of.narrow_ids ? sizeof narrow : sizeof id);
    }
    for (uint64_t i = 0; i < of.count * of.width; ++i) append_number(&values, draw.number(), of.as);
  }
};

// The same on a device, where work on a stream writes it before the call.
class RowsOnDevice {
 public:
  RowsOnDevice(const GivenRows& given, CUstream stream)
      : ids_from_(given.ids),
        values_from_(given.values),
        ids_(Bytes(given.ids.size(), 0x7e)),
        values_(Bytes(given.values.size(), 0x7e)) {
    EXPECT_EQ(cuMemcpyDtoDAsync(ids_.pointer(), ids_from_.pointer(), given.ids.size(), stream),
              CUDA_SUCCESS);
    EXPECT_EQ(
        cuMemcpyDtoDAsync(values_.pointer(), values_from_.pointer(), given.values.size(), stream),
        CUDA_SUCCESS);
  }
  void* ids() const { return ids_.address(); }
  void* values() const { return values_.address(); }

 private:
  DeviceNumbers<uint8_t> ids_from_, values_from_, ids_, values_;
};

class RowJobs : public NcclJobs {
 protected:
  static void add(const RowSteps& of, parallax_job_t* job) {
    uint32_t id = 0;
    auto variable = sized<parallax_variable_t>();
    variable.name = "rows";
    variable.rows = kTableRows;
    variable.row_elements = of.width;
    variable.rows_max = of.count * of.tied * of.calls;
    variable.tag = PARALLAX_SPARSE;
    variable.dtype = of.dtype;
    variable.reduction = of.reduction;
    variable.accumulate = of.calls > 1 ? 1 : 0;
    variable.refuse_nonfinite = of.refuse_nonfinite;
    if (of.managed) {
      variable.rule = PARALLAX_RULE_SGD;
      variable.init_low = 1;
    }
    check(parallax_register(job, &variable, &id));
  }

  // The slices of a call, which borrow what it keeps.
  class Call {
   public:
    Call(const RowSteps& of, const DeviceRank& rank, uint64_t seed, bool on_device, bool more,
         CUstream stream) {
      if (of.before == Before::kEveryRow) add_every_row(of, rank, seed, on_device, stream);
      for (uint32_t i = 0; i < of.tied; ++i) {
        given_.push_back(std::make_unique<GivenRows>(of, seed * 31 + i));
        void *ids = given_.back()->ids.data(), *values = given_.back()->values.data();
        auto slice = sized<parallax_slice_t>();
        if (on_device && (i > 0 || of.before != Before::kRowsInHostMemory)) {
          there_.push_back(std::make_unique<RowsOnDevice>(*given_.back(), stream));
          ids = there_.back()->ids();
          values = there_.back()->values();
          slice.memory = PARALLAX_MEMORY_CUDA;
          slice.device = rank.rank;
          slice.stream = stream;
        }
        slice.form = PARALLAX_FORM_ROWS;
        slice.row_count = of.count;
        slice.values = values;
        slice.as_dtype = PARALLAX_AS(of.as);
        slice.more = more ? 1 : 0;
        if (of.narrow_ids) {
          slice.ids_i32 = static_cast<const int32_t*>(ids);
        } else {
          slice.ids = static_cast<const int64_t*>(ids);
        }
        slices_.push_back(slice);
      }
    }
    const std::vector<parallax_slice_t>& slices() const { return slices_; }
    parallax_request_t* make(const RowSteps& of, const DeviceRank& rank, uint64_t step) const {
      parallax_request_t* request = nullptr;
      check((of.managed ? parallax_push : parallax_reduce)(rank.job, step, slices_.data(),
                                                           slices_.size(), &request));
      return request;
    }

   private:
    void add_every_row(const RowSteps& of, const DeviceRank& rank, uint64_t seed, bool on_device,
                       CUstream stream) {
      RowSteps all = of;
      all.count = kTableRows;
      given_.push_back(std::make_unique<GivenRows>(all, seed * 31 + 17));
      auto slice = sized<parallax_slice_t>();
      slice.values = given_.back()->values.data();
      if (on_device) {
        there_.push_back(std::make_unique<RowsOnDevice>(*given_.back(), stream));
        slice.values = there_.back()->values();
        slice.memory = PARALLAX_MEMORY_CUDA;
        slice.device = rank.rank;
        slice.stream = stream;
      }
      slice.as_dtype = PARALLAX_AS(of.as);
      slices_.push_back(slice);
    }

    std::vector<std::unique_ptr<GivenRows>> given_;
    std::vector<std::unique_ptr<RowsOnDevice>> there_;
    std::vector<parallax_slice_t> slices_;
  };

  static void pull_all(const RowSteps& of, const DeviceRank& rank, Bytes* trace) {
    std::vector<int64_t> ids(kTableRows);
    for (uint64_t i = 0; i < kTableRows; ++i) ids[i] = static_cast<int64_t>(i);
    std::vector<float> values;
    const uint64_t most = of.count * of.tied * of.calls;
    for (uint64_t first = 0; first < kTableRows; first += most) {
      auto slice = sized<parallax_slice_t>();
      slice.form = PARALLAX_FORM_ROWS;
      slice.ids = &ids[first];
      slice.row_count = std::min(most, kTableRows - first);
      values.assign(slice.row_count * of.width, 0);
      slice.values = values.data();
      slice.as_dtype = PARALLAX_AS(PARALLAX_F32);
      parallax_request_t* request = nullptr;
      check(parallax_pull(rank.job, 0, &slice, 1, &request));
      rank.finish({request});
      append(trace, values.data(), values.size() * sizeof(float));
    }
  }

  static void trace_rows(const RowSteps& of, parallax_request_t* request, Bytes* trace) {
    for (uint32_t i = 0; i < of.tied; ++i) {
      const int64_t* ids = nullptr;
      const void* values = nullptr;
      uint64_t count = 0;
      check(parallax_request_rows(request, i, &ids, &values, &count));
      append(trace, &count, sizeof count);
      append(trace, ids, count * sizeof *ids);
      append(trace, values, count * of.width * parallax::bytes_of_dtype(of.as));
    }
  }

  static void step(const RowSteps& of, const DeviceRank& rank, int number, bool on_device,
                   CUstream stream, Bytes* trace) {
    const uint64_t step = rank.begin();
    std::vector<std::unique_ptr<Call>> calls;
    std::vector<parallax_request_t*> requests;
    for (uint32_t i = 0; i < of.calls; ++i) {
      const uint64_t seed = (rank.rank * 100 + static_cast<uint64_t>(number)) * 100 + i;
      calls.push_back(std::make_unique<Call>(of, rank, seed, on_device, i + 1 < of.calls, stream));
      requests.push_back(calls.back()->make(of, rank, step));
    }
    auto options = sized<parallax_step_end_options_t>();
    options.learning_rate = 0.25f;
    parallax_request_t* ended = nullptr;
    check(parallax_step_end(rank.job, step, &options, &ended));
    check(parallax_wait(&ended, 1, PARALLAX_WAIT_DEFAULT));
    check(parallax_wait(requests.data(), requests.size(), PARALLAX_WAIT_DEFAULT));
    if (!of.managed) trace_rows(of, requests.back(), trace);
    rank.finish(requests);
    rank.finish({ended});
    if (of.managed) pull_all(of, rank, trace);
  }

  // What every rank sees, and of device slices its stats.
  static std::vector<Bytes> run_steps(const RowSteps& of, bool on_device,
                                      std::vector<std::string>* stats = nullptr) {
    std::vector<Bytes> traces(of.world);
    if (stats != nullptr) stats->resize(of.world);
    NcclJobs::run(
        of.world, [&](DeviceRank& rank) { add(of, rank.job); },
        [&](DeviceRank& rank) {
          const Stream stream;
          for (int i = 0; i < kRowSteps; ++i) {
            step(of, rank, i, on_device, stream.get(), &traces[rank.rank]);
          }
          if (stats != nullptr) (*stats)[rank.rank] = rank.report(PARALLAX_REPORT_STATS);
        },
        [&](parallax_options_t* options) {
          options->deterministic = of.deterministic;
          options->plan_mode = of.plan;
        });
    return traces;
  }

  // A number of the stats, of what devices coalesced; 0 where there is none.
  static uint64_t coalesced(const std::string& stats, const std::string& key) {
    const size_t block = stats.find("\"coalesced_on_devices\"");
    if (block == std::string::npos) return 0;
    const size_t at = stats.find("\"" + key + "\":", block);
    return at == std::string::npos ? 0 : std::stoull(stats.substr(at + key.size() + 3));
  }

  // Of slices, how many their devices coalesced: of each rank.
  static void expect_same(const RowSteps& of, uint64_t slices) {
    SCOPED_TRACE("dtype " + std::to_string(of.dtype) + ", as " + std::to_string(of.as) +
                 ", managed " + std::to_string(of.managed) + ", narrow ids " +
                 std::to_string(of.narrow_ids) + ", reduction " + std::to_string(of.reduction) +
                 ", calls " + std::to_string(of.calls) + ", tied " + std::to_string(of.tied) +
                 ", before " + std::to_string(static_cast<int>(of.before)) + ", world " +
                 std::to_string(of.world) + ", plan " + std::to_string(of.plan) + ", distinct " +
                 std::to_string(of.distinct) + ", width " + std::to_string(of.width));
    std::vector<std::string> stats;
    const std::vector<Bytes> host = run_steps(of, false), device = run_steps(of, true, &stats);
    for (uint32_t rank = 0; rank < of.world; ++rank) {
      ASSERT_GT(host[rank].size(), 20u);
      ASSERT_EQ(host[rank].size(), device[rank].size());
      EXPECT_TRUE(host[rank] == device[rank]) << "rank " << rank;
      EXPECT_EQ(coalesced(stats[rank], "slices"), slices) << stats[rank];
      if (slices > 0) {
        EXPECT_GT(coalesced(stats[rank], "saved_bytes"), 0u) << stats[rank];
      }
    }
  }
};

}  // namespace cuda_rows_test

#endif  // PARALLAX_TESTS_CUDA_MODULE_ROW_SLICES_H_
