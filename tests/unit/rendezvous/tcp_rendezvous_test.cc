// SPDX-License-Identifier: Apache-2.0
// The tcp rendezvous over loopback: rounds, the missing, the lost, the double, the secret, unique
// ids.
#include "rendezvous/tcp_rendezvous.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/interface.h"
#include "rendezvous/secret.h"
#include "rendezvous/unique_id.h"
#include "support/temporary_folder.h"
#include "unit/rendezvous/tcp_rendezvous_kit.h"

namespace parallax {
namespace {

using tcp_rendezvous_kit::has;
using tcp_rendezvous_kit::in_ms;
using tcp_rendezvous_kit::kClock;
using tcp_rendezvous_kit::kForeverMs;
using tcp_rendezvous_kit::TcpRendezvousTest;

const std::string kNothing;
std::string no_environment(const char*) { return kNothing; }

TEST_F(TcpRendezvousTest, rounds) { meet(9, 4); }

// Blobs come to most of them from another rank than rank 0, on two levels.
TEST_F(TcpRendezvousTest, many_ranks) { meet(75, 3); }

TEST_F(TcpRendezvousTest, the_port_again) {
  for (int job = 0; job < 10; ++job) meet(3, 1);
}

TEST_F(TcpRendezvousTest, over_ipv6) {
  where_ = "tcp:[::1]:" + std::to_string(port_);
  UniqueFd probe;
  if (!tcp_listen(make_address(std::string(15, '\0') + '\1', port_), &probe).ok()) {
    GTEST_SKIP() << "no IPv6 here";
  }
  probe.reset();
  meet(3, 2);
}

TEST_F(TcpRendezvousTest, at_a_name) {
  where_ = "tcp:localhost:" + std::to_string(port_) + "#a job";
  meet(3, 2);
}

TEST_F(TcpRendezvousTest, addresses_are_checked) {
  struct Case {
    const char* where;
    const char* sentence;
  };
  const Case cases[] = {{"tcp:", "give tcp:HOST:PORT"},
                        {"tcp:127.0.0.1", "give tcp:HOST:PORT"},
                        {"tcp::29500", "host is empty"},
                        {"tcp:127.0.0.1:0", "parallax_unique_id"},
                        {"tcp:127.0.0.1:65536", "from 1 to 65535"},
                        {"tcp:127.0.0.1:29x", "from 1 to 65535"},
                        {"tcp:127.0.0.1:", "from 1 to 65535"},
                        {"tcp:::1:29500", "in brackets"},
                        {"tcp:127.0.0.1:29500#", "names the job"}};
  for (const Case& one : cases) {
    for (const uint32_t rank : {0u, 1u}) {
      where_ = one.where;
      std::unique_ptr<Rendezvous> rendezvous;
      const Status status = make(rank, 2, &rendezvous);
      EXPECT_EQ(status.code(), PARALLAX_INVALID) << one.where;
      EXPECT_TRUE(has(status, one.sentence)) << status.message();
    }
  }
}

// Given an address that other machines reach, expect both sides to refuse it without a secret.
TEST_F(TcpRendezvousTest, elsewhere_takes_a_secret) {
  for (const char* where :
       {"tcp:10.1.2.3:29500", "tcp:0.0.0.0:29500", "tcp:[::]:29500", "tcp:[fd00::1]:29500"}) {
    for (const uint32_t rank : {0u, 1u}) {
      where_ = where;
      std::unique_ptr<Rendezvous> rendezvous;
      const Status status = make(rank, 2, &rendezvous);
      EXPECT_EQ(status.code(), PARALLAX_INVALID) << where;
      EXPECT_TRUE(has(status, "there is no secret")) << status.message();
      EXPECT_TRUE(has(status, "PARALLAX_SECRET_FILE")) << status.message();
    }
  }
}

TEST_F(TcpRendezvousTest, a_port_that_is_taken_is_named) {
  UniqueFd other;
  ASSERT_TRUE(tcp_listen(make_address(std::string("\x7f\0\0\1", 4), port_), &other).ok());
  std::unique_ptr<Rendezvous> rendezvous;
  const Status status = make(0, 2, &rendezvous);
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_TRUE(has(status, where_.substr(4))) << status.message();
}

TEST_F(TcpRendezvousTest, names_the_missing_on_all_ranks) {
  std::unique_ptr<Rendezvous> zero, two;
  ASSERT_TRUE(make(0, 4, &zero).ok());
  ASSERT_TRUE(make(2, 4, &two).ok());
  std::vector<std::string> all;
  Status status = gather(*two, "x", 5000, &all);
  EXPECT_EQ(status.code(), PARALLAX_TIMEOUT);
  EXPECT_TRUE(has(status, "ranks 1 and 3 never came")) << status.message();
  status = gather(*zero, "x", 100, &all);
  EXPECT_EQ(status.code(), PARALLAX_TIMEOUT);
  EXPECT_TRUE(has(status, "ranks 1 and 3 never came")) << status.message();
}

TEST_F(TcpRendezvousTest, without_rank_0_the_others_name_it) {
  std::unique_ptr<Rendezvous> one;
  ASSERT_TRUE(make(1, 2, &one).ok());
  std::vector<std::string> all;
  Status status = gather(*one, "x", 200, &all);
  EXPECT_EQ(status.code(), PARALLAX_TIMEOUT);
  EXPECT_TRUE(has(status, "rank 0 never came (connecting to ")) << status.message();
  EXPECT_TRUE(has(status, "refused")) << status.message();
}

TEST_F(TcpRendezvousTest, one_number_twice_and_other_worlds_are_refused_and_the_rest_meet) {
  std::unique_ptr<Rendezvous> zero, one, again, other;
  ASSERT_TRUE(make(0, 2, &zero).ok());
  ASSERT_TRUE(make(1, 3, &other).ok());
  std::vector<std::string> all;
  Status status = gather(*other, "x", kForeverMs, &all);
  EXPECT_EQ(status.code(), PARALLAX_MISMATCH);
  EXPECT_EQ(status.message(), "rank 1 (host host1) says world 3, rank 0 (host host0) says 2");
  ASSERT_TRUE(make(1, 2, &one).ok());
  std::thread rank_1([&] {
    std::vector<std::string> got;
    EXPECT_TRUE(gather(*one, "b", kForeverMs, &got).ok());
    // The second of its number, while the first is there.
    ASSERT_TRUE(make(1, 2, &again).ok());
    const Status refused = gather(*again, "x", kForeverMs, &got);
    EXPECT_EQ(refused.code(), PARALLAX_INVALID);
    EXPECT_TRUE(has(refused, "two ranks have one number")) << refused.message();
    EXPECT_TRUE(gather(*one, "b", kForeverMs, &got).ok());
    one->finish_bootstrap();
  });
  EXPECT_TRUE(gather(*zero, "a", kForeverMs, &all).ok());
  status = gather(*zero, "a", kForeverMs, &all);
  EXPECT_TRUE(status.ok()) << status.message();
  zero->finish_bootstrap();
  rank_1.join();
}

// What ranks come to when one of them, in a process of its own, ends between rounds.
class Lost : public TcpRendezvousTest {
 protected:
  void expect_lost(uint32_t victim, int signal, const std::string& what, uint32_t world = 4) {
    int said = -1;
    const pid_t child = start_rank(victim, world, 1, &said);
    std::vector<Status> ends(world);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < world; ++rank) {
      if (rank == victim) continue;
      threads.emplace_back([&, rank] {
        std::unique_ptr<Rendezvous> mine;
        std::vector<std::string> all;
        ASSERT_TRUE(make(rank, world, &mine).ok());
        ASSERT_TRUE(gather(*mine, blob_of(rank, 0), kForeverMs, &all).ok());
        ends[rank] = gather(*mine, "x", kForeverMs, &all);
        mine->leave(ends[rank]);
      });
    }
    await(said);
    ASSERT_EQ(::kill(child, signal), 0);
    for (auto& thread : threads) thread.join();
    const std::string sentence = ends[victim == 0 ? 1 : 0].message();
    EXPECT_TRUE(sentence.starts_with("rank " + std::to_string(victim) + " (host host" +
                                     std::to_string(victim) + ") " + what))
        << sentence;
    for (uint32_t rank = 0; rank < world; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ends[rank].code(), PARALLAX_PEER_LOST) << ends[rank].message();
      EXPECT_EQ(ends[rank].message(), sentence);
    }
    end(child);
  }
};

