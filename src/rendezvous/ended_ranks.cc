// SPDX-License-Identifier: Apache-2.0
// The file of ranks that have ended: see the header.
#include "rendezvous/ended_ranks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/codec.h"
#include "rendezvous/handshake.h"

namespace parallax {

namespace {

constexpr int64_t kLookNs = 100 * kNanosecondsPerMillisecond;
constexpr size_t kLineBytesMax = 1024;
constexpr size_t kPieceBytes = 16 * 1024;

// False: no rank's line.
bool parse(std::string_view line, EndedRank* ended) {
  const auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), ended->rank);
  const size_t number_bytes = static_cast<size_t>(end - line.data());
  const size_t tab = line.find('\t', number_bytes + 1);
  if (failure != std::errc() || number_bytes == line.size() || line[number_bytes] != '\t' ||
      tab == std::string_view::npos) {
    return false;
  }
  ended->host = line.substr(number_bytes + 1, tab - number_bytes - 1);
  ended->how = line.substr(tab + 1);
  return is_printable(ended->host) && is_printable(ended->how);
}

}  // namespace

std::string ended_line(const EndedRank& ended) {
  return std::to_string(ended.rank) + "\t" + ended.host + "\t" + ended.how + "\n";
}

Status ended_before_rendezvous(const EndedRank& ended, const std::string& where) {
  return peer_lost(rank_name(ended.rank, ended.host) + " ended (" + ended.how +
                   ") before all ranks met " + where);
}

std::string ended_ranks_file(const Environment& environment, uint32_t rank, uint32_t world) {
  const bool launched = environment("PARALLAX_RANK") == std::to_string(rank) &&
                        environment("PARALLAX_WORLD") == std::to_string(world);
  return launched ? environment(kEndedRanksVariable) : std::string();
}

EndedRanks::EndedRanks(const RendezvousOptions& options)
    : file_(options.ended_ranks),
      rank_(options.rank),
      world_(options.world),
      due_ns_(file_.empty() ? kNever : options.clock->now_ns()) {}

bool EndedRanks::open() {
  if (fd_.valid()) return true;
  UniqueFd file(::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat about = {};
  if (!file.valid() || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
      (about.st_uid != ::geteuid() && about.st_uid != 0) ||
      (about.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return false;
  }
  fd_ = std::move(file);
  return true;
}

void EndedRanks::look(int64_t now_ns) {
  if (now_ns < due_ns_) return;
  due_ns_ = now_ns + kLookNs;
  if (!open()) return;
  char piece[kPieceBytes];
  for (ssize_t bytes = 0; (bytes = ::read(fd_.get(), piece, sizeof piece)) > 0;) {
    partial_.append(piece, static_cast<size_t>(bytes));
    size_t from = 0;
    for (size_t end = 0; (end = partial_.find('\n', from)) != std::string::npos; from = end + 1) {
      take(std::string_view(partial_).substr(from, end - from));
    }
    partial_.erase(0, from);
    if (partial_.size() > kLineBytesMax) due_ns_ = kNever;  // no launcher's: read no more of it
    if (due_ns_ == kNever) return;
  }
}

void EndedRanks::take(std::string_view line) {
  EndedRank ended;
  if (!parse(line, &ended) || ended.rank >= world_ || ended.rank == rank_) return;
  if (find(ended.rank) == nullptr) all_.push_back(std::move(ended));
}

const EndedRank* EndedRanks::find(uint32_t rank) const {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [rank](const EndedRank& each) { return each.rank == rank; });
  return found == all_.end() ? nullptr : &*found;
}

}  // namespace parallax
