// SPDX-License-Identifier: Apache-2.0
#include "experiment.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "bits.h"

namespace lm {

void Experiment::add_flags(Flags* flags) {
  flags->add("corpus", &corpus, "the corpus file, made by parallax_lm_corpus");
  flags->add("out", &out, "JSON file to write the outcome to");
  flags->add("world", &world, "number of ranks");
  flags->add("seed", &seed, "seed of initial values and batches");
  flags->add("steps", &steps, "steps to train");
  flags->add("rule", &rule_name, "update rule: adagrad or sgd");
  flags->add("reduction", &reduction_name, "of gradients: sum, world or contributors (means)");
  flags->add("lr", &learning_rate, "learning rate at the first step");
  flags->add("lr-end", &learning_rate_end, "learning rate from --decay-steps on");
  flags->add("decay-steps", &decay_steps, "steps over which the learning rate goes to --lr-end");
  flags->add("clip", &clip_norm, "clip the global gradient norm to this; 0: never");
  flags->add("accumulator", &initial_accumulator, "Adagrad's initial accumulator");
  flags->add("evaluate", &evaluate_positions, "positions of each part to evaluate; 0: none");
  flags->add("batch", &shape.batch, "positions per rank and step");
  flags->add("context", &shape.context, "words that predict the next");
  flags->add("embedding", &shape.embedding, "elements of an embedding row");
  flags->add("hidden", &shape.hidden, "elements of the hidden layer");
  flags->add("negatives", &shape.negatives, "sampled words shared by a batch");
  flags->add("gradient-check", &gradient_check, "one step that turns values into -gradient");
  flags->add("values", &values, "gradient check: file of the values after the step");
}

void Experiment::settle(const Corpus& text) {
  const auto demand = [](bool holds, const char* sentence) {
    if (!holds) throw std::runtime_error(sentence);
  };
  demand(world >= 1, "--world must be at least 1");
  demand(shape.batch >= 1 && shape.embedding >= 1 && shape.hidden >= 1 && shape.negatives >= 1,
         "--batch, --embedding, --hidden and --negatives must be at least 1");
  demand(shape.context >= 1 && shape.context <= kBlockWordsMin / 2,
         "--context must be from 1 to 12");
  demand(rule_name == "adagrad" || rule_name == "sgd", "--rule must be adagrad or sgd");
  demand(reduction_name == "sum" || reduction_name == "world" || reduction_name == "contributors",
         "--reduction must be sum, world or contributors");
  rule = rule_name == "sgd" ? Rule::kSgd : Rule::kAdagrad;
  reduction = reduction_name == "sum"     ? Reduction::kSum
              : reduction_name == "world" ? Reduction::kMeanWorld
                                          : Reduction::kMeanContributors;
  shape.vocabulary = text.vocabulary();
  // Drawing distinct words must not have to find the rarest ones.
  shape.negatives = static_cast<uint32_t>(
      std::min<uint64_t>(shape.negatives, std::max<uint64_t>(1, text.vocabulary() / 4)));
  if (gradient_check) {
    rule = Rule::kSgd;
    reduction = Reduction::kSum;
    learning_rate = learning_rate_end = 1.0;
    clip_norm = 0;
    steps = 1;
  }
}

float Experiment::learning_rate_at(uint64_t step) const {
  const double done =
      decay_steps <= 1
          ? 1.0
          : std::min(1.0, static_cast<double>(step - 1) / static_cast<double>(decay_steps - 1));
  return static_cast<float>(learning_rate + (learning_rate_end - learning_rate) * done);
}

uint64_t Experiment::mix_seed() const { return mix(seed); }

std::string checksum(const std::vector<float>& values) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64,
                fnv1a(values.data(), values.size() * sizeof(float)));
  return text;
}

std::string number(double value) {
  if (!std::isfinite(value)) return "null";  // JSON has no other word for it
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string to_json(const Evaluation& evaluation) {
  return "{\"positions\": " + std::to_string(evaluation.positions) +
         ", \"loss_sum\": " + number(evaluation.loss_sum) +
         ", \"loss_square_sum\": " + number(evaluation.loss_square_sum) + "}";
}

std::string to_json(const std::vector<double>& numbers) {
  std::string text = "[";
  for (size_t i = 0; i < numbers.size(); ++i) text += (i == 0 ? "" : ", ") + number(numbers[i]);
  return text + "]";
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write '" + path + "'");
}

void write_values(const std::string& path, const Tensors& values) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  for (const std::vector<float>& tensor : values) {
    file.write(reinterpret_cast<const char*>(tensor.data()),
               static_cast<std::streamsize>(tensor.size() * sizeof(float)));
  }
  file.close();
  if (!file) throw std::runtime_error("cannot write '" + path + "'");
}

Tensors read_values(const std::string& path, const VariableSpecs& specs) {
  Tensors values;
  std::ifstream file(path, std::ios::binary);
  for (size_t v = 0; v < specs.size(); ++v) {
    values[v].resize(specs[v].elements());
    file.read(reinterpret_cast<char*>(values[v].data()),
              static_cast<std::streamsize>(values[v].size() * sizeof(float)));
  }
  if (!file || file.peek() != std::ifstream::traits_type::eof()) {
    throw std::runtime_error("'" + path + "' does not hold the values of this run's variables");
  }
  return values;
}

}  // namespace lm
