// SPDX-License-Identifier: Apache-2.0
// parallax_lm_oracle: the same training as parallax_lm in one process, which computes every rank's
// gradient one after another, sums them naively and applies naive updates. It links no libparallax.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "batch.h"
#include "corpus.h"
#include "evaluate.h"
#include "experiment.h"
#include "flags.h"
#include "fold.h"
#include "model.h"

namespace lm {
namespace {

struct OracleOptions {
  std::vector<std::string> host_of;  // per rank; empty: ranks_per_host in a row
  uint32_t ranks_per_host = 1;
  std::vector<std::string> checksum_steps;  // besides the last
  uint32_t evaluate_every = 0;
  bool flat_fold = false;
};

class Oracle {
 public:
  Oracle(const Experiment& experiment, const OracleOptions& options, const Corpus& corpus)
      : experiment_(experiment),
        options_(options),
        corpus_(corpus),
        specs_(experiment.specs()),
        parameters_(experiment_, specs_),
        model_(experiment.shape),
        words_seen_(experiment.shape.vocabulary) {
    number_hosts();
  }

  std::string train();
  // Compares the file of values with the negated sum of the gradients; false if any is off.
  bool check_gradient();

 private:
  void number_hosts();
  GradientSum step_sum(uint64_t step, std::vector<double>* losses);
  std::string evaluations(uint64_t step) const;
  std::string checksums() const;

  const Experiment& experiment_;
  const OracleOptions& options_;
  const Corpus& corpus_;
  const VariableSpecs specs_;
  Parameters parameters_;
  Model model_;
  WordCounts words_seen_;  // that positions of the batches ask for
  std::vector<size_t> host_of_;
  size_t hosts_ = 0;
};

// A host's number is the order of its first rank.
void Oracle::number_hosts() {
  std::map<std::string, size_t> numbers;
  for (uint32_t rank = 0; rank < experiment_.world; ++rank) {
    const std::string name = options_.flat_fold ? std::to_string(rank)
                             : options_.host_of.empty()
                                 ? std::to_string(rank / options_.ranks_per_host)
                                 : options_.host_of.at(rank);
    host_of_.push_back(numbers.try_emplace(name, numbers.size()).first->second);
  }
  hosts_ = numbers.size();
}

GradientSum Oracle::step_sum(uint64_t step, std::vector<double>* losses) {
  std::vector<GradientSum> host_sums(hosts_);
  Batch batch;
  Tensors gradients;
  for (uint32_t rank = 0; rank < experiment_.world; ++rank) {
    make_batch(corpus_, experiment_.shape, {experiment_.seed, rank, step}, &batch);
    for (uint32_t i = 0; i < experiment_.shape.batch; ++i) {
      words_seen_.add(static_cast<uint64_t>(batch.softmax_ids[i]));
    }
    losses->push_back(model_.gradients(batch, parameters_.gather(batch), &gradients));
    add_sum(specs_, rank_sum(specs_, batch, gradients), &host_sums[host_of_[rank]]);
  }
  GradientSum total;
  for (const GradientSum& host_sum : host_sums) add_sum(specs_, host_sum, &total);
  return total;
}

std::string Oracle::evaluations(uint64_t step) const {
  std::string text = "{\"step\": " + std::to_string(step);
  for (bool held_out : {true, false}) {
    const EvaluationPart part = {held_out, experiment_.evaluate_positions, 0, 1};
    text += std::string(held_out ? ", \"held_out\": " : ", \"training\": ") +
            to_json(evaluate(corpus_, experiment_.shape, part, parameters_.values())) +
            ", \"counting_" + (held_out ? "held_out" : "training") +
            "\": " + number(counting_loss_sum(corpus_, experiment_.shape, part, words_seen_));
  }
  return text + "}";
}

std::string Oracle::checksums() const {
  std::string text = "{";
  for (size_t v = 0; v < specs_.size(); ++v) {
    text += (v == 0 ? "" : ", ") + quoted(specs_[v].name) + ": " +
            quoted(checksum(parameters_.values()[v]));
  }
  return text + "}";
}

std::string Oracle::train() {
  std::string losses;
  std::string sums;
  std::string points;
  std::vector<double> norms;
  const auto join = [](std::string* list, const std::string& item) {
    *list += (list->empty() ? "" : ",\n") + item;
  };
  const auto evaluate_at = [&](uint64_t step) {
    if (experiment_.evaluate_positions > 0) join(&points, evaluations(step));
  };
  if (options_.evaluate_every > 0) evaluate_at(0);
  for (uint64_t step = 1; step <= experiment_.steps; ++step) {
    std::vector<double> step_losses;
    norms.push_back(parameters_.apply(step_sum(step, &step_losses), step));
    join(&losses, to_json(step_losses));
    double mean = 0;
    for (double loss : step_losses) mean += loss / static_cast<double>(step_losses.size());
    std::printf("progress %llu %.6f\n", static_cast<unsigned long long>(step), mean);
    std::fflush(stdout);
    const bool last = step == experiment_.steps;
    const auto& at = options_.checksum_steps;
    if (last || std::find(at.begin(), at.end(), std::to_string(step)) != at.end()) {
      join(&sums, quoted(std::to_string(step)) + ": " + checksums());
    }
    if (last || (options_.evaluate_every > 0 && step % options_.evaluate_every == 0)) {
      evaluate_at(step);
    }
  }
  return "{\"losses\": [" + losses + "],\n\"norms\": " + to_json(norms) + ",\n\"checksums\": {" +
         sums + "},\n\"evaluations\": [" + points + "]}\n";
}

// What an element's sum is compared with: the terms' sum in double, the sum of their magnitudes and
// their number. Rows that several positions or ranks touch have several terms.
struct Reference {
  double sum = 0;
  double magnitude = 0;
  uint32_t terms = 0;
};

struct Agreement {
  uint64_t elements = 0, violations = 0, exact = 0;
  double worst_ratio = 0;  // error over bound

