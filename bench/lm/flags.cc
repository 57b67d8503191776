// SPDX-License-Identifier: Apache-2.0
#include "flags.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace lm {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  std::fprintf(stderr, "%s (--help lists the options)\n", sentence.c_str());
  std::exit(2);
}

uint64_t whole_number(const std::string& name, const std::string& text, uint64_t most) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(text.c_str(), &end, 0);
  const bool digits = !text.empty() && text[0] >= '0' && text[0] <= '9';
  if (!digits || *end != '\0' || errno != 0 || value > most) {
    refuse("--" + name + " needs a whole number up to " + std::to_string(most) + ", not '" + text +
           "'");
  }
  return value;
}

double real_number(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') refuse("--" + name + " needs a number, not '" + text + "'");
  return value;
}

struct Store {
  const std::string& name;
  const std::string& text;
  void operator()(bool* target) const { *target = true; }
  void operator()(uint32_t* target) const {
    *target = static_cast<uint32_t>(whole_number(name, text, std::numeric_limits<uint32_t>::max()));
  }
  void operator()(uint64_t* target) const {
    *target = whole_number(name, text, std::numeric_limits<uint64_t>::max());
  }
  void operator()(double* target) const { *target = real_number(name, text); }
  void operator()(std::string* target) const { *target = text; }
  void operator()(std::vector<std::string>* target) const { target->push_back(text); }
};

}  // namespace

void Flags::add(std::string name, Target target, std::string help) {
  entries_.push_back({std::move(name), target, std::move(help)});
}

const Flags::Entry* Flags::find(const std::string& name) const {
  for (const Entry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

void Flags::print_help(const char* program) const {
  std::printf("usage: %s [--option value]...\n\n%s\n\n", program, summary_.c_str());
  for (const Entry& entry : entries_) {
    std::printf("  --%-20s %s\n", entry.name.c_str(), entry.help.c_str());
  }
}

void Flags::parse(int argc, char** argv) const {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      print_help(argv[0]);
      std::exit(0);
    }
    if (word.rfind("--", 0) != 0) refuse("unexpected argument '" + word + "'");
    const std::string name = word.substr(2);
    const Entry* entry = find(name);
    if (entry == nullptr) refuse("no option '" + word + "'");
    if (std::holds_alternative<bool*>(entry->target)) {
      std::visit(Store{name, word}, entry->target);
      continue;
    }
    const bool list = std::holds_alternative<std::vector<std::string>*>(entry->target);
    if (i + 1 >= argc) refuse(word + " needs a value");
    do {
      const std::string text = argv[++i];
      std::visit(Store{name, text}, entry->target);
    } while (list && i + 1 < argc && std::string(argv[i + 1]).rfind("--", 0) != 0);
  }
}

}  // namespace lm
