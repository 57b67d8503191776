// SPDX-License-Identifier: Apache-2.0
// The training example's own parts: what the text becomes, that the model's gradients are the
// derivatives of its loss, and that the oracle's arithmetic is what METRICS.md says.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include "batch.h"
#include "bits.h"
#include "corpus.h"
#include "evaluate.h"
#include "experiment.h"
#include "fold.h"
#include "kernels.h"
#include "model.h"

namespace lm {
namespace {

// `count` words out of `distinct`, the early ones more often.
std::string zipf_text(size_t count, size_t distinct) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const double unit = random_unit(7, 0, i);
    const auto word = static_cast<size_t>(std::pow(static_cast<double>(distinct), unit)) - 1;
    text.append("w").append(std::to_string(word)).append(" ");
  }
  return text;
}

// A corpus file that is removed with its scope.
class TextFile {
 public:
  explicit TextFile(const std::string& text, uint64_t words_max = 1000)
      : path_((std::filesystem::temp_directory_path() /
               ("lm_test_" + std::to_string(::getpid()) + "_" +
                ::testing::UnitTest::GetInstance()->current_test_info()->name()))
                  .string()) {
    write_corpus(path_, number_words(text, words_max), text.size(), 42);
  }
  ~TextFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Shape small_shape(uint64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .context = 3,
          .embedding = 5,
          .hidden = 7,
          .batch = 6,
          .negatives = 8};
}

Tensors initial_step_values(const Model& model, const VariableSpecs& specs, const Batch& batch) {
  Tensors values;
  for (size_t v = 0; v < specs.size(); ++v) {
    values[v].resize(model.step_elements(v));
    for (size_t i = 0; i < values[v].size(); ++i) {
      const size_t row = i / specs[v].row_elements;
      values[v][i] = initial_value(
          specs[v], specs[v].sparse() ? static_cast<uint64_t>(batch.ids(v)[row]) : row,
          i % specs[v].row_elements);
    }
  }
  return values;
}

TEST(Tokenize, SplitsIdentifiersNumbersAndForeignBytes) {
  const std::string text = "int x_1 = 0x1F; // na\xc3\xafve \xff\xfe 12ab end";
  const std::vector<std::string_view> expected = {"int",      "x_1",   "<num>", "na\xc3\xafve",
                                                  "\xff\xfe", "<num>", "end"};
  EXPECT_EQ(tokenize(text), expected);
  EXPECT_TRUE(tokenize(" \t\n;;").empty());
  EXPECT_TRUE(tokenize("").empty());
}

TEST(Corpus, NumbersWordsByFrequencyThenByName) {
  const std::string filler = zipf_text(2000, 40);
  const Vocabulary vocabulary = number_words(filler + " tie_b tie_a tie_b tie_a", 1000);
  for (size_t i = 1; i < vocabulary.counts.size(); ++i) {
    ASSERT_GE(vocabulary.counts[i - 1], vocabulary.counts[i]);
    if (vocabulary.counts[i - 1] == vocabulary.counts[i]) {
      ASSERT_LT(vocabulary.words[i - 1], vocabulary.words[i]);
    }
  }
  const uint64_t total =
      std::accumulate(vocabulary.counts.begin(), vocabulary.counts.end(), uint64_t{0});
  EXPECT_EQ(total, vocabulary.word_ids.size());
}

TEST(Corpus, RareWordsBecomeUnknownInTheirPlaceOfTheOrder) {
  const Vocabulary vocabulary = number_words(zipf_text(3000, 200), 50);
  EXPECT_EQ(vocabulary.words.size(), 51U);
  EXPECT_EQ(std::count(vocabulary.words.begin(), vocabulary.words.end(), "<unk>"), 1);
  EXPECT_TRUE(std::is_sorted(vocabulary.counts.rbegin(), vocabulary.counts.rend()));
}

TEST(Corpus, RefusesATextTooShortAndSaysHowMuchIsNeeded) {
  for (const std::string& text : {std::string(), zipf_text(10, 5), zipf_text(5000, 5)}) {
    try {
      (void)number_words(text, 1000);
      FAIL() << "a text of " << text.size() << " bytes passed";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(kCorpusWordsMin)), std::string::npos)
          << error.what();
    }
  }
}