TEST_F(Lost, who_is_killed_is_lost_at_once_and_all_say_one_sentence) {
  for (const uint32_t victim : {0u, 2u}) expect_lost(victim, SIGKILL, "ended while ranks met");
}

// Rank 8 passes blobs on to ranks 9 to 11; rank 9 gets its own from it.
TEST_F(Lost, in_the_tree_too_it_is_rank_0_that_judges) {
  for (const uint32_t victim : {8u, 9u}) expect_lost(victim, SIGKILL, "ended while ranks met", 12);
}

// The lease is one that the living keep on a machine with much else to do.
TEST_F(Lost, who_is_stopped_is_lost_by_its_lease) {
  lease_ms_ = 8000;
  for (const uint32_t victim : {0u, 2u}) {
    expect_lost(victim, SIGSTOP, "sent no keepalive for 6400 ms");
  }
}

TEST_F(TcpRendezvousTest, slow_between_rounds_is_not_lost) {
  lease_ms_ = 5000;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([this, rank] {
      std::unique_ptr<Rendezvous> mine;
      ASSERT_TRUE(make(rank, 3, &mine).ok());
      std::vector<std::string> all;
      for (int round = 0; round < 2; ++round) {
        if (round == 1 && rank != 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(lease_ms_ + 500));
        }
        const Status status = gather(*mine, blob_of(rank, round), kForeverMs, &all);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      mine->finish_bootstrap();
    });
  }
  for (auto& thread : threads) thread.join();
}

