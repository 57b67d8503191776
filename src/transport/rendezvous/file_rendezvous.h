// SPDX-License-Identifier: Apache-2.0
// FileRendezvous: ranks meet in a directory that all can write ("file:DIR"), one per job.
// meeting_directory.h says whose directory is believed.
//
//   claim.R, verdict, gone.R     see meeting_claim.h and meeting_end.h
//   job              by rank 0: a random number and the world; every blob carries the number
//   blob.K.R         what rank R brings to round K, by rename, so that it is seen whole or not
//   alive.R          R's sign of life, by rename: a counter
//
// A rank that ends is noticed at its claim, whose lock goes with it. For those whose locks are not
// seen, and for one that is stopped, a thread of each rank renews its alive.R every lease_ms / 5
// from create() to settle(), also between rounds. It is judged by the clock of the one that looks:
// lost when the counter stands still for four fifths of lease_ms, so that all know of it within
// lease_ms. File times are never used.
//
// Whoever leaves, or sees another lost, writes the verdict before it is gone, and all that wait, or
// come later, repeat it. The directory goes with the last that needs it: once all are through, or
// have left or been lost. Where some never come, rank 0 removes it at its deadline.
//
// allgather() polls the directory, 1 ms at first, 50 ms at most. One thread calls; the thread that
// renews shares only what mutex_ guards.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_FILE_RENDEZVOUS_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_FILE_RENDEZVOUS_H_

#include <thread>

#include "base/mutex.h"
#include "transport/rendezvous/ended_ranks.h"
#include "transport/rendezvous/meeting_directory.h"
#include "transport/rendezvous/meeting_end.h"
#include "transport/rendezvous/rendezvous.h"

namespace parallax {

class FileRendezvous final : public Rendezvous {
 public:
  // Makes `directory` if needed, claims the rank and starts the signs of life.
  static Status create(const RendezvousOptions& options, const std::string& directory,
                       std::unique_ptr<FileRendezvous>* rendezvous);
  ~FileRendezvous() override;

  std::string_view name() const override { return "file"; }
  Status allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                   std::vector<std::string>* all) override;
  void leave(const Status& why) override;
  Status verdict() override;
  void settle() override;
  Status finish() override;

 private:
  // What this rank knows of another's signs of life.
  struct Sighting {
    bool seen = false;
    uint64_t counter = 0;
    int64_t changed_ns = 0;
    std::string host;
  };

  explicit FileRendezvous(const RendezvousOptions& options);

  Status enter(const std::string& directory);
  Status check_directory() const;
  Status write_alive() PARALLAX_REQUIRES(mutex_);
  void renew();
  void stop_renewing();
  void part();
  void await_readers(int64_t patience_ms) const;
  Status learn_job(int64_t deadline_ns);
  std::string blob_name(uint32_t rank) const;
  Status read_blob(uint32_t rank, std::string* blob, bool* found) const;
  Status look_around(int64_t deadline_ns, int64_t* speak_ns);
  Status look_after(uint32_t rank, Status* lost);
  Status still_on() const;
  std::string missing() const;
  int64_t lease_ns() const { return options_.lease_ms * kNanosecondsPerMillisecond; }

  const RendezvousOptions options_;
  const int64_t poll_ms_max_;
  MeetingDirectory directory_;
  MeetingEnd end_;
  UniqueFd claim_;    // from enter() until this rank needs the meeting no more
  uint64_t job_ = 0;  // 0: not known yet
  uint64_t round_ = 0;
  int64_t looked_ns_;
  EndedRanks ended_;
  std::vector<Sighting> sightings_;
  std::vector<bool> brought_;  // in the round under way
  bool timed_out_ = false;
  bool settled_ = false;
  bool left_ = false;

  Mutex mutex_;
  CondVar stop_;
  bool stopping_ PARALLAX_GUARDED_BY(mutex_) = false;
  uint64_t counter_ PARALLAX_GUARDED_BY(mutex_) = 0;
  std::thread renewer_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_FILE_RENDEZVOUS_H_