  // The bound of any order of additions (Higham 2002, section 4.2): |error| <= gamma * sum |terms|,
  // gamma = (n - 1) u / (1 - (n - 1) u), u = 2^-24. Error-free for one term.
  void compare(double value, const Reference& reference) {
    const double error = std::fabs(value - reference.sum);
    const double rounding = (reference.terms > 1 ? reference.terms - 1 : 0) * 0x1p-24;
    // The reference is a sum of doubles itself: at most n 2^-53 of the magnitude off.
    const double bound =
        (rounding / (1 - rounding) + reference.terms * 0x1p-53 * (reference.terms > 1 ? 1 : 0)) *
        reference.magnitude;
    ++elements;
    if (error == 0) ++exact;
    if (!(error <= bound)) ++violations;
    if (bound > 0) worst_ratio = std::max(worst_ratio, error / bound);
  }
};

bool Oracle::check_gradient() {
  const Tensors pulled = read_values(experiment_.values, specs_);
  std::array<std::vector<Reference>, kVariableCount> references;
  for (size_t v = 0; v < specs_.size(); ++v) references[v].resize(specs_[v].elements());
  Batch batch;
  Tensors gradients;
  for (uint32_t rank = 0; rank < experiment_.world; ++rank) {
    make_batch(corpus_, experiment_.shape, {experiment_.seed, rank, 1}, &batch);
    (void)model_.gradients(batch, parameters_.gather(batch), &gradients);
    for (size_t v = 0; v < specs_.size(); ++v) {
      const size_t elements = specs_[v].row_elements;
      for (size_t i = 0; i < gradients[v].size(); ++i) {
        const size_t row = i / elements;
        const size_t at = specs_[v].sparse()
                              ? static_cast<size_t>(batch.ids(v)[row]) * elements + i % elements
                              : i;
        const auto term = static_cast<double>(gradients[v][i]);
        references[v][at].sum += term;
        references[v][at].magnitude += std::fabs(term);
        ++references[v][at].terms;
      }
    }
  }
  std::string text;
  uint64_t violations = 0;
  for (size_t v = 0; v < specs_.size(); ++v) {
    Agreement agreement;
    for (size_t i = 0; i < pulled[v].size(); ++i) {
      agreement.compare(-static_cast<double>(pulled[v][i]), references[v][i]);
    }
    violations += agreement.violations;
    text += (v == 0 ? "" : ",\n") + quoted(specs_[v].name) +
            ": {\"elements\": " + std::to_string(agreement.elements) +
            ", \"exact\": " + std::to_string(agreement.exact) +
            ", \"violations\": " + std::to_string(agreement.violations) +
            ", \"worst_ratio\": " + number(agreement.worst_ratio) + "}";
  }
  write_file(experiment_.out, "{" + text + "}\n");
  return violations == 0;
}

int run(Experiment* experiment, const OracleOptions& options) {
  if (experiment->out.empty()) throw std::runtime_error("--out is needed");
  if (options.ranks_per_host == 0) throw std::runtime_error("--ranks-per-host must be at least 1");
  if (!options.host_of.empty() && options.host_of.size() != experiment->world) {
    throw std::runtime_error("--host-of needs one name per rank");
  }
  const Corpus corpus(experiment->corpus);
  experiment->settle(corpus);
  Oracle oracle(*experiment, options, corpus);
  if (experiment->gradient_check) return oracle.check_gradient() ? 0 : 1;
  write_file(experiment->out, oracle.train());
  return 0;
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  lm::Experiment experiment;
  lm::OracleOptions options;
  lm::Flags flags(
      "Trains the language model in one process, as the oracle of parallax_lm. With\n"
      "--gradient-check, compares --values with the gradients; exits with 1 if any is off.");
  experiment.add_flags(&flags);
  flags.add("host-of", &options.host_of, "the host of each rank, in order");
  flags.add("ranks-per-host", &options.ranks_per_host, "instead of --host-of");
  flags.add("checksum-steps", &options.checksum_steps, "steps to checksum besides the last");
  flags.add("evaluate-every", &options.evaluate_every, "steps between evaluations; 0: at the end");
  flags.add("flat-fold", &options.flat_fold, "fold rank by rank: another legal order of the sums");
  flags.parse(argc, argv);
  try {
    return lm::run(&experiment, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parallax_lm_oracle: %s\n", error.what());
    return 2;
  }
}