// Given a rank that leaves with a reason, expect the others to name its culprit, or it and its
// reason, and to hear of it by verdict().
TEST_F(TcpRendezvousTest, who_leaves_says_why_and_all_repeat_it) {
  const std::string lost = "rank 7 (host b) is lost: process 4711 exited";
  for (const uint32_t quitter : {0u, 2u}) {
    for (const bool culprit : {true, false}) {
      const Status why = culprit ? peer_lost(lost) : limit("no descriptors are left");
      const std::string sentence =
          culprit ? lost
                  : "rank " + std::to_string(quitter) + " (host host" + std::to_string(quitter) +
                        ") gave up before all ranks had met: no descriptors are left";
      std::unique_ptr<Rendezvous> ranks[3];
      std::vector<std::thread> threads;
      for (uint32_t rank = 0; rank < 3; ++rank) ASSERT_TRUE(make(rank, 3, &ranks[rank]).ok());
      for (uint32_t rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
          std::vector<std::string> all;
          EXPECT_TRUE(gather(*ranks[rank], "x", kForeverMs, &all).ok());
        });
      }
      for (auto& thread : threads) thread.join();
      EXPECT_TRUE(ranks[1]->verdict().ok());
      ranks[quitter]->leave(why);
      ranks[quitter]->leave(io_error("a later reason"));
      for (uint32_t rank = 0; rank < 3; ++rank) {
        if (rank == quitter) continue;
        Status verdict;
        while (verdict.ok()) verdict = ranks[rank]->verdict();  // rank 0 may be slow to answer
        EXPECT_EQ(verdict.message(), sentence);
        std::vector<std::string> all;
        const Status status = gather(*ranks[rank], "x", kForeverMs, &all);
        EXPECT_EQ(status.code(), PARALLAX_PEER_LOST);
        EXPECT_EQ(status.message(), sentence);
      }
    }
  }
}

// Given a rank of another job at the port, of another session as jobs of other terminals and
// services are, expect it to be refused with the remedy, and the rest to meet; by a name it joins.
TEST_F(TcpRendezvousTest, jobs_without_a_name_are_told_apart) {
  for (const bool named : {false, true}) {
    if (named) where_ += "#one job";
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t other = ::fork();
    if (other == 0) {
      std::unique_ptr<Rendezvous> one;
      std::vector<std::string> all;
      if (::setsid() < 0 || !make(1, 2, &one).ok()) ::_exit(1);
      const Status status = gather(*one, "x", kForeverMs, &all);
      const std::string said = status.ok() ? "it joined" : status.message();
      ::_exit(::write(ends[1], said.data(), said.size()) < 0 ? 2 : 0);
    }
    ::close(ends[1]);
    std::unique_ptr<Rendezvous> zero, one;
    ASSERT_TRUE(make(0, 2, &zero).ok());
    std::vector<std::string> all, again;
    std::thread rank_0([&] {
      const Status status = gather(*zero, "y", kForeverMs, &all);
      EXPECT_TRUE(status.ok()) << status.message();
    });
    std::string said(4096, '\0');
    said.resize(
        static_cast<size_t>(std::max<ssize_t>(0, ::read(ends[0], said.data(), said.size()))));
    ::close(ends[0]);
    if (named) {
      EXPECT_EQ(said, "it joined");
    } else {
      EXPECT_TRUE(said.starts_with("rank 1 (host host1) is of job 'session ")) << said;
      EXPECT_NE(said.find("tcp:HOST:PORT#NAME"), std::string::npos) << said;
      ASSERT_TRUE(make(1, 2, &one).ok());
      EXPECT_TRUE(gather(*one, "x", kForeverMs, &again).ok());
      one->finish_bootstrap();
    }
    rank_0.join();
    zero->finish_bootstrap();
    ::waitpid(other, nullptr, 0);
  }
}

