// SPDX-License-Identifier: Apache-2.0
// Steps of the training example in TensorFlow's way, by hand over MPI: sparse variables as ranges
// of rows, one with each rank, nothing merged before it is sent (peers/mpi_ranges.h), and dense
// ones whole on one server each (peers/mpi_servers.h). The sums are then clipped and applied as
// libparallax does it, with the oracle's arithmetic; of the norm ranks tell each other one number.
//
// A server's sum of a dense variable comes back in the place of the variable, as many bytes, and
// every rank applies it.
#ifndef BENCH_LM_SERVERS_EXCHANGE_H_
#define BENCH_LM_SERVERS_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exchange.h"
#include "experiment.h"
#include "peers/mpi_ranges.h"
#include "peers/mpi_servers.h"

namespace lm {

class ServersExchange final : public Exchange {
 public:
  // Between MPI_Init and MPI_Finalize. `experiment` outlives this.
  explicit ServersExchange(const Experiment& experiment);

  uint64_t begin() override { return ++step_; }
  void pull(const Batch& batch, Tensors* values) override;
  void give(const Batch& batch, Tensors* gradients, const StepRates& rates) override;
  StepOutcome settle(const Batch* next, Tensors* values) override;
  Tensors read_all() override;
  void barrier() override;
  std::string counters() override { return "null"; }
  std::string report() override { return ",\n\"exchange\": \"tensorflow\""; }
  void close() override {}
  double wait_seconds() const override { return wait_seconds_; }

 private:
  // The sparse variables, in the order of the tables.
  static constexpr std::array<size_t, 2> kSparse = {kEmbedding, kSoftmax};
  using Sums = std::array<std::span<const parallax::peers::Updater::Sum>, kSparse.size()>;

  parallax::peers::SparseStep sparse_step() const;
  parallax::peers::MpiServers dense_servers();
  void fill();
  double norm(const Sums& sums) const;
  void apply(const Sums& sums, float scale, float learning_rate);

  const Experiment& experiment_;
  const VariableSpecs specs_;
  const parallax::peers::SparseStep shape_;
  int rank_ = 0, world_ = 1;
  parallax::peers::WireBuffers wire_;
  parallax::peers::TableParts tables_;
  parallax::peers::MpiRanges ranges_;
  std::array<parallax::peers::Updater, kSparse.size()> updaters_;
  Tensors dense_, dense_state_, dense_sums_;
  parallax::peers::MpiServers servers_;  // of dense_sums_
  std::vector<int64_t> ids_;             // of a step, of all tables
  std::vector<float> rows_;              // and rows, or gradients
  uint64_t step_ = 0;
  StepOutcome outcome_;  // of the step that was given last
  double wait_seconds_ = 0;
};

}  // namespace lm

#endif  // BENCH_LM_SERVERS_EXCHANGE_H_
