// SPDX-License-Identifier: Apache-2.0
// parallax_lm: one rank of the training example, by libparallax's C ABI, as a framework's optimizer
// would call it. bench/run starts one process per rank.
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>

#include "corpus.h"
#include "experiment.h"
#include "flags.h"
#include "job_exchange.h"
#include "trainer.h"

int main(int argc, char** argv) {
  lm::Experiment experiment;
  lm::TrainerOptions trainer;
  lm::JobOptions options;
  lm::Flags flags("Trains the language model as one rank of a job; bench/run starts them all.");
  experiment.add_flags(&flags);
  trainer.add_flags(&flags);
  options.add_flags(&flags);
  flags.parse(argc, argv);
  try {
    if (experiment.out.empty()) throw std::runtime_error("--out is needed");
    options.check();
    const lm::Corpus corpus(experiment.corpus);
    experiment.settle(corpus);
    auto exchange = std::make_unique<lm::JobExchange>(experiment, trainer, options);
    lm::Trainer(experiment, trainer, corpus, std::move(exchange)).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parallax_lm: %s\n", error.what());
    return 1;
  }
}
