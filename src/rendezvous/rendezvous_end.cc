// SPDX-License-Identifier: Apache-2.0
// Verdict and departures of a rendezvous in a directory: see the header.
#include "rendezvous/rendezvous_end.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/codec.h"

namespace parallax {

namespace {

constexpr const char* kVerdict = "verdict";
constexpr size_t kSentenceMax = 1024;

std::string done_name(uint32_t rank) { return "done." + std::to_string(rank); }

// The first line in the form that ranks write; OK if there is none. Other lines are skipped: the
// file is input.
Status first_verdict(const std::string& text) {
  size_t at = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', at)) {
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    int code = 0;
    int sentence_at = 0;
    if (std::sscanf(line.c_str(), "%d %n", &code, &sentence_at) != 1 || code >= PARALLAX_OK ||
        code < PARALLAX_INTERNAL || static_cast<size_t>(sentence_at) >= line.size() ||
        !is_printable(line)) {
      continue;
    }
    return {static_cast<parallax_status_t>(code), line.substr(static_cast<size_t>(sentence_at))};
  }
  return {};
}

}  // namespace

bool is_rendezvous_file(const std::string& name) {
  for (const char* prefix : {"claim.", "keepalive.", "blob.", "done.", "tmp."}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "job" || name == kVerdict;
}

Status RendezvousEnd::open(const RendezvousDirectory& directory) {
  directory_ = &directory;
  return directory.open_shared(kVerdict, &verdict_);
}

// The file is read by its name first: over NFS the descriptor that was opened earlier may show only
// what was there then.
Status RendezvousEnd::verdict() const {
  std::string text;
  bool there = false;
  UniqueFd file;
  const Status read = directory_->read(kVerdict, &text, &there, &file);
  if (!read.ok() || !there) (void)RendezvousDirectory::read_all(verdict_, &text);
  return first_verdict(text);
}

void RendezvousEnd::pronounce(const Status& why) const {
  if (!verdict().ok()) return;
  std::string line = std::to_string(why.code()) + " " + why.message().substr(0, kSentenceMax);
  std::replace_if(
      line.begin(), line.end(),
      [](char c) {
        return !is_printable({&c, 1});
      },
      ' ');
  (void)directory_->write(verdict_, kVerdict, line + "\n");  // one write: lines stay whole
}

void RendezvousEnd::mark_done(uint32_t rank) const {
  bool exists = false;
  UniqueFd file;
  (void)directory_->create(done_name(rank), &file, &exists);
}

bool RendezvousEnd::is_done(uint32_t rank) const { return directory_->has(done_name(rank)); }

void RendezvousEnd::remove_if_last(uint32_t world) const {
  for (uint32_t rank = 0; rank < world; ++rank) {
    if (!is_done(rank)) return;
  }
  (void)directory_->remove(is_rendezvous_file);
}

}  // namespace parallax