class Secrets : public TcpRendezvousTest {
 protected:
  std::string file(const std::string& name, const std::string& secret, mode_t mode = 0600) {
    const std::string path = folder_.write(name, secret);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }

  const testkit::TemporaryFolder folder_;
};

TEST_F(Secrets, who_has_the_secret_meets) {
  secret_file_ = file("secret", "0123456789abcdef\n");
  meet(4, 2);
}

// Given a rank with another secret and one with none, expect each to be told, and the rest to meet.
TEST_F(Secrets, a_wrong_one_is_told_and_the_others_meet) {
  secret_file_ = file("right", "0123456789abcdef");
  std::unique_ptr<Rendezvous> zero, one, wrong, none;
  ASSERT_TRUE(make(0, 2, &zero).ok());
  secret_file_ = file("wrong", "fedcba9876543210");
  ASSERT_TRUE(make(1, 2, &wrong).ok());
  std::vector<std::string> all;
  Status status = gather(*wrong, "x", kForeverMs, &all);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "wrong secret")) << status.message();
  secret_file_.clear();
  ASSERT_TRUE(make(1, 2, &none).ok());
  status = gather(*none, "x", kForeverMs, &all);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "rank 0 (host host0) was given a secret")) << status.message();
  status = gather(*zero, "x", 50, &all);
  EXPECT_TRUE(has(status, "2 connections were turned away")) << status.message();
  zero.reset();
  secret_file_ = folder_.path() + "/right";
  meet(2, 1);
}

TEST_F(Secrets, sources_and_modes) {
  std::string secret;
  const std::string good = file("good", "0123456789abcdef \r\n");
  ASSERT_TRUE(find_secret(good.c_str(), no_environment, &secret).ok());
  EXPECT_EQ(secret, "0123456789abcdef");
  ASSERT_TRUE(find_secret(nullptr, no_environment, &secret).ok());
  EXPECT_EQ(secret, "");
  struct Case {
    std::string path;
    const char* sentence;
    parallax_status_t code;
  };
  const Case cases[] = {
      {file("wide", "0123456789abcdef", 0640), "chmod 600 ", PARALLAX_INVALID},
      {file("writable", "0123456789abcdef", 0602), "chmod 600 ", PARALLAX_INVALID},
      {file("short", "0123456789abcde"), "secret of 15 bytes", PARALLAX_INVALID},
      {file("long", std::string(5000, 'x')), "bytes: give 16 to 4096", PARALLAX_INVALID},
      {file("empty", ""), "secret of 0 bytes", PARALLAX_INVALID},
      {folder_.path(), "no plain file", PARALLAX_INVALID},
      {folder_.path() + "/absent", "cannot be read", PARALLAX_IO},
      {"", "options.secret_file is empty", PARALLAX_INVALID},
  };
  for (const Case& one : cases) {
    const Status status = find_secret(one.path.c_str(), no_environment, &secret);
    EXPECT_EQ(status.code(), one.code) << one.path;
    EXPECT_TRUE(has(status, one.sentence)) << status.message();
    EXPECT_FALSE(has(status, "0123456789")) << "a secret in a sentence";
    EXPECT_EQ(secret, "");
  }
  const auto by_value = [](const char* name) {
    return std::string(name) == "PARALLAX_SECRET" ? "of the environment" : "";
  };
  ASSERT_TRUE(find_secret(nullptr, by_value, &secret).ok());
  EXPECT_EQ(secret, "of the environment");
  ASSERT_TRUE(find_secret(good.c_str(), by_value, &secret).ok());
  EXPECT_EQ(secret, "0123456789abcdef") << "the option counts before the environment";
  const auto both = [&](const char* name) {
    return std::string(name) == "PARALLAX_SECRET" ? "of the environment" : good;
  };
  EXPECT_TRUE(has(find_secret(nullptr, both, &secret), "both set"));
}

