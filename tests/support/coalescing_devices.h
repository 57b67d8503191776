// SPDX-License-Identifier: Apache-2.0
// CoalescingDevices: FakeDevices that coalesce rows of f32 or f16 as the plain sum of their ids,
// when the stream has come to the mark and no copy is held.
#ifndef PARALLAX_TESTS_SUPPORT_COALESCING_DEVICES_H_
#define PARALLAX_TESTS_SUPPORT_COALESCING_DEVICES_H_

#include <cstring>
#include <map>
#include <vector>

#include "base/number.h"
#include "support/fake_devices.h"

namespace parallax::testkit {

class CoalescingDevices final : public FakeDevices {
 public:
  Status refuse_scratch;
  uint32_t rows_max = UINT32_MAX;  // that there is scratch memory for
  uint64_t coalesced = 0;          // slices, or several as one

  Status coalesce_bytes(uint32_t, const RowsToCoalesce& rows, uint64_t* bytes) override {
    if (rows.count > rows_max) return limit("too many rows");
    *bytes = coalesce_places(rows).work_at;
    return {};
  }
  Status allocate_scratch(uint32_t device, uint64_t bytes, std::byte** memory) override {
    if (!refuse_scratch.ok()) return refuse_scratch;
    void* made = nullptr;
    PARALLAX_RETURN_IF_ERROR(allocate(device, bytes, &made));
    *memory = static_cast<std::byte*>(made);
    return {};
  }
  void release_scratch(uint32_t device, std::byte* memory) noexcept override {
    release(device, memory);
  }
  Status coalesce(DeviceMark mark, std::span<const RowsToCoalesce> slices,
                  DeviceBatch* batch) override {
    PARALLAX_RETURN_IF_ERROR(copy(CopyDirection::kToHost, mark, {}, batch));
    works_[*batch] = {slices.begin(), slices.end()};
    return {};
  }
  Status poll(DeviceBatch batch, bool* ended) override {
    const Status status = FakeDevices::poll(batch, ended);
    const auto work = works_.find(batch);
    if (!*ended || work == works_.end()) return status;
    for (const RowsToCoalesce& rows : work->second) {
      if (status.ok()) run(rows);
    }
    works_.erase(work);
    return status;
  }

 private:
  void run(const RowsToCoalesce& rows) {
    ++coalesced;
    std::vector<int64_t> wide;
    std::vector<float> values;
    for (const RowsThere& each : rows.slices) {
      const auto ids = read(reinterpret_cast<const int64_t*>(each.ids), each.count);
      wide.insert(wide.end(), ids.begin(), ids.end());
      const uint64_t count = uint64_t{each.count} * rows.elements;
      if (rows.dtype == PARALLAX_F16) {
        const auto halves = read(reinterpret_cast<const Half*>(each.values), count);
        for (const Half& half : halves) values.push_back(widen(half));
        continue;
      }
      const auto floats = read(reinterpret_cast<const float*>(each.values), count);
      values.insert(values.end(), floats.begin(), floats.end());
    }
    CoalescedCounts counts;
    std::map<int64_t, std::vector<float>> sums;
    for (uint32_t i = rows.count; i-- > 0;) {
      if (wide[i] != -1 && static_cast<uint64_t>(wide[i]) >= rows.table_rows) counts.bad = i;
    }
    for (uint32_t i = 0; i < rows.count; ++i) {
      if (wide[i] == -1) continue;
      std::vector<float>& sum = sums[wide[i]];
      sum.resize(rows.elements);
      for (uint32_t e = 0; e < rows.elements; ++e) sum[e] += values[i * rows.elements + e];
    }
    std::vector<int64_t> ids;
    std::vector<float> all;
    for (const auto& [id, sum] : sums) {
      ids.push_back(id);
      all.insert(all.end(), sum.begin(), sum.end());
    }
    counts.rows = static_cast<uint32_t>(ids.size());
    write(rows.scratch + coalesce_places(rows).ids_at, ids);
    write(rows.scratch + coalesce_places(rows).sums_at, all);
    std::memcpy(rows.counts, &counts, sizeof counts);
  }

  std::map<DeviceBatch, std::vector<RowsToCoalesce>> works_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_COALESCING_DEVICES_H_
