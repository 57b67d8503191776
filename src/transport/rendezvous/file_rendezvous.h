// SPDX-License-Identifier: Apache-2.0
// FileRendezvous: ranks meet in a directory that all can write ("file:DIR"), one per job.
// meeting_directory.h says whose directory is believed.
//
//   claim.R          made exclusively: rank R is taken. A second R, or a directory of another job,
//                    is refused by name
//   job              by rank 0: a random number and the world; every blob carries the number
//   blob.K.R         what rank R brings to round K, by rename, so that it is seen whole or not
//   alive.R          R's sign of life, by rename: a counter, a state, the host's name; of one that
//                    left, a second line: status and sentence of its reason
//
// A thread of this rank renews alive.R every lease_ms / 5 from create() to settle(), also between
// rounds, so that a rank killed or stopped while it connects is noticed by those that wait. It is
// judged by the clock of the one that looks: lost when the counter stands still for four fifths of
// lease_ms, so that all know of a death within lease_ms. File times are never used. allgather()
// polls the directory, 1 ms at first, 50 ms at most. One thread calls; the thread that renews
// shares only what mutex_ guards.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_FILE_RENDEZVOUS_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_FILE_RENDEZVOUS_H_

#include <condition_variable>
#include <mutex>
#include <thread>

#include "transport/rendezvous/meeting_directory.h"
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
    bool left = false;
    Status why;  // it left
  };

  explicit FileRendezvous(const RendezvousOptions& options);

  Status check_directory() const;
  Status claim();
  Status write_alive(const std::string& state, const std::string& reason = {});
  void renew();
  Status learn_job(int64_t deadline_ns);
  Status read_blob(uint32_t rank, std::string* blob, bool* found) const;
  Status look_at(uint32_t rank);
  Status look_after(uint32_t rank);
  void await_readers();
  Status still_there() const;
  Status check_late(int64_t deadline_ns, int64_t* speak_ns) const;
  std::string missing() const;

  const RendezvousOptions options_;
  MeetingDirectory directory_;
  uint64_t job_ = 0;  // 0: not known yet
  uint64_t round_ = 0;
  std::vector<Sighting> sightings_;
  std::vector<bool> brought_;  // in the round under way
  bool claimed_ = false;
  bool settled_ = false;
  bool left_ = false;
  bool finished_ = false;

  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  uint64_t counter_ = 0;   // of the thread that renews; of the caller once that has ended
  std::thread renewer_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_FILE_RENDEZVOUS_H_
