// SPDX-License-Identifier: Apache-2.0
// FileRendezvous: see the header for the files, threads and what blocks. Files are other ranks':
// their sizes and contents are checked.
#include "rendezvous/file_rendezvous.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/rank_list.h"
#include "base/threads.h"
#include "rendezvous/rendezvous_claim.h"
#include "transport/endpoint.h"

namespace parallax {

namespace {

constexpr int64_t kPollMillisecondsMax = 50;
constexpr int64_t kPollsPerLease = 10;
constexpr int kRenewalsPerLease = 5;
constexpr int kEnterTriesMax = 5;
constexpr int64_t kReadersPollMs = 10;
constexpr int64_t kReadersPatienceMs = 4 * kPollMillisecondsMax;
constexpr int64_t kOpenersPatienceMs = 5000;  // a rank that died in open never marks itself done

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

}  // namespace

FileRendezvous::FileRendezvous(const RendezvousOptions& options)
    : options_(options),
      poll_ms_max_(std::clamp<int64_t>(options.lease_ms / kPollsPerLease, 1, kPollMillisecondsMax)),
      looked_ns_(options.clock->now_ns()),
      ended_(options),
      keepalives_(options.world),
      brought_(options.world) {}

// Tries again if the directory was removed while this rank entered it: the last rank of an earlier
// job in the same directory has just done so.
Status FileRendezvous::create(const RendezvousOptions& options, const std::string& directory,
                              std::unique_ptr<FileRendezvous>* rendezvous) {
  Status entered;
  for (int tries = 0; tries < kEnterTriesMax; ++tries) {
    std::unique_ptr<FileRendezvous> made(new FileRendezvous(options));
    entered = made->enter(directory);
    const bool in_place = made->directory_.is_in_place();
    if (entered.ok() && in_place) {
      PARALLAX_RETURN_IF_ERROR(start_thread(&made->renewer_, [raw = made.get()] { raw->renew(); }));
      *rendezvous = std::move(made);
      return {};
    }
    if (in_place) {
      if (made->claim_.valid()) made->leave(entered);
      break;
    }
    // The directory is gone, but the verdict is still open: a rank that was stopped while the
    // others met learns here why they gave up.
    if (made->claim_.valid()) PARALLAX_RETURN_IF_ERROR(made->verdict());
  }
  if (!entered.ok()) return entered;
  return io_error("options.rendezvous: " + directory + " is removed again and again");
}

Status FileRendezvous::enter(const std::string& directory) {
  PARALLAX_RETURN_IF_ERROR(RendezvousDirectory::open(directory, &directory_));
  PARALLAX_RETURN_IF_ERROR(check_directory());
  const Status opened = end_.open(directory_);
  if (!opened.ok()) return opened.prefixed("options.rendezvous: cannot write ");
  PARALLAX_RETURN_IF_ERROR(take_claim(directory_, options_.rank, options_.host, &claim_));
  {
    const MutexLock lock(mutex_);
    PARALLAX_RETURN_IF_ERROR(write_keepalive());
  }
  if (options_.rank != 0) return {};
  job_ = random_job();
  std::array<char, 64> text;
  const int bytes =
      std::snprintf(text.data(), text.size(), "%016" PRIx64 " %" PRIu32 "\n", job_, options_.world);
  return directory_.replace("job", std::string(text.data(), static_cast<size_t>(bytes)));
}

FileRendezvous::~FileRendezvous() {
  if (claim_.valid()) leave({});
  stop_renewing();
  if (!left_ || !timed_out_ || options_.rank != 0) return;
  // A rank that has not come by now finds no directory, and waits for rank 0 in a new one instead
  // of reading a verdict of a job that has ended.
  await_readers(kReadersPatienceMs);
  (void)directory_.remove(is_rendezvous_file);
}

void FileRendezvous::leave(const Status& why) {
  if (left_ || bootstrapped_) return;
  left_ = true;
  stop_renewing();
  end_.pronounce(departed(options_.rank, options_.host, why));
  release_claim();
}

void FileRendezvous::finish_bootstrap() {
  if (bootstrapped_) return;
  bootstrapped_ = true;
  stop_renewing();
  if (!left_) release_claim();
}

// This rank no longer needs the rendezvous. Whatever it wrote was written before its claim is
// released, since the others take a released claim for a rank that ended. Its open files are closed
// before the directory is removed, or NFS would keep them there under another name.
void FileRendezvous::release_claim() {
  end_.mark_done(options_.rank);
  claim_.reset();
  end_.close();
  end_.remove_if_last(options_.world);
}

// Ranks that still wait read the verdict when they next poll, and then leave and mark themselves
// done.
void FileRendezvous::await_readers(int64_t patience_ms) const {
  for (int64_t waited_ms = 0; waited_ms < patience_ms; waited_ms += kReadersPollMs) {
    bool waits = false;
    for (uint32_t rank = 0; rank < options_.world; ++rank) {
      waits = waits || (directory_.has(claim_name(rank)) && !end_.is_done(rank));
    }
    if (!waits) return;
    pause(kReadersPollMs);
  }
}

Status FileRendezvous::check_directory() const {
  std::vector<std::string> names;
  const Status listed = directory_.list(&names);
  if (!listed.ok()) return listed.prefixed("options.rendezvous: ");
  for (const std::string& name : names) {
    if (!is_rendezvous_file(name)) {
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

Status FileRendezvous::write_keepalive() {
  return directory_.replace("keepalive." + std::to_string(options_.rank),
                            std::to_string(++counter_) + " " + options_.host + "\n");
}

void FileRendezvous::renew() {
  const std::chrono::milliseconds pace(
      std::max<uint32_t>(1, options_.lease_ms / kRenewalsPerLease));
  const MutexLock lock(mutex_);
  while (true) {
    const auto next = std::chrono::steady_clock::now() + pace;
    while (!stopping_ && stop_.wait_until(mutex_, next)) continue;
    if (stopping_) return;
    (void)write_keepalive();  // if this fails, the caller's own writes fail too and report it
  }
}

void FileRendezvous::stop_renewing() {
  if (!renewer_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  renewer_.join();
}

Status FileRendezvous::allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                                 std::vector<std::string>* all) {
  PARALLAX_CHECK(mine.size() <= kEndpointBytesMax && !bootstrapped_);
  std::fill(brought_.begin(), brought_.end(), false);
  PARALLAX_RETURN_IF_ERROR(still_on());
  if (job_ == 0) PARALLAX_RETURN_IF_ERROR(learn_job(deadline_ns));
  std::string blob(sizeof job_, '\0');
  std::memcpy(blob.data(), &job_, sizeof job_);
  blob.append(reinterpret_cast<const char*>(mine.data()), mine.size());
  const Status written = directory_.replace(blob_name(options_.rank), blob);
  if (!written.ok()) {
    PARALLAX_RETURN_IF_ERROR(still_on());
    return written;
  }
  all->assign(options_.world, {});
  int64_t speak_ns = options_.clock->now_ns() + kSilenceNs;
  for (int64_t wait_ms = 1;; wait_ms = std::min(2 * wait_ms, poll_ms_max_)) {
    bool whole = false;
    PARALLAX_RETURN_IF_ERROR(read_blobs(all, &whole));
    if (whole) break;
    const Status on = look_around(deadline_ns, &speak_ns);
    if (!on.ok()) {
      // A quicker rank may have read all of them meanwhile, and left for what they say: then this
      // rank is to learn it from them too, not that the other has gone.
      if (timed_out_ || !read_blobs(all, &whole).ok() || !whole) return on;
      break;
    }
    pause(wait_ms);
  }
  ++round_;
  return {};
}

// Those of this round that are there and were not read yet; *whole: none is missing now.
Status FileRendezvous::read_blobs(std::vector<std::string>* all, bool* whole) {
  *whole = true;
  for (uint32_t rank = 0; rank < options_.world; ++rank) {
    if (brought_[rank]) continue;
    bool found = false;
    PARALLAX_RETURN_IF_ERROR(read_blob(rank, &(*all)[rank], &found));
    brought_[rank] = found;
    *whole &= found;
  }
  return {};
}

std::string FileRendezvous::blob_name(uint32_t rank) const {
  return "blob." + std::to_string(round_) + "." + std::to_string(rank);
}

// Waits for the job's number from rank 0: without it a blob that an earlier job left behind could
// be taken for one of this job.
Status FileRendezvous::learn_job(int64_t deadline_ns) {
  int64_t speak_ns = options_.clock->now_ns() + kSilenceNs;
  for (int64_t wait_ms = 1;; wait_ms = std::min(2 * wait_ms, poll_ms_max_)) {
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
    PARALLAX_RETURN_IF_ERROR(look_around(deadline_ns, &speak_ns));
    pause(wait_ms);
  }
}

Status FileRendezvous::read_blob(uint32_t rank, std::string* blob, bool* found) const {
  const std::string file = blob_name(rank);
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

// Checks whether this rank should stop waiting for the ranks whose blobs are missing. The order is
// each missing rank's claim and keepalive, then the verdict, then its blob once more: a rank writes
// its blob and the verdict before it releases its claim, so one that was released with neither is
// lost.
Status FileRendezvous::look_around(int64_t deadline_ns, int64_t* speak_ns) {
  const int64_t now_ns = options_.clock->now_ns();
  // This rank was itself stopped or starved: the silence it sees may be its own.
  const bool held_up = now_ns - looked_ns_ > lease_ns() / 2;
  looked_ns_ = now_ns;
  ended_.look(now_ns);
  Status lost;
  uint32_t who = 0;
  for (uint32_t rank = 0; rank < options_.world && lost.ok(); ++rank) {
    if (rank == options_.rank || brought_[rank]) continue;
    if (held_up) keepalives_[rank].changed_ns = now_ns;
    PARALLAX_RETURN_IF_ERROR(look_after(rank, &lost));
    who = rank;
  }
  PARALLAX_RETURN_IF_ERROR(still_on());
  if (!lost.ok() && !directory_.has(blob_name(who))) {  // else it is through: no loss
    end_.pronounce(lost);
    end_.mark_done(who);
    for (const EndedRank& each : ended_.all()) {
      if (!directory_.has(claim_name(each.rank))) end_.mark_done(each.rank);
    }
    const Status said = end_.verdict();  // another rank may have written one first
    return said.ok() ? lost : said;
  }
  if (now_ns >= deadline_ns) {
    timed_out_ = true;
    return missed_deadline("in " + directory_.path(), missing());
  }
  if (now_ns >= *speak_ns) {
    *speak_ns = now_ns + kSilenceNs;
    say_waiting("in " + directory_.path(), missing(), deadline_ns - now_ns);
  }
  return {};
}

// Reads a rank's keepalive and its claim. *lost says why the rank counts as lost, and stays OK if
// it does not.
Status FileRendezvous::look_after(uint32_t rank, Status* lost) {
  PeerKeepalive& keepalive = keepalives_[rank];
  std::string text;
  bool there = false;
  PARALLAX_RETURN_IF_ERROR(directory_.read("keepalive." + std::to_string(rank), &text, &there));
  uint64_t counter = 0;
  if (there && std::sscanf(text.c_str(), "%" SCNu64, &counter) == 1 &&
      (!keepalive.seen || keepalive.counter != counter)) {
    keepalive.seen = true;
    keepalive.counter = counter;
    keepalive.changed_ns = options_.clock->now_ns();
  }
  Claim claim;
  PARALLAX_RETURN_IF_ERROR(look_at_claim(directory_, rank, &claim));
  if (claim.taken) keepalive.host = claim.host;
  const std::string name = "rank " + std::to_string(rank) + " (host " + keepalive.host + ")";
  const int64_t silent_ns = options_.clock->now_ns() - keepalive.changed_ns;
  const EndedRank* const ended = ended_.find(rank);
  if (ended != nullptr && (!claim.taken || claim.let_go)) {
    *lost = ended_before_rendezvous(*ended, "in " + directory_.path());
  } else if (claim.let_go) {
    *lost = peer_lost(name + " ended without a word while ranks met in " + directory_.path() +
                      ": it was killed or crashed, or the directory is an earlier job's");
  } else if (keepalive.seen &&
             silent_ns >= lease_ns() / kRenewalsPerLease * (kRenewalsPerLease - 1)) {
    *lost = peer_lost(name + " sent no keepalive for " +
                      std::to_string(silent_ns / kNanosecondsPerMillisecond) +
                      " ms while ranks met in " + directory_.path() +
                      ": it has ended or is stopped, or the directory is an earlier job's");
  }
  return {};
}

Status FileRendezvous::verdict() { return left_ || bootstrapped_ ? Status() : end_.verdict(); }

// OK while the rendezvous goes on.
Status FileRendezvous::still_on() const {
  PARALLAX_RETURN_IF_ERROR(end_.verdict());
  if (directory_.has(claim_name(options_.rank))) return {};
  return peer_lost("the rendezvous is over: " + directory_.path() +
                   " was removed before all ranks had met");
}

std::string FileRendezvous::missing() const {
  std::vector<uint32_t> absent;
  std::vector<uint32_t> late;
  for (uint32_t rank = 0; rank < options_.world; ++rank) {
    if (rank == options_.rank || brought_[rank]) continue;
    if (job_ == 0 && rank != 0 && keepalives_[rank].seen) continue;  // it waits for rank 0 too
    (keepalives_[rank].seen ? late : absent).push_back(rank);
  }
  return describe_missing(absent, late);
}

Status FileRendezvous::finish() {
  finish_bootstrap();
  if (options_.rank != 0) return {};
  // If the job failed right after open, some ranks may still be opening.
  await_readers(kOpenersPatienceMs);
  return directory_.remove(is_rendezvous_file);
}

}  // namespace parallax
