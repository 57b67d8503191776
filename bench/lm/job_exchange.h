// SPDX-License-Identifier: Apache-2.0
// Steps of the training example by libparallax: push, step_end, and the next step's pull, and one
// wait for the three.
#ifndef BENCH_LM_JOB_EXCHANGE_H_
#define BENCH_LM_JOB_EXCHANGE_H_

#include <cstdint>
#include <string>

#include "exchange.h"
#include "experiment.h"
#include "flags.h"
#include "rank.h"
#include "trainer.h"

namespace lm {

struct JobOptions {
  std::string host;
  std::string rendezvous;
  std::string transport;
  std::string plan = "auto";
  std::string tags = "declared";
  std::string memory = "host";
  bool deterministic = false;
  uint32_t plan_after_steps = 0;
  uint32_t timeout_ms = 60'000;

  void add_flags(Flags* flags);
  void check() const;
};

class JobExchange final : public Exchange {
 public:
  // Opens the job. The options need not outlive this.
  JobExchange(const Experiment& experiment, const TrainerOptions& trainer,
              const JobOptions& options);

  uint64_t begin() override { return step_ = rank_.step_begin(); }
  void pull(const Batch& batch, Tensors* values) override;
  void give(const Batch& batch, Tensors* gradients, const StepRates& rates) override;
  StepOutcome settle(const Batch* next, Tensors* values) override;
  Tensors read_all() override;
  void barrier() override { rank_.barrier(); }
  std::string counters() override { return rank_.report(PARALLAX_REPORT_STATS); }
  std::string report() override;
  void close() override { rank_.close(); }
  double wait_seconds() const override { return rank_.wait_seconds(); }

 private:
  Rank rank_;
  uint64_t step_ = 0;   // begun last
  uint64_t given_ = 0;  // whose end is waited for
  Request push_, end_;
};

}  // namespace lm

#endif  // BENCH_LM_JOB_EXCHANGE_H_