TEST(Corpus, RefusesAFileThatIsNoTextAndLeavesOutHeadersThatAreNone) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("lm_test_" + std::to_string(::getpid()) + "_binary");
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "text.h") << "int caf\xe9;";
  std::ofstream(folder / "binary.h", std::ios::binary) << std::string("int \0x;", 8);
  const Source source = read_headers(folder.string(), 1000, 1000);
  EXPECT_EQ(source.text, "int caf\xe9;\n");
  EXPECT_EQ(source.files, 1U);
  EXPECT_EQ(source.files_skipped, 1U);
  EXPECT_EQ(read_files({(folder / "text.h").string()}).text, "int caf\xe9;\n");
  try {
    (void)read_files({(folder / "text.h").string(), (folder / "binary.h").string()});
    ADD_FAILURE() << "a binary file passed";
  } catch (const std::runtime_error& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("binary.h' is no text: byte 4 is 0"), std::string::npos) << said;
  }
  std::filesystem::remove_all(folder);
}

TEST(Corpus, FileGivesBackWhatWasWritten) {
  const std::string text = zipf_text(3000, 100);
  const Vocabulary vocabulary = number_words(text, 1000);
  const TextFile file(text);
  const Corpus corpus(file.path());
  EXPECT_TRUE(std::equal(corpus.word_ids().begin(), corpus.word_ids().end(),
                         vocabulary.word_ids.begin(), vocabulary.word_ids.end()));
  EXPECT_TRUE(std::equal(corpus.counts().begin(), corpus.counts().end(), vocabulary.counts.begin(),
                         vocabulary.counts.end()));
  EXPECT_EQ(corpus.text_bytes(), text.size());
}

TEST(Corpus, RefusesFilesThatAreNone) {
  const TextFile file(zipf_text(2000, 100));
  EXPECT_THROW(Corpus("/nonexistent/corpus"), std::runtime_error);
  std::filesystem::resize_file(file.path(), 200);
  EXPECT_THROW(Corpus{file.path()}, std::runtime_error);
  std::filesystem::resize_file(file.path(), 3);
  EXPECT_THROW(Corpus{file.path()}, std::runtime_error);
}

