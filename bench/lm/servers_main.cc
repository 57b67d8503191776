// SPDX-License-Identifier: Apache-2.0
// parallax_lm_servers: one rank of the training example in TensorFlow's way, over MPI. mpirun
// starts all with the same words: in --out RANK stands for the rank.
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>

#include "corpus.h"
#include "experiment.h"
#include "flags.h"
#include "servers_exchange.h"
#include "trainer.h"

namespace {

void train(lm::Experiment* experiment, lm::TrainerOptions* trainer) {
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (static_cast<uint32_t>(world) != experiment->world) {
    throw std::runtime_error("--world is " + std::to_string(experiment->world) +
                             ", mpirun has started " + std::to_string(world));
  }
  const size_t place = experiment->out.rfind("RANK");
  if (place == std::string::npos) throw std::runtime_error("--out needs a RANK");
  experiment->out.replace(place, 4, std::to_string(rank));
  trainer->rank = static_cast<uint32_t>(rank);
  const lm::Corpus corpus(experiment->corpus);
  experiment->settle(corpus);
  auto exchange = std::make_unique<lm::ServersExchange>(*experiment);
  lm::Trainer(*experiment, *trainer, corpus, std::move(exchange)).run();
}

}  // namespace

int main(int argc, char** argv) {
  lm::Experiment experiment;
  lm::TrainerOptions trainer;
  lm::Flags flags("Trains the language model in TensorFlow's way, as one rank of mpirun's.");
  experiment.add_flags(&flags);
  trainer.add_flags(&flags);
  flags.parse(argc, argv);
  MPI_Init(&argc, &argv);
  try {
    train(&experiment, &trainer);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parallax_lm_servers: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
