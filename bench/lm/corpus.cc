// SPDX-License-Identifier: Apache-2.0
#include "corpus.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <unordered_map>

#include "bits.h"

namespace lm {
namespace {

constexpr std::string_view kNumber = "<num>";
constexpr std::string_view kUnknown = "<unk>";

// The file: this header, then vocabulary x uint64 counts, then words x uint32 ids, then the words
// of the vocabulary, each ended by '\n' (for people; the ranks do not read them).
struct FileHeader {
  char magic[8];
  uint64_t vocabulary;
  uint64_t words;
  uint64_t text_bytes;
  uint64_t text_hash;
};
constexpr std::array<char, 8> kMagic = {'P', 'X', 'L', 'M', 'T', 'X', 'T', '1'};

bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }
bool is_word_byte(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c >= 0x80;
}

bool is_header(const std::filesystem::path& path) {
  static constexpr std::array<std::string_view, 8> kExtensions = {".h",   ".hh",  ".hpp", ".hxx",
                                                                  ".h++", ".tcc", ".ipp", ".inl"};
  const std::string extension = path.extension().string();
  if (std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end()) {
    return true;
  }
  // <vector> and its kind have none.
  return extension.empty() && path.string().find("/c++/") != std::string::npos;
}

uint64_t block_words_of(uint64_t words) {
  return std::clamp(words / kBlocksWanted, kBlockWordsMin, kBlockWordsMax);
}

std::string last_error(const std::string& what, const std::string& path) {
  return what + " '" + path + "': " + std::strerror(errno);
}

}  // namespace

std::vector<std::string_view> tokenize(std::string_view text) {
  std::vector<std::string_view> words;
  size_t i = 0;
  while (i < text.size()) {
    if (!is_word_byte(static_cast<unsigned char>(text[i]))) {
      ++i;
      continue;
    }
    const size_t start = i;
    while (i < text.size() && is_word_byte(static_cast<unsigned char>(text[i]))) ++i;
    const bool number = is_digit(static_cast<unsigned char>(text[start]));
    words.push_back(number ? kNumber : text.substr(start, i - start));
  }
  return words;
}

Source read_files(const std::vector<std::string>& paths) {
  Source source;
  for (const std::string& path : paths) {
    std::error_code why;
    if (std::filesystem::is_directory(path, why)) {
      throw std::runtime_error("the corpus file '" + path + "' is a directory; name its files");
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      throw std::runtime_error("cannot read the corpus file '" + path +
                               "': " + std::strerror(errno));
    }
    const size_t start = source.text.size();
    source.text.append(std::istreambuf_iterator<char>(file), {});
    const size_t zero = source.text.find('\0', start);
    if (zero != std::string::npos) {
      throw std::runtime_error("the corpus file '" + path + "' is no text: byte " +
                               std::to_string(zero - start) +
                               " is 0. Give text in UTF-8 or another encoding that extends ASCII");
    }
    source.text.push_back('\n');  // so that the last word of a file and the next one's first part
    ++source.files;
  }
  return source;
}

Source read_headers(const std::string& root, uint64_t bytes_max, uint64_t file_bytes_max) {
  namespace fs = std::filesystem;
  std::vector<std::pair<uint64_t, std::string>> paths;
  std::error_code ignored;  // a folder that cannot be read is not worth failing for
  fs::recursive_directory_iterator walk(root, fs::directory_options::skip_permission_denied,
                                        ignored);
  for (; walk != fs::recursive_directory_iterator(); walk.increment(ignored)) {
    if (walk->is_symlink(ignored) || !walk->is_regular_file(ignored)) continue;
    if (!is_header(walk->path())) continue;
    std::string path = walk->path().string();
    paths.emplace_back(fnv1a(path.data(), path.size()), std::move(path));
  }
  std::sort(paths.begin(), paths.end());

  Source source;
  for (const auto& [hash, path] : paths) {
    const uint64_t size = fs::file_size(path, ignored);
    if (ignored || size > file_bytes_max || source.text.size() + size > bytes_max) {
      source.files_skipped += ignored ? 1 : 0;
      continue;
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      ++source.files_skipped;
      continue;
    }
    const size_t start = source.text.size();
    source.text.append(std::istreambuf_iterator<char>(file), {});
    if (source.text.find('\0', start) != std::string::npos) {
      source.text.resize(start);
      ++source.files_skipped;
      continue;
    }
    source.text.push_back('\n');
    ++source.files;
  }
  return source;
}

