// SPDX-License-Identifier: Apache-2.0
// Hot rows mirrored by the program, in bench/hot: of all tables together the K rows that are drawn
// most often are one dense managed variable placed `mirrored`, and each table's other rows a
// variable placed `sharded`. With K 0 every table is a variable of its own: what the others are
// compared with; `merged`, too, but the program gives each of the K rows once, as it does where
// they are mirrored, so what is won by that is told from what mirroring wins. Ids, gradients and
// the oracle are those of bench/peers.
//
// Ids are split, and rows of others than the hot brought together and back, off the clock, as if a
// training had them so. On it are what mirroring costs and spares the program itself: hot rows
// looked up in what was pulled, and their gradients added up.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "base/vector_code.h"
#include "peers/job.h"
#include "peers/sparse.h"

namespace parallax::peers {
namespace {

// How often row `row` is drawn in a step, on the average; the hottest row of a table is its first.
class Rates {
 public:
  Rates(const Table& table, double exponent) : table_(table), exponent_(exponent) {
    double sum = 0;
    if (table.classes.empty()) {
      for (uint64_t row = table.rows; row-- > 0;) sum += weight(row);
    }
    double of_class = 1;
    for (const uint64_t rows : table.classes) {
      sum += static_cast<double>(rows) * of_class;
      of_class /= 2;
    }
    scale_ = static_cast<double>(table.ids) / sum;
  }
  double rate(uint64_t row) const { return scale_ * weight(row); }

 private:
  double weight(uint64_t row) const {
    if (table_.classes.empty()) return std::pow(static_cast<double>(row + 1), -exponent_);
    double of_class = 1;
    for (const uint64_t rows : table_.classes) {
      if (row < rows) break;
      row -= rows;
      of_class /= 2;
    }
    return of_class;
  }

  const Table& table_;
  const double exponent_;
  double scale_ = 0;
};

// How many rows of each table are among the `count` hottest of all: always its first ones.
std::vector<uint64_t> hottest(const SparseStep& step, uint64_t count) {
  std::vector<uint64_t> hot(step.tables.size());
  if (count == 0) return hot;
  std::vector<Rates> rates;
  std::priority_queue<std::pair<double, size_t>> next;
  for (size_t table = 0; table < step.tables.size(); ++table) {
    rates.emplace_back(step.tables[table], step.exponent);
    next.emplace(rates.back().rate(0), table);
  }
  for (; count > 0 && !next.empty(); --count) {
    const size_t table = next.top().second;
    next.pop();
    if (++hot[table] < step.tables[table].rows) next.emplace(rates[table].rate(hot[table]), table);
  }
  return hot;
}

class Hot final : public Sparse {
 public:
  Hot(uint32_t rank, uint32_t world, uint64_t hot_rows, bool merged)
      : Sparse(rank, world), wanted_(hot_rows), merged_(merged) {}

  // By the library's own counters: without headers, leases and what else the interface carries.
  links::Bytes carried(const std::string& /*device*/) override {
    size_t bytes = 0;
    std::string text;
    parallax_status_t status = PARALLAX_LIMIT;
    while (status == PARALLAX_LIMIT) {
      text.resize(bytes);
      status = parallax_report(job_->get(), PARALLAX_REPORT_STATS, text.data(), &bytes);
      if (bytes <= text.size()) break;
    }
    expect(status, "report");
    const auto wire = nlohmann::json::parse(text.c_str())["wire"];
    return {wire["sent_bytes"], wire["received_bytes"]};
  }

 protected:
  void open(const SparseStep& step) override {
    if (step.is_bf16 || step.rule != Rule::kSgd) fail("hot rows are of f32 and sgd alone");
    step_ = step;
    width_ = step.tables[0].width;
    hot_of_ = hottest(step, wanted_);
    job_.reset();
    job_ = std::make_unique<Job>();
    slices_.clear();
    first_hot_.clear();
    ids_.resize(step.ids);
    uint64_t hot_rows = 0;
    for (size_t at = 0; at < step.tables.size(); ++at) {
      if (step.tables[at].width != width_) fail("hot rows are of tables of one width");
      first_hot_.push_back(hot_rows);
      hot_rows += hot_of_[at];
      add_table(step.tables[at], merged_ ? 0 : hot_of_[at]);
    }
    if (merged_) {
      given_at_.assign(hot_rows, kNowhere);
    } else if (hot_rows > 0) {
      add_hot(hot_rows);
    }
    job_->commit();
    gradients_ = job_->shared_memory(step.values);
    values_ = job_->shared_memory(step.values);
    hot_gradients_ = job_->shared_memory(std::max<uint64_t>(hot_rows, 1) * width_);
    hot_values_ = job_->shared_memory(std::max<uint64_t>(hot_rows, 1) * width_);
    given_.assign(step.values, 0);
    looked_up_.assign(step.values, 0);
  }

  Buffers choose(const std::string& /*variant*/) override { return {given_, looked_up_}; }

  Took run(const int64_t* ids, const int64_t* /*next*/) override {
    split(ids);
    const int64_t start_ns = now_ns();
    const uint64_t step = job_->begin();
    place(values_, hot_values_);
    parallax_request_t* pull = nullptr;
    expect(parallax_pull(job_->get(), step, slices_.data(), slices_.size(), &pull), "pull");
    finish({&pull, 1});
    in_vectors([&] { look_up_hot(); });
    const int64_t pulled_ns = now_ns();
    in_vectors([&] { sum_hot(); });
    parallax_request_t* push = nullptr;
    place(gradients_, hot_gradients_);
    expect(parallax_push(job_->get(), step, slices_.data(), slices_.size(), &push), "push");
    auto* const end = job_->end(step, kLearningRate);
    finish({&end, 1});
    const Took took = {pulled_ns - start_ns, now_ns() - start_ns};
    finish({&push, 1});
    for (const auto& each : rest_) {
      std::copy_n(&values_[each.own * width_], width_, &looked_up_[each.at * width_]);
    }
    return took;
  }