TEST(Corpus, HeldOutWindowsShareNoWordWithTraining) {
  for (size_t words : {kCorpusWordsMin, uint64_t{1234}, uint64_t{60'000}}) {
    const TextFile file(zipf_text(words, 100));
    const Corpus corpus(file.path());
    constexpr uint32_t kContext = 4;
    std::set<uint64_t> words_of[2];
    for (bool held_out : {false, true}) {
      const uint64_t positions = corpus.positions(held_out, kContext);
      ASSERT_GT(positions, 0U);
      std::set<uint64_t> targets;
      for (uint64_t i = 0; i < positions; ++i) {
        const uint64_t at = corpus.position(held_out, kContext, i);
        ASSERT_LT(at, corpus.word_ids().size());
        ASSERT_GE(at, kContext);
        targets.insert(at);
        for (uint64_t c = 0; c <= kContext; ++c) words_of[held_out ? 1 : 0].insert(at - c);
      }
      EXPECT_EQ(targets.size(), positions);
    }
    for (uint64_t at : words_of[1]) ASSERT_EQ(words_of[0].count(at), 0U) << at;
  }
}

TEST(Corpus, EntropyOfKnownFrequencies) {
  const std::vector<uint64_t> even = {5, 5, 5, 5};
  EXPECT_NEAR(unigram_entropy(even), std::log(4.0), 1e-12);
  const std::vector<uint64_t> skewed = {3, 1};
  EXPECT_NEAR(unigram_entropy(skewed), 0.75 * std::log(4.0 / 3) + 0.25 * std::log(4.0), 1e-12);
}

TEST(Kernels, MultiplyAddIsTheChainOfRoundedSums) {
  for (size_t m : {1U, 5U}) {
    for (size_t n : {1U, 3U, 16U, 300U}) {
      for (size_t k : {1U, 4U, 7U, 130U}) {
        std::vector<float> a(m * k), b(k * n), out(m * n), expected(m * n);
        for (size_t i = 0; i < a.size(); ++i) a[i] = uniform_initial(1, i, 0, -1, 1);
        for (size_t i = 0; i < b.size(); ++i) b[i] = uniform_initial(2, i, 0, -1, 1);
        for (size_t i = 0; i < out.size(); ++i)
          out[i] = expected[i] = uniform_initial(3, i, 0, -1, 1);
        multiply_add({.m = m, .n = n, .k = k}, a.data(), b.data(), out.data());
        for (size_t i = 0; i < m; ++i) {
          for (size_t j = 0; j < n; ++j) {
            for (size_t p = 0; p < k; ++p) {
              const float product = a[i * k + p] * b[p * n + j];
              expected[i * n + j] += product;
            }
          }
        }
        ASSERT_EQ(out, expected) << m << " " << n << " " << k;
      }
    }
  }
}

TEST(Sampler, ProbabilitiesSumToOneAndMatchDraws) {
  constexpr uint64_t kWords = 50;
  constexpr uint64_t kDraws = 200'000;
  const LogUniformSampler sampler(kWords);
  double total = 0;
  std::vector<double> drawn(kWords);
  for (uint64_t i = 0; i < kDraws; ++i) drawn.at(sampler.id(random_unit(3, 1, i))) += 1.0 / kDraws;
  for (uint64_t k = 0; k < kWords; ++k) {
    const double p = sampler.probability(static_cast<int64_t>(k));
    total += p;
    EXPECT_NEAR(drawn[k], p, 6 * std::sqrt(p / kDraws)) << k;
  }
  EXPECT_NEAR(total, 1.0, 1e-12);
  EXPECT_EQ(sampler.id(0.0), 0);
  EXPECT_EQ(sampler.id(std::nextafter(1.0, 0.0)), static_cast<int64_t>(kWords) - 1);
}

TEST(Batch, IsAPureFunctionOfSeedRankAndStep) {
  const TextFile file(zipf_text(5000, 200));
  const Corpus corpus(file.path());
  const Shape shape = small_shape(corpus.vocabulary());
  Batch first, again, other;
  make_batch(corpus, shape, {9, 2, 5}, &first);
  make_batch(corpus, shape, {9, 2, 5}, &again);
  EXPECT_EQ(first.context_ids, again.context_ids);
  EXPECT_EQ(first.softmax_ids, again.softmax_ids);
  EXPECT_EQ(first.log_expected, again.log_expected);
  for (const BatchSource& source : {BatchSource{9, 3, 5}, {9, 2, 6}, {8, 2, 5}}) {
    make_batch(corpus, shape, source, &other);
    EXPECT_NE(first.context_ids, other.context_ids);
    EXPECT_NE(first.softmax_ids, other.softmax_ids);
  }
  const std::set<int64_t> negatives(first.softmax_ids.begin() + shape.batch,
                                    first.softmax_ids.end());
  EXPECT_EQ(negatives.size(), shape.negatives);
}

// Central differences of the loss, by every kind of variable. A negative equals a target, so that
// the accidental hit is covered.
TEST(Model, GradientsAreTheDerivativesOfTheLoss) {
  const TextFile file(zipf_text(5000, 200));
  const Corpus corpus(file.path());
  const Shape shape = small_shape(corpus.vocabulary());
  const VariableSpecs specs = variable_specs(shape, 11);
  Model model(shape);
  Batch batch;
  make_batch(corpus, shape, {1, 0, 1}, &batch);
  batch.softmax_ids[0] = batch.softmax_ids[shape.batch + 2];
  Tensors values = initial_step_values(model, specs, batch);
  for (std::vector<float>& tensor : values) {
    for (size_t i = 0; i < tensor.size(); ++i) tensor[i] += uniform_initial(5, i, 0, -0.4F, 0.4F);
  }
  Tensors gradients, ignored;
  (void)model.gradients(batch, values, &gradients);
  constexpr float kStep = 1.0F / 128;
  for (size_t v = 0; v < specs.size(); ++v) {
    ASSERT_EQ(gradients[v].size(), values[v].size()) << specs[v].name;
    double square = 0;
    for (size_t i = 0; i < values[v].size(); ++i) {
      const float kept = values[v][i];
      values[v][i] = kept + kStep;
      const double above = model.gradients(batch, values, &ignored);
      values[v][i] = kept - kStep;
      const double below = model.gradients(batch, values, &ignored);
      values[v][i] = kept;
      const double slope = (above - below) / (2.0 * kStep);
      ASSERT_NEAR(gradients[v][i], slope, 2e-4 + 2e-3 * std::fabs(slope))
          << specs[v].name << " element " << i;
      square += static_cast<double>(gradients[v][i]) * gradients[v][i];
    }
    EXPECT_GT(square, 1e-6) << specs[v].name << " has no gradient to check";
  }
}

TEST(Model, AnAccidentalHitTeachesNothingToItsNegative) {
  const TextFile file(zipf_text(5000, 200));
  const Corpus corpus(file.path());
  Shape shape = small_shape(corpus.vocabulary());
  shape.batch = 1;
  shape.negatives = 1;
  const VariableSpecs specs = variable_specs(shape, 11);
  Model model(shape);
  Batch batch;
  make_batch(corpus, shape, {1, 0, 1}, &batch);
  batch.softmax_ids[1] = batch.softmax_ids[0];
  Tensors gradients;
  EXPECT_EQ(model.gradients(batch, initial_step_values(model, specs, batch), &gradients), 0.0);
  for (float g : gradients[kSoftmax]) EXPECT_EQ(g, 0.0F);
}

TEST(Model, SameInputSameBits) {
  const TextFile file(zipf_text(5000, 200));
  const Corpus corpus(file.path());
  const Shape shape = small_shape(corpus.vocabulary());
  const VariableSpecs specs = variable_specs(shape, 11);
  Batch batch;
  make_batch(corpus, shape, {1, 0, 1}, &batch);
  Model one(shape), two(shape);
  Tensors first, second;
  const Tensors values = initial_step_values(one, specs, batch);
  (void)two.gradients(batch, values, &second);  // used buffers must not show
  EXPECT_EQ(one.gradients(batch, values, &first), two.gradients(batch, values, &second));
  EXPECT_EQ(first, second);
}

TEST(Evaluate, MatchesAPlainSoftmaxOverAllWords) {
  const TextFile file(zipf_text(5000, 400));
  const Corpus corpus(file.path());
  const Shape shape = small_shape(corpus.vocabulary());
  Experiment experiment;
  experiment.shape = shape;
  const VariableSpecs specs = variable_specs(shape, 3);
  const Parameters parameters(experiment, specs);
  const Evaluation evaluation = evaluate(corpus, shape, {true, 7, 0, 1}, parameters.values());
  ASSERT_EQ(evaluation.positions, 7U);

  Model model(shape);
  double expected = 0;
  const uint64_t available = corpus.positions(true, shape.context);
  for (uint64_t i = 0; i < 7; ++i) {
    const uint64_t at = corpus.position(true, shape.context, i * available / 7);
    std::vector<float> x;
    for (uint64_t c = at - shape.context; c < at; ++c) {
      const float* row =
          parameters.values()[kEmbedding].data() + corpus.word_ids()[c] * shape.embedding;
      x.insert(x.end(), row, row + shape.embedding);
    }
    const std::vector<float> h = model.project(1, x.data(), parameters.values());
    std::vector<double> scores(shape.vocabulary);
    double total = 0;
    for (uint64_t word = 0; word < shape.vocabulary; ++word) {
      const float* row = parameters.values()[kSoftmax].data() + word * (shape.embedding + 1);
      scores[word] = row[shape.embedding];
      for (uint32_t e = 0; e < shape.embedding; ++e) scores[word] += double{h[e]} * row[e];
      total += std::exp(scores[word]);
    }
    expected += std::log(total) - scores[corpus.word_ids()[at]];
  }
  EXPECT_NEAR(evaluation.loss_sum, expected, 1e-4);

  Evaluation shares = {};
  for (uint32_t share : {0U, 1U, 2U}) {
    const Evaluation part = evaluate(corpus, shape, {true, 7, share, 3}, parameters.values());
    shares.positions += part.positions;
    shares.loss_sum += part.loss_sum;
  }
  EXPECT_EQ(shares.positions, 7U);
  EXPECT_NEAR(shares.loss_sum, evaluation.loss_sum, 1e-9);
}

TEST(Evaluate, CountingKnowsTheWordsSeenAndNoneElse) {
  const TextFile file(zipf_text(5000, 400));
  const Corpus corpus(file.path());
  const Shape shape = small_shape(corpus.vocabulary());
  const EvaluationPart part = {true, 7, 0, 1};
  WordCounts counts(shape.vocabulary);
  const auto vocabulary = static_cast<double>(shape.vocabulary);
  EXPECT_NEAR(counting_loss_sum(corpus, shape, part, counts), 7 * std::log(vocabulary), 1e-9);
  for (int i = 0; i < 9; ++i) counts.add(3);
  EXPECT_NEAR(counts.loss(3), std::log((vocabulary + 9) / 10), 1e-9);
  EXPECT_NEAR(counts.loss(4), std::log(vocabulary + 9), 1e-9);
}

TEST(Fold, RowsOfOneIdAreSummedInOrderOfAppearance) {
  RowSum sum;
  const float big = 1e8F, one = 1.0F, minus = -1e8F;
  for (const float* value : {&big, &one, &minus}) sum.add(4, value, 1);
  sum.add(2, &one, 1);
  EXPECT_EQ(sum.ids(), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(sum.values(), (std::vector<float>{(1e8F + 1.0F) - 1e8F, 1.0F}));
}

TEST(Fold, ASumStartsFromPlusZero) {
  RowSum sum;
  const float minus_zero = -0.0F;
  sum.add(1, &minus_zero, 1);
  EXPECT_FALSE(std::signbit(sum.values()[0]));
}

TEST(Fold, ExactSumDoesNotDependOnTheOrder) {
  std::vector<double> terms;
  for (size_t i = 0; i < 300; ++i) {
    terms.push_back(std::ldexp(random_unit(1, 2, i), static_cast<int>(random_bits(1, 3, i) % 200)));
  }
  std::mt19937 random(5);
  double first = 0;
  for (int round = 0; round < 20; ++round) {
    ExactDoubleSum sum;
    for (double term : terms) sum.add(term);
    if (round == 0) first = sum.value();
    ASSERT_EQ(sum.value(), first);
    std::shuffle(terms.begin(), terms.end(), random);
  }
  // Half an ulp and a bit more rounds up, half an ulp alone to even.
  ExactDoubleSum half, more;
  for (double term : {1.0, 0x1p-53}) half.add(term);
  for (double term : {1.0, 0x1p-53, 0x1p-200}) more.add(term);
  EXPECT_EQ(half.value(), 1.0);
  EXPECT_EQ(more.value(), 1.0 + 0x1p-52);
}

TEST(Fold, AdagradFollowsItsFormulaAndLeavesUntouchedRowsAlone) {
  Experiment experiment;
  experiment.world = 2;
  experiment.shape = small_shape(40);
  experiment.clip_norm = 0;
  experiment.learning_rate = experiment.learning_rate_end = 0.5;
  const VariableSpecs specs = variable_specs(experiment.shape, 3);
  Parameters parameters(experiment, specs);
  const Tensors before = parameters.values();
  GradientSum sum;
  for (size_t v = 0; v < specs.size(); ++v) {
    if (!specs[v].sparse()) sum.dense[v].assign(specs[v].elements(), 0.0F);
  }
  const std::vector<float> row(5, 3.0F);
  sum.rows[kEmbedding].add(7, row.data(), 5);
  (void)parameters.apply(sum, 1);
  for (size_t i = 0; i < before[kEmbedding].size(); ++i) {
    const bool touched = i / 5 == 7;
    // g = 3 / 2, s = g^2, step = 0.5 g / sqrt(s) = 0.5
    EXPECT_FLOAT_EQ(parameters.values()[kEmbedding][i],
                    before[kEmbedding][i] - (touched ? 0.5F : 0.0F));
  }
  EXPECT_EQ(parameters.values()[kSoftmax], before[kSoftmax]);
}

TEST(Fold, ClippingScalesToTheLimit) {
  Experiment experiment;
  experiment.rule = Rule::kSgd;
  experiment.reduction = Reduction::kSum;
  experiment.shape = small_shape(40);
  experiment.clip_norm = 1;
  experiment.learning_rate = experiment.learning_rate_end = 1;
  const VariableSpecs specs = variable_specs(experiment.shape, 3);
  Parameters parameters(experiment, specs);
  const float before = parameters.values()[kHiddenBias][0];
  GradientSum sum;
  for (size_t v = 0; v < specs.size(); ++v) {
    if (!specs[v].sparse()) sum.dense[v].assign(specs[v].elements(), 0.0F);
  }
  sum.dense[kHiddenBias][0] = 3;
  sum.dense[kHiddenBias][1] = 4;
  EXPECT_EQ(parameters.apply(sum, 1), 5.0);
  EXPECT_NEAR(parameters.values()[kHiddenBias][0], before - 0.6F, 1e-6);
}

TEST(Bits, InitialValuesAreTheOnesOfTheHeader) {
  // By hand from parallax.h: mix() of splitmix64 has known values.
  EXPECT_EQ(mix(0), 0U);
  EXPECT_EQ(mix(0x9e3779b97f4a7c15ULL), 0xe220a8397b1dcdafULL);  // first output of seed 0
  EXPECT_EQ(uniform_initial(0, 0, 0, 0, 1),
            static_cast<float>(mix(0xe220a8397b1dcdafULL) >> 40) * 0x1p-24F);
  for (uint64_t i = 0; i < 1000; ++i) {
    const float value = uniform_initial(3, i, i * 7, -0.5F, 0.25F);
    ASSERT_GE(value, -0.5F);
    ASSERT_LE(value, 0.25F);
  }
}

}  // namespace
}  // namespace lm
