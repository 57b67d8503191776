// SPDX-License-Identifier: Apache-2.0
// Rows and tensors to and from servers, and their updates. See servers_exchange.h.
#include "servers_exchange.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "fold.h"

namespace lm {
namespace {

using parallax::peers::expect_mpi;
using parallax::peers::now_ns;

int rank_of_mpi() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_of_mpi() {
  int world = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  return world;
}

// The time until it goes, added to what ranks waited.
class Waiting {
 public:
  explicit Waiting(double* seconds) : seconds_(seconds) {}
  ~Waiting() { *seconds_ += static_cast<double>(now_ns() - start_ns_) * 1e-9; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  double* const seconds_;
  const int64_t start_ns_ = now_ns();
};

double squares(const float* numbers, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
  }
  return sum;
}

}  // namespace

ServersExchange::ServersExchange(const Experiment& experiment)
    : experiment_(experiment),
      specs_(experiment.specs()),
      shape_(sparse_step()),
      rank_(rank_of_mpi()),
      world_(world_of_mpi()),
      tables_(shape_, static_cast<uint32_t>(world_)),
      ranges_(shape_, wire_),
      servers_(dense_servers()) {
  ids_.resize(shape_.ids);
  rows_.resize(shape_.values);
  fill();
}

parallax::peers::SparseStep ServersExchange::sparse_step() const {
  parallax::peers::SparseStep step;
  step.rule = experiment_.rule == Rule::kSgd ? parallax::peers::Rule::kSgd
                                             : parallax::peers::Rule::kAdagrad;
  for (const size_t v : kSparse) {
    step.tables.push_back({.rows = specs_[v].rows,
                           .width = specs_[v].row_elements,
                           .ids = specs_[v].rows_max,
                           .first_id = step.ids,
                           .first_value = step.values});
    step.ids += specs_[v].rows_max;
    step.values += specs_[v].rows_max * specs_[v].row_elements;
  }
  return step;
}

parallax::peers::MpiServers ServersExchange::dense_servers() {
  parallax::peers::Tensors tensors;
  for (size_t v = 0; v < specs_.size(); ++v) {
    if (specs_[v].sparse()) continue;
    dense_sums_[v].resize(specs_[v].elements());
    tensors.emplace_back(dense_sums_[v]);
  }
  return parallax::peers::MpiServers(std::move(tensors));
}

// The initial values.
void ServersExchange::fill() {
  const auto initial = [&](const VariableSpec& spec, uint64_t row, uint64_t column) {
    return experiment_.gradient_check ? 0.0F : initial_value(spec, row, column);
  };
  const auto accumulator = static_cast<float>(experiment_.initial_accumulator);
  const bool has_state = experiment_.rule == Rule::kAdagrad;
  for (size_t table = 0; table < kSparse.size(); ++table) {
    const VariableSpec& spec = specs_[kSparse[table]];
    const uint64_t first = ranges_.range(table) * static_cast<uint64_t>(rank_);
    const uint64_t end = std::min(first + ranges_.range(table), spec.rows);
    float* value = tables_.values(table);
    for (uint64_t row = first; row < end; ++row) {
      for (uint64_t column = 0; column < spec.row_elements; ++column) {
        *value++ = initial(spec, row, column);
      }
    }
    if (has_state) {
      std::fill_n(tables_.state(table), value - tables_.values(table), accumulator);
    }
  }
  for (size_t v = 0; v < specs_.size(); ++v) {
    if (specs_[v].sparse()) continue;
    for (uint64_t row = 0; row < specs_[v].rows; ++row) {
      for (uint64_t column = 0; column < specs_[v].row_elements; ++column) {
        dense_[v].push_back(initial(specs_[v], row, column));
      }
    }
    if (has_state) dense_state_[v].assign(specs_[v].elements(), accumulator);
  }
}

void ServersExchange::pull(const Batch& batch, Tensors* values) {
  for (size_t table = 0; table < kSparse.size(); ++table) {
    const std::vector<int64_t>& ids = batch.ids(kSparse[table]);
    std::copy(ids.begin(), ids.end(),
              ids_.begin() + static_cast<int64_t>(shape_.tables[table].first_id));
  }
  {
    const Waiting waiting(&wait_seconds_);
    ranges_.pull(tables_, ids_.data(), rows_.data());
  }
  for (size_t table = 0; table < kSparse.size(); ++table) {
    const auto& of = shape_.tables[table];
    const float* const first = rows_.data() + of.first_value;
    (*values)[kSparse[table]].assign(first, first + of.ids * of.width);
  }
  for (size_t v = 0; v < specs_.size(); ++v) {
    if (!specs_[v].sparse()) (*values)[v] = dense_[v];
  }
}

// Of the batch that was pulled last.
void ServersExchange::give(const Batch& /*batch*/, Tensors* gradients, const StepRates& rates) {
  for (size_t table = 0; table < kSparse.size(); ++table) {
    const std::vector<float>& rows = (*gradients)[kSparse[table]];
    std::copy(rows.begin(), rows.end(), &rows_[shape_.tables[table].first_value]);
  }
  {
    const Waiting waiting(&wait_seconds_);
    ranges_.push(rows_.data());
  }
  for (size_t v = 0; v < specs_.size(); ++v) {
    if (!specs_[v].sparse()) {
      std::copy((*gradients)[v].begin(), (*gradients)[v].end(), dense_sums_[v].begin());
    }
  }
  {
    const Waiting waiting(&wait_seconds_);
    servers_.run();
  }
  Sums sums;
  for (size_t table = 0; table < kSparse.size(); ++table) {
    sums[table] = updaters_[table].sum_table(shape_.tables[table].width, ranges_.given(table));
  }
  const double factor = experiment_.reduction == Reduction::kSum ? 1.0 : 1.0 / world_;
  double clip = 1;
  if (rates.clip_norm > 0) {
    outcome_.gradient_norm = factor * norm(sums);
    clip = std::min(1.0, static_cast<double>(rates.clip_norm) / (outcome_.gradient_norm + 1e-6));
  }
  apply(sums, static_cast<float>(factor * clip), rates.learning_rate);
}

double ServersExchange::norm(const Sums& sums) const {
  double own = 0;
  for (size_t table = 0; table < kSparse.size(); ++table) {
    for (const auto& sum : sums[table]) own += squares(sum.row, shape_.tables[table].width);
  }
  double total = 0;
  expect_mpi(MPI_Allreduce(&own, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
  for (const std::vector<float>& sum : dense_sums_) total += squares(sum.data(), sum.size());
  return std::sqrt(total);
}

void ServersExchange::apply(const Sums& sums, float scale, float learning_rate) {
  for (size_t table = 0; table < kSparse.size(); ++table) {
    const uint64_t width = shape_.tables[table].width;
    for (const auto& sum : sums[table]) {
      const uint64_t first = static_cast<uint64_t>(sum.place) * width;
      const bool has_state = experiment_.rule == Rule::kAdagrad;
      update(experiment_.rule, {sum.row, width}, {scale, learning_rate},
             tables_.values(table) + first, has_state ? tables_.state(table) + first : nullptr);
    }
  }
  for (size_t v = 0; v < specs_.size(); ++v) {
    update(experiment_.rule, dense_sums_[v], {scale, learning_rate}, dense_[v].data(),
           dense_state_[v].data());
  }
}

StepOutcome ServersExchange::settle(const Batch* next, Tensors* values) {
  if (next != nullptr) pull(*next, values);
  return outcome_;
}

Tensors ServersExchange::read_all() {
  Tensors values = dense_;
  for (size_t table = 0; table < kSparse.size(); ++table) {
    const VariableSpec& spec = specs_[kSparse[table]];
    const uint64_t of_rank = ranges_.range(table) * spec.row_elements;
    if (of_rank > INT_MAX)
      throw std::runtime_error("a rank has too many elements for MPI_Allgather");
    const auto count = static_cast<int>(of_rank);
    std::vector<float>& all = values[kSparse[table]];
    all.resize(static_cast<size_t>(count) * static_cast<size_t>(world_));
    expect_mpi(MPI_Allgather(tables_.values(table), count, MPI_FLOAT, all.data(), count, MPI_FLOAT,
                             MPI_COMM_WORLD),
               "MPI_Allgather");
    all.resize(spec.elements());  // the last range may be of fewer rows
  }
  return values;
}

void ServersExchange::barrier() { expect_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }

}  // namespace lm
