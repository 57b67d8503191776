// SPDX-License-Identifier: Apache-2.0
// FileRendezvous: see the header for the files, threads and what blocks. Files are other ranks':
// their sizes and contents are checked.
#include "transport/rendezvous/file_rendezvous.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/threads.h"
#include "transport/endpoint.h"
#include "transport/rendezvous/rank_list.h"

namespace parallax {

namespace {

constexpr int64_t kPollMillisecondsMax = 50;
constexpr int kRenewalsPerLease = 5;
constexpr size_t kReasonBytesMax = 1024;
constexpr int64_t kReadersPollMs = 10;
constexpr int64_t kReadersPatienceMs = 4 * kPollMillisecondsMax;
static_assert(kReasonBytesMax + PARALLAX_NAME_MAX + 64 <= kMeetingFileBytesMax);

bool is_ours(const std::string& name) {
  for (const char* prefix : {"claim.", "alive.", "blob.", "tmp."}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "job";
}

uint64_t random_job() {
  uint64_t number = 0;
  while (number == 0) {
    if (::getrandom(&number, sizeof number, 0) != sizeof number) number = 0;
  }
  return number;
}

void pause(int64_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// The second line of a sign of life: "-5 sentence". OK when there is none, or none that a rank of
// ours would have written.
Status reason_of(const std::string& text) {
  int code = 0;
  int sentence_at = 0;
  if (std::sscanf(text.c_str(), "%d %n", &code, &sentence_at) != 1 || code >= PARALLAX_OK ||
      code < PARALLAX_INTERNAL) {
    return {};
  }
  std::string sentence = text.substr(static_cast<size_t>(sentence_at));
  sentence.erase(std::min(sentence.find('\n'), sentence.size()));
  return {static_cast<parallax_status_t>(code), sentence};
}

}  // namespace

FileRendezvous::FileRendezvous(const RendezvousOptions& options)
    : options_(options), sightings_(options.world), brought_(options.world) {}

Status FileRendezvous::create(const RendezvousOptions& options, const std::string& directory,
                              std::unique_ptr<FileRendezvous>* rendezvous) {
  std::unique_ptr<FileRendezvous> made(new FileRendezvous(options));
  PARALLAX_RETURN_IF_ERROR(MeetingDirectory::open(directory, &made->directory_));
  PARALLAX_RETURN_IF_ERROR(made->check_directory());
  PARALLAX_RETURN_IF_ERROR(made->claim());
  PARALLAX_RETURN_IF_ERROR(made->write_alive("here"));
  if (options.rank == 0) {
    made->job_ = random_job();
    std::array<char, 64> text;
    const int bytes = std::snprintf(text.data(), text.size(), "%016" PRIx64 " %" PRIu32 "\n",
                                    made->job_, options.world);
    PARALLAX_RETURN_IF_ERROR(
        made->directory_.replace("job", std::string(text.data(), static_cast<size_t>(bytes))));
  }
  PARALLAX_RETURN_IF_ERROR(start_thread(&made->renewer_, [raw = made.get()] { raw->renew(); }));
  *rendezvous = std::move(made);
  return {};
}

FileRendezvous::~FileRendezvous() {
  if (claimed_ && !settled_) leave({});
  settle();
  if (!left_ || options_.rank != 0) return;
  // Without rank 0 nobody can meet here any more.
  await_readers();
  (void)directory_.remove(is_ours);
}

void FileRendezvous::leave(const Status& why) {
  if (left_ || finished_) return;
  settle();
  left_ = true;
  std::string reason;
  if (!why.ok()) {
    reason = std::to_string(why.code()) + " " + why.message().substr(0, kReasonBytesMax);
    std::replace(reason.begin(), reason.end(), '\n', ' ');
  }
  (void)write_alive("left", reason);
}

// Those that wait read the reason at their next look, and leave in their turn.
void FileRendezvous::await_readers() {
  for (int64_t waited_ms = 0; waited_ms < kReadersPatienceMs; waited_ms += kReadersPollMs) {
    bool waits = false;
    for (uint32_t rank = 0; rank < options_.world; ++rank) {
      if (rank == options_.rank || !look_at(rank).ok()) continue;
      waits = waits || (sightings_[rank].seen && !sightings_[rank].left);
    }
    if (!waits) return;
    pause(kReadersPollMs);
  }
}

Status FileRendezvous::check_directory() const {
  std::vector<std::string> names;
  const Status listed = directory_.list(&names);
  if (!listed.ok()) return {listed.code(), "options.rendezvous: " + listed.message()};
  for (const std::string& name : names) {
    if (!is_ours(name)) {
      return invalid("options.rendezvous: " + directory_.path() + " holds '" + name +
                     "', which is no rank's: give a new or empty directory");
    }
    if (options_.rank == 0 && name == "job") {
      return invalid("options.rendezvous: " + directory_.path() +
                     " was used by another job, or rank 0 was started twice: give every job a "
                     "new or empty directory");
    }
  }
  return {};
}

Status FileRendezvous::claim() {
  const std::string file = "claim." + std::to_string(options_.rank);
  const std::string mine =
      "process " + std::to_string(::getpid()) + " on host " + options_.host + "\n";
  bool exists = false;
  const Status made = directory_.create(file, mine, &exists);
  claimed_ = made.ok();
  if (made.ok()) return {};
  if (!exists) return {made.code(), "options.rendezvous: cannot write " + made.message()};
  std::string holder;
  bool there = false;
  PARALLAX_RETURN_IF_ERROR(directory_.read(file, &holder, &there));
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return invalid("rank " + std::to_string(options_.rank) + " was claimed in " + directory_.path() +
                 " by " + (holder.empty() ? "another process" : holder) +
                 ": two ranks have one number, or the directory was used by another job; give "
                 "every job a new or empty directory");
}

Status FileRendezvous::write_alive(const std::string& state, const std::string& reason) {
  std::string text = std::to_string(++counter_) + " " + state + " " + options_.host + "\n";
  if (!reason.empty()) text += reason + "\n";
  return directory_.replace("alive." + std::to_string(options_.rank), text);
}

void FileRendezvous::renew() {
  const std::chrono::milliseconds pace(
      std::max<uint32_t>(1, options_.lease_ms / kRenewalsPerLease));
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, pace, [this] { return stopping_; })) {
    (void)write_alive("here");  // if it fails, so will the caller's own files, and that is told
  }
}

void FileRendezvous::settle() {
  settled_ = true;
  if (!renewer_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  renewer_.join();
}

Status FileRendezvous::allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                                 std::vector<std::string>* all) {
  PARALLAX_CHECK(mine.size() <= kEndpointBytesMax && !settled_);
  std::fill(brought_.begin(), brought_.end(), false);
  if (job_ == 0) PARALLAX_RETURN_IF_ERROR(learn_job(deadline_ns));
  std::string blob(sizeof job_, '\0');
  std::memcpy(blob.data(), &job_, sizeof job_);
  blob.append(reinterpret_cast<const char*>(mine.data()), mine.size());
  Status written = directory_.replace(
      "blob." + std::to_string(round_) + "." + std::to_string(options_.rank), blob);
  if (!written.ok()) {
    PARALLAX_RETURN_IF_ERROR(still_there());
    return written;
  }
  all->assign(options_.world, {});
  uint32_t missing_count = options_.world;
  int64_t speak_ns = options_.clock->now_ns() + kSilenceNs;
  for (int64_t wait_ms = 1;; wait_ms = std::min(2 * wait_ms, kPollMillisecondsMax)) {
    for (uint32_t rank = 0; rank < options_.world; ++rank) {
      if (brought_[rank]) continue;
      bool found = false;
      PARALLAX_RETURN_IF_ERROR(read_blob(rank, &(*all)[rank], &found));
      brought_[rank] = found;
      if (found) --missing_count;
    }
    if (missing_count == 0) break;
    PARALLAX_RETURN_IF_ERROR(still_there());
    for (uint32_t rank = 0; rank < options_.world; ++rank) {
      if (!brought_[rank]) PARALLAX_RETURN_IF_ERROR(look_after(rank));
    }
    PARALLAX_RETURN_IF_ERROR(check_late(deadline_ns, &speak_ns));
    pause(wait_ms);
  }
  ++round_;
  return {};
}

// Waits for rank 0's number, without which a blob of an earlier job could be taken for one of this.
Status FileRendezvous::learn_job(int64_t deadline_ns) {
  int64_t speak_ns = options_.clock->now_ns() + kSilenceNs;
  for (int64_t wait_ms = 1;; wait_ms = std::min(2 * wait_ms, kPollMillisecondsMax)) {
    std::string text;
    bool there = false;
    PARALLAX_RETURN_IF_ERROR(directory_.read("job", &text, &there));
    if (there) {
      uint64_t job = 0;
      uint32_t world = 0;
      if (std::sscanf(text.c_str(), "%16" SCNx64 " %" SCNu32, &job, &world) != 2 || job == 0) {
        return io_error(directory_.path_of("job") +
                        " is unreadable: give a new or empty directory");
      }
      if (world != options_.world) {
        return {PARALLAX_MISMATCH, "rank " + std::to_string(options_.rank) + " says world " +
                                       std::to_string(options_.world) + ", rank 0 says " +
                                       std::to_string(world) + " (in " + directory_.path() + ")"};
      }
      job_ = job;
      return {};
    }
    PARALLAX_RETURN_IF_ERROR(still_there());
    for (uint32_t rank = 0; rank < options_.world; ++rank) {
      if (rank != options_.rank) PARALLAX_RETURN_IF_ERROR(look_after(rank));
    }
    PARALLAX_RETURN_IF_ERROR(check_late(deadline_ns, &speak_ns));
    pause(wait_ms);
  }
}

Status FileRendezvous::read_blob(uint32_t rank, std::string* blob, bool* found) const {
  const std::string file = "blob." + std::to_string(round_) + "." + std::to_string(rank);
  std::string content;
  bool there = false;
  PARALLAX_RETURN_IF_ERROR(directory_.read(file, &content, &there));
  if (!there) return {};
  uint64_t job = 0;
  if (content.size() < sizeof job) return io_error(directory_.path_of(file) + " is unreadable");
  std::memcpy(&job, content.data(), sizeof job);
  if (job != job_) {
    return invalid(directory_.path_of(file) +
                   " is of another job: give every job a new or empty directory");
  }
  *blob = content.substr(sizeof job);
  *found = true;
  return {};
}

// Reads a rank's sign of life, if it has shown one, into its sighting.
Status FileRendezvous::look_at(uint32_t rank) {
  Sighting& sighting = sightings_[rank];
  std::string text;
  bool there = false;
  PARALLAX_RETURN_IF_ERROR(directory_.read("alive." + std::to_string(rank), &text, &there));
  if (!there) return {};
  uint64_t counter = 0;
  std::array<char, 8> state{};
  int host_at = 0;
  if (std::sscanf(text.c_str(), "%" SCNu64 " %7s %n", &counter, state.data(), &host_at) != 2) {
    return {};
  }
  if (sighting.seen && sighting.counter == counter) return {};
  sighting.seen = true;
  sighting.counter = counter;
  sighting.changed_ns = options_.clock->now_ns();
  const size_t host_end = std::min(text.find('\n'), text.size());
  sighting.host =
      text.substr(static_cast<size_t>(host_at), host_end - static_cast<size_t>(host_at));
  sighting.left = std::strcmp(state.data(), "left") == 0;
  sighting.why = sighting.left ? reason_of(text.substr(host_end)) : Status();
  return {};
}

Status FileRendezvous::look_after(uint32_t rank) {
  PARALLAX_RETURN_IF_ERROR(look_at(rank));
  const Sighting& sighting = sightings_[rank];
  if (!sighting.seen) return {};
  if (sighting.left) return departed(rank, sighting.host, sighting.why);
  const int64_t silent_ns = options_.clock->now_ns() - sighting.changed_ns;
  const int64_t lease_ns = options_.lease_ms * kNanosecondsPerMillisecond;
  if (silent_ns < lease_ns / kRenewalsPerLease * (kRenewalsPerLease - 1)) return {};
  return peer_lost(
      "rank " + std::to_string(rank) + " (host " + sighting.host + ") gave no sign of life for " +
      std::to_string(silent_ns / kNanosecondsPerMillisecond) + " ms while ranks met in " +
      directory_.path() + ": it has ended or is stopped, or the directory is an earlier job's");
}

Status FileRendezvous::verdict() {
  for (uint32_t rank = 0; rank < options_.world; ++rank) {
    if (rank == options_.rank) continue;
    (void)look_at(rank);  // what cannot be read tells no verdict
    if (!sightings_[rank].why.ok()) {
      return departed(rank, sightings_[rank].host, sightings_[rank].why);
    }
  }
  return {};
}

Status FileRendezvous::still_there() const {
  if (directory_.has("claim." + std::to_string(options_.rank))) return {};
  return peer_lost("rank 0 ended the meeting and removed " + directory_.path());
}

Status FileRendezvous::check_late(int64_t deadline_ns, int64_t* speak_ns) const {
  const int64_t now_ns = options_.clock->now_ns();
  if (now_ns >= deadline_ns) return missed_deadline("in " + directory_.path(), missing());
  if (now_ns >= *speak_ns) {
    *speak_ns = kNever;
    say_waiting("in " + directory_.path(), missing(), deadline_ns - now_ns);
  }
  return {};
}

std::string FileRendezvous::missing() const {
  std::vector<uint32_t> absent;
  std::vector<uint32_t> late;
  for (uint32_t rank = 0; rank < options_.world; ++rank) {
    if (rank == options_.rank || brought_[rank]) continue;
    if (job_ == 0 && rank != 0 && sightings_[rank].seen) continue;  // waits for rank 0 as we do
    (sightings_[rank].seen ? late : absent).push_back(rank);
  }
  return describe_missing(absent, late);
}

Status FileRendezvous::finish() {
  settle();
  finished_ = true;
  return options_.rank == 0 ? directory_.remove(is_ours) : Status();
}

}  // namespace parallax
