// SPDX-License-Identifier: Apache-2.0
// Verdict and departures of a meeting in a directory: see the header.
#include "transport/rendezvous/meeting_end.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "transport/codec.h"

namespace parallax {

namespace {

constexpr const char* kVerdict = "verdict";
constexpr size_t kSentenceMax = 1024;

std::string gone_name(uint32_t rank) { return "gone." + std::to_string(rank); }

// The first line that a rank of ours would have written; OK if there is none.
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

bool is_meeting_file(const std::string& name) {
  for (const char* prefix : {"claim.", "alive.", "blob.", "gone.", "tmp."}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "job" || name == kVerdict;
}

Status MeetingEnd::open(const MeetingDirectory& directory) {
  directory_ = &directory;
  return directory.open_shared(kVerdict, &verdict_);
}

// By its name first: over NFS what was opened before shows only what was known then.
Status MeetingEnd::verdict() const {
  std::string text;
  bool there = false;
  UniqueFd file;
  const Status read = directory_->read(kVerdict, &text, &there, &file);
  if (!read.ok() || !there) (void)MeetingDirectory::read_all(verdict_, &text);
  return first_verdict(text);
}

void MeetingEnd::pronounce(const Status& why) const {
  if (!verdict().ok()) return;
  std::string line = std::to_string(why.code()) + " " + why.message().substr(0, kSentenceMax);
  std::replace_if(
      line.begin(), line.end(),
      [](char c) {
        return !is_printable({&c, 1});
      },
      ' ');
  (void)directory_->write(verdict_, kVerdict, line + "\n");  // at once, so lines stay whole
}

void MeetingEnd::mark_gone(uint32_t rank) const {
  bool exists = false;
  UniqueFd file;
  (void)directory_->create(gone_name(rank), &file, &exists);
}

bool MeetingEnd::is_gone(uint32_t rank) const { return directory_->has(gone_name(rank)); }

void MeetingEnd::remove_if_last(uint32_t world) const {
  for (uint32_t rank = 0; rank < world; ++rank) {
    if (!is_gone(rank)) return;
  }
  (void)directory_->remove(is_meeting_file);
}

}  // namespace parallax
