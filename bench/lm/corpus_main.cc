// SPDX-License-Identifier: Apache-2.0
// parallax_lm_corpus: reads text, numbers its words, writes the file that the ranks map, and prints
// what it read as one JSON object.
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bits.h"
#include "corpus.h"
#include "flags.h"

namespace {

struct Options {
  std::vector<std::string> files;
  std::string headers = "/usr/include";
  std::string out = "corpus.bin";
  uint64_t bytes_max = 32ULL << 20;
  uint64_t file_bytes_max = 256ULL << 10;
  uint64_t words_max = 100'000;
};

int run(const Options& options) {
  const lm::Source source =
      options.files.empty()
          ? lm::read_headers(options.headers, options.bytes_max, options.file_bytes_max)
          : lm::read_files(options.files);
  const lm::Vocabulary vocabulary = lm::number_words(source.text, options.words_max);
  const uint64_t hash = lm::fnv1a(source.text.data(), source.text.size());
  lm::write_corpus(options.out, vocabulary, source.text.size(), hash);
  const lm::Corpus corpus(options.out);  // reads it back as the ranks will
  std::printf("{\"files\": %" PRIu64 ", \"files_skipped\": %" PRIu64
              ", \"bytes\": %zu, "
              "\"hash\": \"%016" PRIx64 "\", \"words\": %zu, \"vocabulary\": %" PRIu64
              ", \"unigram_entropy_nats\": %.17g}\n",
              source.files, source.files_skipped, source.text.size(), hash,
              corpus.word_ids().size(), corpus.vocabulary(), lm::unigram_entropy(corpus.counts()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  lm::Flags flags("Numbers the words of a text for parallax_lm.");
  flags.add("corpus", &options.files, "text files; without it the headers below --headers");
  flags.add("headers", &options.headers, "root of the C and C++ headers");
  flags.add("out", &options.out, "the file to write");
  flags.add("bytes-max", &options.bytes_max, "most bytes of headers to read");
  flags.add("file-bytes-max", &options.file_bytes_max, "headers larger than this are left out");
  flags.add("words-max", &options.words_max, "most frequent words kept; others are <unk>");
  flags.parse(argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parallax_lm_corpus: %s\n", error.what());
    return 1;
  }
}