Vocabulary number_words(std::string_view text, uint64_t words_max) {
  const std::vector<std::string_view> tokens = tokenize(text);
  std::unordered_map<std::string_view, uint64_t> tally;
  for (std::string_view word : tokens) ++tally[word];
  if (tokens.size() < kCorpusWordsMin || tally.size() < kDistinctWordsMin) {
    throw std::runtime_error("the corpus is too short: it has " + std::to_string(tokens.size()) +
                             " words, " + std::to_string(tally.size()) +
                             " of them distinct; at least " + std::to_string(kCorpusWordsMin) +
                             " words and " + std::to_string(kDistinctWordsMin) +
                             " distinct ones are needed. Give more text: --corpus FILE...");
  }

  using Entry = std::pair<std::string_view, uint64_t>;
  const auto before = [](const Entry& a, const Entry& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  };
  std::vector<Entry> entries(tally.begin(), tally.end());
  std::sort(entries.begin(), entries.end(), before);
  if (entries.size() > words_max) {
    uint64_t unknown = 0;
    for (size_t i = words_max; i < entries.size(); ++i) unknown += entries[i].second;
    entries.resize(words_max);
    const Entry entry{kUnknown, unknown};
    entries.insert(std::lower_bound(entries.begin(), entries.end(), entry, before), entry);
  }

  Vocabulary vocabulary;
  uint32_t unknown_id = 0;
  std::unordered_map<std::string_view, uint32_t> ids;
  for (const Entry& entry : entries) {
    const auto id = static_cast<uint32_t>(vocabulary.words.size());
    if (entry.first == kUnknown) unknown_id = id;  // no word of a text holds '<'
    ids.emplace(entry.first, id);
    vocabulary.words.emplace_back(entry.first);
    vocabulary.counts.push_back(entry.second);
  }
  vocabulary.word_ids.reserve(tokens.size());
  for (std::string_view word : tokens) {
    const auto found = ids.find(word);
    vocabulary.word_ids.push_back(found == ids.end() ? unknown_id : found->second);
  }
  return vocabulary;
}

double unigram_entropy(std::span<const uint64_t> counts) {
  double total = 0;
  for (uint64_t count : counts) total += static_cast<double>(count);
  double entropy = 0;
  for (uint64_t count : counts) {
    if (count == 0) continue;
    const double probability = static_cast<double>(count) / total;
    entropy -= probability * std::log(probability);
  }
  return entropy;
}

void write_corpus(const std::string& path, const Vocabulary& vocabulary, uint64_t text_bytes,
                  uint64_t text_hash) {
  FileHeader header = {};
  std::copy(kMagic.begin(), kMagic.end(), header.magic);
  header.vocabulary = vocabulary.counts.size();
  header.words = vocabulary.word_ids.size();
  header.text_bytes = text_bytes;
  header.text_hash = text_hash;

  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  const auto put = [&file](const void* data, size_t bytes) {
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  };
  put(&header, sizeof header);
  put(vocabulary.counts.data(), vocabulary.counts.size() * sizeof(uint64_t));
  put(vocabulary.word_ids.data(), vocabulary.word_ids.size() * sizeof(uint32_t));
  for (const std::string& word : vocabulary.words) file << word << '\n';
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    throw std::runtime_error(last_error("cannot write the corpus", path));
  }
}

Corpus::Corpus(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw std::runtime_error(last_error("cannot open the corpus", path));
  struct stat info = {};
  if (::fstat(fd, &info) == 0 && static_cast<size_t>(info.st_size) >= sizeof(FileHeader)) {
    map_bytes_ = static_cast<size_t>(info.st_size);
    map_ = ::mmap(nullptr, map_bytes_, PROT_READ, MAP_SHARED, fd, 0);
  }
  ::close(fd);
  if (map_ == nullptr || map_ == MAP_FAILED) {
    map_ = nullptr;
    throw std::runtime_error("'" + path + "' is not a corpus: make it with parallax_lm_corpus");
  }

  const auto* bytes = static_cast<const char*>(map_);
  FileHeader header;
  std::memcpy(&header, bytes, sizeof header);
  const uint64_t room = map_bytes_ - sizeof header;
  const bool sane =
      std::equal(kMagic.begin(), kMagic.end(), header.magic) &&
      header.vocabulary <= room / sizeof(uint64_t) &&
      header.words <= (room - header.vocabulary * sizeof(uint64_t)) / sizeof(uint32_t);
  if (!sane) {
    ::munmap(map_, map_bytes_);
    throw std::runtime_error("'" + path + "' is not a corpus: make it with parallax_lm_corpus");
  }
  text_bytes_ = header.text_bytes;
  text_hash_ = header.text_hash;
  block_words_ = block_words_of(header.words);
  const auto* counts = reinterpret_cast<const uint64_t*>(bytes + sizeof header);
  counts_ = {counts, header.vocabulary};
  word_ids_ = {reinterpret_cast<const uint32_t*>(counts + header.vocabulary), header.words};
}

Corpus::~Corpus() {
  if (map_ != nullptr) ::munmap(map_, map_bytes_);
}

// Only whole blocks count. Block b is held out when b % kHeldOutEvery is the last.
uint64_t Corpus::positions(bool held_out, uint32_t context) const {
  if (context >= block_words_) return 0;
  const uint64_t blocks = word_ids_.size() / block_words_;
  const uint64_t held_out_blocks = blocks / kHeldOutEvery;
  return (held_out ? held_out_blocks : blocks - held_out_blocks) * (block_words_ - context);
}

uint64_t Corpus::position(bool held_out, uint32_t context, uint64_t index) const {
  const uint64_t in_block = block_words_ - context;
  const uint64_t nth = index / in_block;
  const uint64_t block =
      held_out ? nth * kHeldOutEvery + (kHeldOutEvery - 1)
               : nth / (kHeldOutEvery - 1) * kHeldOutEvery + nth % (kHeldOutEvery - 1);
  return block * block_words_ + context + index % in_block;
}

}  // namespace lm
