// SPDX-License-Identifier: Apache-2.0
// What tests of rendezvous share: ranks as threads, and as processes in a directory. Tests only.
#ifndef PARALLAX_TESTS_UNIT_RENDEZVOUS_FILE_RENDEZVOUS_KIT_H_
#define PARALLAX_TESTS_UNIT_RENDEZVOUS_FILE_RENDEZVOUS_KIT_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/rendezvous.h"
#include "support/temporary_folder.h"
#include "unit/rendezvous/rendezvous_kit.h"

namespace parallax::file_rendezvous_kit {

using rendezvous_kit::has;
using rendezvous_kit::in_ms;
using rendezvous_kit::kClock;
using rendezvous_kit::kForeverMs;

// Runs as fast as its hand is turned, so that no lease is too long to wait for.
class TurnedClock final : public Clock {
 public:
  int64_t now_ns() const override { return kClock.now_ns() + turned_ns_; }
  void turn(int64_t ns) { turned_ns_ += ns; }

 private:
  std::atomic<int64_t> turned_ns_ = 0;
};

inline std::string blob_of(uint32_t rank, int round) {
  std::string blob = "rank " + std::to_string(rank) + " round " + std::to_string(round);
  blob.push_back('\0');
  blob.append(rank * 7, 'x');
  return blob;
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline parallax_options_t options_for(uint32_t rank, uint32_t world, const char* rendezvous) {
  parallax_options_t options{};
  options.size = sizeof options;
  options.rank = rank;
  options.world = world;
  options.rendezvous = rendezvous;
  options.lease_ms = kForeverMs;
  return options;
}

inline std::string host_of(uint32_t rank) { return "host" + std::to_string(rank / 2); }

inline void in_threads(uint32_t world, const std::function<void(uint32_t)>& run) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < world; ++rank) threads.emplace_back(run, rank);
  for (auto& thread : threads) thread.join();
}

// All ranks meet in `rounds` rounds and part in order.
inline void meet(uint32_t world, int rounds,
                 const std::function<parallax_options_t(uint32_t)>& options) {
  std::barrier all_are_through(world);
  in_threads(world, [&](uint32_t rank) {
    std::unique_ptr<Rendezvous> rendezvous;
    Status status = make_rendezvous(options(rank), host_of(rank), kClock, &rendezvous);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::string> all;
      status = rendezvous->allgather(bytes_of(blob_of(rank, round)), in_ms(kForeverMs), &all);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(all.size(), world);
      for (uint32_t other = 0; other < world; ++other) {
        EXPECT_EQ(all[other], blob_of(other, round));
      }
    }
    rendezvous->finish_bootstrap();
    all_are_through.arrive_and_wait();  // as close does
    EXPECT_TRUE(rendezvous->finish().ok());
  });
}

class FileRendezvousTest : public ::testing::Test {
 protected:
  Status make(uint32_t rank, uint32_t world, std::unique_ptr<Rendezvous>* rendezvous,
              uint32_t lease_ms = kForeverMs) {
    parallax_options_t options = options_for(rank, world, where_.c_str());
    options.lease_ms = lease_ms;
    return make_rendezvous(options, host_of(rank), kClock, rendezvous);
  }

  // A rank in a process of its own, which announces itself, joins `rounds` rounds and then waits.
  pid_t start_rank(uint32_t rank, uint32_t world, int rounds) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      std::unique_ptr<Rendezvous> rendezvous;
      if (!make(rank, world, &rendezvous).ok()) ::_exit(1);
      (void)!::write(ready[1], "x", 1);
      std::vector<std::string> all;
      for (int round = 0; round < rounds; ++round) {
        if (!rendezvous->allgather(bytes_of(blob_of(rank, round)), in_ms(kForeverMs), &all).ok()) {
          ::_exit(2);
        }
      }
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }

  // Of a rank that is there.
  bool locks_are_seen(uint32_t rank) const {
    std::string text;
    std::getline(std::ifstream(directory_ + "/claim." + std::to_string(rank)), text, '\0');
    return text.find("locked on") != std::string::npos;
  }

  static void end(pid_t child) { rendezvous_kit::end(child); }

  const testkit::TemporaryFolder folder_;
  const std::string root_ = folder_.path();
  const std::string directory_ = root_ + "/job";
  std::string where_ = "file:" + directory_;
};

}  // namespace parallax::file_rendezvous_kit

#endif  // PARALLAX_TESTS_UNIT_RENDEZVOUS_FILE_RENDEZVOUS_KIT_H_
