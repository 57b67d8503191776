// SPDX-License-Identifier: Apache-2.0
// FileRendezvous: ranks meet in a directory that all can write ("file:DIR"), one per job.
// rendezvous_directory.h says whose directory is believed.
//
//   claim.R, verdict, done.R     see rendezvous_claim.h and rendezvous_end.h
//   job              by rank 0: a random number and the world; every blob carries the number
//   blob.K.R         what rank R brings to round K, by rename, so that it is seen whole or not
//   keepalive.R      R's keepalive, by rename: a counter
//
// A rank whose process ends is noticed at its claim: the lock on it goes with the process. Locks
// are not seen on every file system, and a stopped process keeps them, so a thread of each rank
// also rewrites keepalive.R every lease_ms / 5, from create() to finish_bootstrap(), also between
// rounds. A reader takes a rank for lost when its counter has not changed for four fifths of
// lease_ms by the reader's own clock, so that all ranks know within lease_ms. File times are never
// used: the clocks of hosts differ.
//
// A rank that leaves, or sees another lost, writes the verdict before it marks itself done, and all
// ranks that wait, or come later, report that verdict. The directory is removed by whoever finds
// all ranks done: they are through, have left or were lost. Where some never come, rank 0 removes
// it at its deadline.
//
// allgather() polls the directory, every 1 ms at first, every 50 ms at most. One thread calls; the
// thread that writes keepalives shares only what mutex_ guards.
#ifndef PARALLAX_RENDEZVOUS_FILE_RENDEZVOUS_H_
#define PARALLAX_RENDEZVOUS_FILE_RENDEZVOUS_H_

#include <thread>

#include "base/mutex.h"
#include "rendezvous/ended_ranks.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/rendezvous_directory.h"
#include "rendezvous/rendezvous_end.h"

namespace parallax {

class FileRendezvous final : public Rendezvous {
 public:
  // Makes `directory` if needed, claims the rank and starts the keepalives.
  static Status create(const RendezvousOptions& options, const std::string& directory,
                       std::unique_ptr<FileRendezvous>* rendezvous);
  ~FileRendezvous() override;

  std::string_view name() const override { return "file"; }
  Status allgather(std::span<const std::byte> mine, int64_t deadline_ns,
                   std::vector<std::string>* all) override;
  void leave(const Status& why) override;
  Status verdict() override;
  void finish_bootstrap() override;
  Status finish() override;

 private:
  // What this rank has seen of another rank's keepalive file and claim.
  struct PeerKeepalive {
    bool seen = false;
    uint64_t counter = 0;
    int64_t changed_ns = 0;
    std::string host;
  };

  explicit FileRendezvous(const RendezvousOptions& options);

  Status enter(const std::string& directory);
  Status check_directory() const;
  Status write_keepalive() PARALLAX_REQUIRES(mutex_);
  void renew();
  void stop_renewing();
  void release_claim();
  void await_readers(int64_t patience_ms) const;
  Status learn_job(int64_t deadline_ns);
  std::string blob_name(uint32_t rank) const;
  Status read_blobs(std::vector<std::string>* all, bool* whole);
  Status read_blob(uint32_t rank, std::string* blob, bool* found) const;
  Status look_around(int64_t deadline_ns, int64_t* speak_ns);
  Status look_after(uint32_t rank, Status* lost);
  Status still_on() const;
  std::string missing() const;
  int64_t lease_ns() const { return options_.lease_ms * kNanosecondsPerMillisecond; }

  const RendezvousOptions options_;
  const int64_t poll_ms_max_;
  RendezvousDirectory directory_;
  RendezvousEnd end_;
  UniqueFd claim_;    // from enter() until this rank needs the rendezvous no more
  uint64_t job_ = 0;  // 0: not known yet
  uint64_t round_ = 0;
  int64_t looked_ns_;
  EndedRanks ended_;
  std::vector<PeerKeepalive> keepalives_;
  std::vector<bool> brought_;  // in the round under way
  bool timed_out_ = false;
  bool bootstrapped_ = false;
  bool left_ = false;

  Mutex mutex_;
  CondVar stop_;
  bool stopping_ PARALLAX_GUARDED_BY(mutex_) = false;
  uint64_t counter_ PARALLAX_GUARDED_BY(mutex_) = 0;
  std::thread renewer_;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_FILE_RENDEZVOUS_H_
