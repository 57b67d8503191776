// SPDX-License-Identifier: Apache-2.0
// PullTest: a PullJob with variables of every form, and what of its sections are counted.
#ifndef PARALLAX_TESTS_UNIT_SERVER_PULL_FORMS_H_
#define PARALLAX_TESTS_UNIT_SERVER_PULL_FORMS_H_

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "unit/server/pull_job.h"

namespace parallax::testkit::pull_exchange {

enum : uint32_t { kEmbedding, kFew, kLong, kCounts, kWide, kBias, kNarrow, kNarrowDense };

// Rows of every kind: some of several messages, some fewer than the ranks; and dense ones. Tables
// that keep what they update, and others.
inline std::vector<Variable> every_form() {
  return {pulled_variable(60, 3, 16, PARALLAX_F32),
          pulled_variable(3, 1, 3, PARALLAX_F64),
          pulled_variable(70, 40, 70, PARALLAX_BF16),
          pulled_variable(20, 2, 8, PARALLAX_I64),
          pulled_variable(17, 100, 0, PARALLAX_F32),
          pulled_variable(3, 1, 0, PARALLAX_F64),
          stored_as(pulled_variable(33, 20, 12, PARALLAX_F32), PARALLAX_BF16),
          stored_as(pulled_variable(9, 70, 0, PARALLAX_BF16), PARALLAX_F16)};
}

inline std::vector<int64_t> range_of_ids(int64_t first, int64_t count) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// Counts what is delivered of a kind.
struct Counts {
  explicit Counts(PullJob& job, SectionKind kind) {
    job.tap = [this, kind, &columns = job.columns(0)](uint32_t to, uint32_t from,
                                                      const Section& section) {
      if (section.header.kind != kind) return;
      ++sections;
      if (columns.host_of(to) != columns.host_of(from)) between_hosts += section.header.count;
      items += section.header.count;
      sections_by_dtype[section.header.flags >> kSectionDtypeShift] += 1;
    };
  }
  uint64_t sections = 0, items = 0, between_hosts = 0;
  std::array<uint64_t, 16> sections_by_dtype = {};
};

class PullTest : public testing::Test {
 protected:
  void start(const std::vector<uint32_t>& hosts, uint64_t seed = 1) {
    job_ = std::make_unique<PullJob>(hosts, every_form(), seed);
  }
  void settle() {
    job_->network().settle();
    ASSERT_TRUE(job_->network().refusals().empty()) << told(job_->network().refusals());
  }
  std::unique_ptr<PullJob> job_;
};

}  // namespace parallax::testkit::pull_exchange

#endif  // PARALLAX_TESTS_UNIT_SERVER_PULL_FORMS_H_