class UniqueIds : public TcpRendezvousTest {
 protected:
  static Status join(uint32_t rank, uint32_t world, const parallax_unique_id_t& id,
                     std::unique_ptr<Rendezvous>* rendezvous) {
    parallax_options_t options{};
    options.size = sizeof options;
    options.rank = rank;
    options.world = world;
    options.unique_id = &id;
    return make_rendezvous(options, tcp_rendezvous_kit::host_of(rank), kClock, rendezvous);
  }
};

TEST_F(UniqueIds, who_has_the_id_meets) {
  parallax_unique_id_t ids[2];
  for (auto& id : ids) ASSERT_TRUE(make_unique_id("lo", &id).ok());
  EXPECT_NE(std::memcmp(&ids[0], &ids[1], sizeof ids[0]), 0);
  for (const auto& id : ids) {
    std::vector<std::thread> threads;
    for (const uint32_t rank : {2u, 1u, 0u}) {
      threads.emplace_back([&, rank] {
        std::unique_ptr<Rendezvous> mine;
        const Status made = join(rank, 3, id, &mine);
        ASSERT_TRUE(made.ok()) << made.message();
        std::vector<std::string> all;
        const Status status = gather(*mine, std::to_string(rank), kForeverMs, &all);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(all, (std::vector<std::string>{"0", "1", "2"}));
        mine->finish_bootstrap();
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST_F(UniqueIds, each_changed_byte_is_noticed) {
  parallax_unique_id_t id;
  ASSERT_TRUE(make_unique_id("lo", &id).ok());
  UniqueId read;
  ASSERT_TRUE(decode_unique_id(id, &read).ok());
  EXPECT_TRUE(is_loopback(read.address));
  for (size_t at = 0; at < sizeof id.bytes; ++at) {
    parallax_unique_id_t bent = id;
    bent.bytes[at] ^= 1;
    EXPECT_EQ(decode_unique_id(bent, &read).code(), PARALLAX_INVALID) << at;
  }
  const parallax_unique_id_t zero{};
  std::unique_ptr<Rendezvous> rendezvous;
  const Status status = join(1, 2, zero, &rendezvous);
  EXPECT_TRUE(has(status, "was not made by parallax_unique_id")) << status.message();
  EXPECT_TRUE(take_listener(read.job).valid());
}

// Given an id whose maker still waits for its own rank 0, expect another's rank 0 to be told.
TEST_F(UniqueIds, rank_0_is_who_made_it) {
  parallax_unique_id_t id;
  ASSERT_TRUE(make_unique_id("lo", &id).ok());
  UniqueId read;
  ASSERT_TRUE(decode_unique_id(id, &read).ok());
  const UniqueFd kept = take_listener(read.job);  // as if it were another process's
  std::unique_ptr<Rendezvous> rendezvous;
  const Status status = join(0, 2, id, &rendezvous);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "let rank 0 call parallax_unique_id")) << status.message();
}

// Given a process that was forked after the id was made, expect it to let go of the port, and its
// maker not to.
TEST_F(UniqueIds, a_forked_rank_does_not_hold_the_port) {
  parallax_unique_id_t id;
  ASSERT_TRUE(make_unique_id("lo", &id).ok());
  UniqueId read;
  ASSERT_TRUE(decode_unique_id(id, &read).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    drop_inherited_listener(read.job);
    ::_exit(take_listener(read.job).valid() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  drop_inherited_listener(read.job);
  EXPECT_TRUE(take_listener(read.job).valid());
}

TEST_F(UniqueIds, too_many_are_refused) {
  std::vector<parallax_unique_id_t> ids(kUniqueIdsWaitingMax + 1);
  Status status;
  size_t made = 0;
  while (made < ids.size() && (status = make_unique_id("lo", &ids[made])).ok()) ++made;
  EXPECT_EQ(status.code(), PARALLAX_LIMIT) << status.message();
  for (size_t i = 0; i < made; ++i) {
    UniqueId read;
    ASSERT_TRUE(decode_unique_id(ids[i], &read).ok());
    EXPECT_TRUE(take_listener(read.job).valid());
  }
}

TEST(Interface, devices) {
  SocketAddress address;
  ASSERT_TRUE(choose_address("lo", &address).ok());
  EXPECT_TRUE(is_loopback(address));
  EXPECT_EQ(port_of(address), 0);
  ASSERT_TRUE(choose_address("", &address).ok());
  EXPECT_EQ(port_of(address), 0);
  const Status status = choose_address("no such device", &address);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "'no such device'") && has(status, "lo")) << status.message();
}

}  // namespace
}  // namespace parallax
