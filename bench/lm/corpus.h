// SPDX-License-Identifier: Apache-2.0
// The text that the language model reads: words numbered by descending frequency, held in one
// binary file that every rank maps. A text is cut into blocks; every kHeldOutEvery-th block is held
// out and never trained on. A window never crosses a block, so no target leaks into the other part.
//
// Words are runs of letters, digits, '_' and bytes >= 0x80 that do not open with a digit; a run
// that does is one word, <num>. All else separates. So identifiers, prose and any encoding that
// extends ASCII pass; a byte 0, which text does not hold, says that a file is none.
#ifndef BENCH_LM_CORPUS_H_
#define BENCH_LM_CORPUS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lm {

inline constexpr uint32_t kHeldOutEvery = 20;  // blocks: 5% of the text
inline constexpr uint64_t kBlockWordsMax = 1000;
inline constexpr uint64_t kBlocksWanted = 2 * kHeldOutEvery;
inline constexpr uint64_t kBlockWordsMin = 25;
inline constexpr uint64_t kCorpusWordsMin = kBlocksWanted * kBlockWordsMin;
inline constexpr uint64_t kDistinctWordsMin = 32;

// Cuts `text` into words, in order. The views point into `text`, or to a static "<num>".
std::vector<std::string_view> tokenize(std::string_view text);

struct Source {
  std::string text;
  uint64_t files = 0;
  uint64_t files_skipped = 0;  // unreadable, or no text
};

// The files named, in the order given. Throws std::runtime_error for one that cannot be read or is
// no text.
Source read_files(const std::vector<std::string>& paths);

// The C and C++ headers below `root`, up to bytes_max. They come in the order of the hashes of
// their paths, so that the cap takes a fair sample of what is installed and not its first letters.
Source read_headers(const std::string& root, uint64_t bytes_max, uint64_t file_bytes_max);

struct Vocabulary {
  std::vector<std::string> words;  // by id
  std::vector<uint64_t> counts;    // by id, descending; ties by word
  std::vector<uint32_t> word_ids;  // the text
};

// Keeps the most frequent words_max words; all others become <unk>, which takes the place in the
// order that its count gives it. Throws std::runtime_error if the text is too short to train on.
Vocabulary number_words(std::string_view text, uint64_t words_max);

// In nats, of the words as numbered.
double unigram_entropy(std::span<const uint64_t> counts);

// Writes a vocabulary and its text to `path`, whole or not at all. Throws std::runtime_error.
void write_corpus(const std::string& path, const Vocabulary& vocabulary, uint64_t text_bytes,
                  uint64_t text_hash);

// A corpus file, mapped read-only. Throws std::runtime_error if it is not one. Any thread.
class Corpus {
 public:
  explicit Corpus(const std::string& path);
  ~Corpus();
  Corpus(const Corpus&) = delete;
  Corpus& operator=(const Corpus&) = delete;

  std::span<const uint32_t> word_ids() const { return word_ids_; }
  std::span<const uint64_t> counts() const { return counts_; }
  uint64_t vocabulary() const { return counts_.size(); }
  uint64_t text_bytes() const { return text_bytes_; }
  uint64_t text_hash() const { return text_hash_; }

  // Positions whose word and the `context` words before it lie in one block of their part.
  uint64_t positions(bool held_out, uint32_t context) const;
  // The index into word_ids() of position `index` < positions(held_out, context).
  uint64_t position(bool held_out, uint32_t context, uint64_t index) const;

 private:
  void* map_ = nullptr;
  size_t map_bytes_ = 0;
  uint64_t text_bytes_ = 0;
  uint64_t text_hash_ = 0;
  uint64_t block_words_ = 0;
  std::span<const uint64_t> counts_;
  std::span<const uint32_t> word_ids_;
};

}  // namespace lm

#endif  // BENCH_LM_CORPUS_H_