  void meet() override { job_->barrier(); }

 private:
  // Of an id that a step has at place `at`: which row of the hot, or of the slices' rows, is its.
  struct Place {
    uint64_t at, own;
  };

  void add_table(const Table& table, uint64_t hot) {
    if (table.rows == hot) return;
    parallax_variable_t variable = of_rows(table.rows - hot);
    variable.rows_max = table.ids;
    variable.tag = PARALLAX_SPARSE;
    variable.placement = PARALLAX_PLACEMENT_SHARDED;
    add(variable, PARALLAX_FORM_ROWS);
  }
  void add_hot(uint64_t rows) {
    parallax_variable_t variable = of_rows(rows);
    variable.tag = PARALLAX_DENSE;
    variable.placement = PARALLAX_PLACEMENT_MIRRORED;
    add(variable, PARALLAX_FORM_DENSE);
  }
  parallax_variable_t of_rows(uint64_t rows) const {
    parallax_variable_t variable = {};
    variable.rows = rows;
    variable.row_elements = width_;
    variable.dtype = PARALLAX_F32;
    variable.reduction = PARALLAX_SUM;
    variable.rule = PARALLAX_RULE_SGD;
    variable.init = PARALLAX_INIT_UNIFORM;  // zeros that are written, as in bench/peers
    return variable;
  }
  void add(const parallax_variable_t& variable, parallax_form_t form) {
    parallax_slice_t slice = {};
    slice.size = sizeof slice;
    slice.variable = job_->add(variable);
    slice.form = form;
    slices_.push_back(slice);
  }

  // Whose rows go where in this step, and gradients of the others there.
  void split(const int64_t* ids) {
    hot_.clear();
    rest_.clear();
    uint64_t given = 0;
    auto slice = slices_.begin();
    for (size_t table = 0; table < step_.tables.size(); ++table) {
      const auto& of = step_.tables[table];
      const uint64_t first = given;
      const uint64_t elsewhere = merged_ ? 0 : hot_of_[table];
      for (uint64_t at = of.first_id; at < of.first_id + of.ids; ++at) {
        const auto row = static_cast<uint64_t>(ids[at]);
        const bool is_hot = row < hot_of_[table];
        if (is_hot && !merged_) {
          hot_.push_back({at, first_hot_[table] + row});
          continue;
        }
        uint64_t own = is_hot ? given_at_[first_hot_[table] + row] : kNowhere;
        if (own == kNowhere) {
          own = given++;
          ids_[own] = static_cast<int64_t>(row - elsewhere);
          if (is_hot) given_at_[first_hot_[table] + row] = own;
        }
        (is_hot ? hot_ : rest_).push_back({at, own});
        if (!is_hot) std::copy_n(&given_[at * width_], width_, &gradients_[own * width_]);
      }
      if (of.rows == elsewhere) continue;
      slice->ids = ids_.data() + first;
      slice->row_count = given - first;
      ++slice;
    }
    std::fill(given_at_.begin(), given_at_.end(), kNowhere);
  }

  void place(std::span<float> rows, std::span<float> hot) {
    for (auto& slice : slices_) {
      const bool is_hot = slice.form == PARALLAX_FORM_DENSE;
      slice.values = is_hot ? hot.data()
                            : rows.data() + static_cast<uint64_t>(slice.ids - ids_.data()) * width_;
    }
  }

  void look_up_hot() {
    const std::span<const float> rows = merged_ ? values_ : hot_values_;
    for (const auto& each : hot_) {
      std::copy_n(&rows[each.own * width_], width_, &looked_up_[each.at * width_]);
    }
  }
  void sum_hot() {
    const std::span<float> sums = merged_ ? gradients_ : hot_gradients_;
    if (merged_) {
      for (const auto& each : hot_) std::fill_n(&sums[each.own * width_], width_, 0.0F);
    } else {
      std::fill(sums.begin(), sums.end(), 0.0F);
    }
    for (const auto& each : hot_) {
      float* __restrict const sum = &sums[each.own * width_];
      const float* __restrict const from = &given_[each.at * width_];
      for (uint64_t column = 0; column < width_; ++column) sum[column] += from[column];
    }
  }

  static constexpr uint64_t kNowhere = UINT64_MAX;

  const uint64_t wanted_;
  const bool merged_;
  SparseStep step_;
  uint64_t width_ = 0;
  std::vector<uint64_t> hot_of_, first_hot_;  // of each table: how many, and the first one's row
  std::unique_ptr<Job> job_;
  std::vector<parallax_slice_t> slices_;  // of tables with rows that are not hot; then the hot ones
  std::span<float> gradients_, values_, hot_gradients_, hot_values_;
  std::vector<float> given_, looked_up_;  // in the order of ids
  std::vector<int64_t> ids_;              // of the slices, one behind the other
  std::vector<uint64_t> given_at_;        // merged: of each hot row, until the step is split
  std::vector<Place> hot_, rest_;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER RANK WORLD K WAY, which is mirrored or merged
int main(int count, char** all) {
  using namespace parallax::peers;
  const auto [folder, rank, world] = started_as(count, all);
  Hot hot(rank, world, std::stoull(argument(count, all, 4)), argument(count, all, 5) == "merged");
  serve(hot, rank, folder);
  return 0;
}
