// SPDX-License-Identifier: Apache-2.0
// A directory that somebody else made, or put something into: nothing is followed, nothing waits,
// and what is wrong is told.
#include "rendezvous/rendezvous_directory.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "unit/rendezvous/file_rendezvous_kit.h"

namespace parallax {
namespace {

using file_rendezvous_kit::bytes_of;
using file_rendezvous_kit::FileRendezvousTest;
using file_rendezvous_kit::has;
using file_rendezvous_kit::in_ms;
using file_rendezvous_kit::in_threads;

constexpr const char* kPrecious = "years of work";

class SharedDirectory : public FileRendezvousTest {
 protected:
  void SetUp() override { make_directory(0700); }

  void make_directory(mode_t mode) const {
    std::filesystem::remove_all(directory_);
    ASSERT_EQ(::mkdir(directory_.c_str(), 0700), 0);
    ASSERT_EQ(::chmod(directory_.c_str(), mode), 0);
  }
  void link(const std::string& name) const {
    ASSERT_EQ(::symlink(precious_.c_str(), (directory_ + "/" + name).c_str()), 0);
  }
  void expect_untouched() const {
    std::ostringstream read;
    read << std::ifstream(precious_).rdbuf();
    EXPECT_EQ(read.str(), kPrecious);
  }
  // What a rank that waits there for the others comes to. No deadline ends it.
  Status wait_as(uint32_t rank) {
    std::unique_ptr<Rendezvous> mine;
    PARALLAX_RETURN_IF_ERROR(make(rank, 2, &mine));
    std::vector<std::string> all;
    return mine->allgather(bytes_of("x"), in_ms(600000), &all);
  }

  const std::string precious_ = folder_.write("precious", kPrecious);
};

// Given links where ranks write, expect them to write beside what the links lead to.
TEST_F(SharedDirectory, links_are_not_written_through) {
  for (const char* name : {"tmp.keepalive.0", "tmp.job", "tmp.blob.0.0", "tmp.keepalive.1"}) {
    link(name);
  }
  in_threads(2, [&](uint32_t rank) {
    std::unique_ptr<Rendezvous> mine;
    ASSERT_TRUE(make(rank, 2, &mine).ok());
    std::vector<std::string> all;
    const Status status = mine->allgather(bytes_of("x"), in_ms(60000), &all);
    EXPECT_TRUE(status.ok()) << status.message();
    mine->finish_bootstrap();
  });
  expect_untouched();
}

TEST_F(SharedDirectory, links_are_not_read_through) {
  for (const char* name : {"claim.1", "job", "keepalive.0"}) {
    make_directory(0700);
    link(name);
    const Status status = wait_as(1);
    EXPECT_EQ(status.code(), PARALLAX_IO) << name;
    EXPECT_TRUE(has(status, directory_ + "/" + name + " is no plain file")) << status.message();
  }
  expect_untouched();
}

// Given a pipe that nobody writes, or reads, expect no rank to wait for its other end.
TEST_F(SharedDirectory, pipes_hold_nobody_up) {
  for (const char* name : {"job", "blob.0.1", "keepalive.1", "keepalive.0", "claim.0"}) {
    make_directory(0700);
    const std::string pipe = directory_ + "/" + name;
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const bool rank_1 = std::string(name) == "job" || std::string(name) == "keepalive.0";
    const Status status = wait_as(rank_1 ? 1 : 0);
    EXPECT_EQ(status.code(), PARALLAX_IO) << name;
    EXPECT_TRUE(has(status, pipe + " is no plain file")) << status.message();
  }
}

TEST_F(SharedDirectory, no_more_is_read_than_a_rank_writes) {
  std::ofstream(directory_ + "/job") << std::string(kRendezvousFileBytesMax, 'x');
  const Status status = wait_as(1);
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_TRUE(has(status, "too large")) << status.message();
}

// Given a directory that others may write, or that is another's, expect it to be refused by name.
TEST_F(SharedDirectory, what_others_can_write_is_refused) {
  for (const mode_t mode : {0770, 0702, 01777}) {
    make_directory(mode);
    const Status status = wait_as(0);
    EXPECT_EQ(status.code(), PARALLAX_INVALID);
    EXPECT_TRUE(has(status, directory_ + " belongs to user")) << status.message();
    EXPECT_TRUE(has(status, "chmod go-w")) << status.message();
    EXPECT_TRUE(std::filesystem::is_empty(directory_));
  }
  make_directory(0755);
  std::unique_ptr<Rendezvous> mine;
  EXPECT_TRUE(make(0, 2, &mine).ok());
}

TEST_F(SharedDirectory, anothers_is_refused) {
  if (::chown(directory_.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "needs root: it calls chown";
  const Status status = wait_as(0);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, directory_ + " belongs to user 65534 and has mode 0700"))
      << status.message();
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(SharedDirectory, a_link_in_its_place_is_refused) {
  std::filesystem::rename(directory_, root_ + "/elsewhere");
  std::filesystem::create_symlink(root_ + "/elsewhere", directory_);
  for (const char* slashes : {"", "/", "//"}) {
    where_ = "file:" + directory_ + slashes;
    const Status status = wait_as(0);
    EXPECT_EQ(status.code(), PARALLAX_INVALID);
    EXPECT_TRUE(has(status, directory_ + " is a symbolic link")) << status.message();
  }
  EXPECT_TRUE(std::filesystem::is_empty(root_ + "/elsewhere"));
}

// Given another directory in the place of the ranks' own, expect them to go on in theirs, and what
// lies in the other to stay.
TEST_F(SharedDirectory, swapped_while_ranks_meet_is_harmless) {
  std::unique_ptr<Rendezvous> ranks[2];
  for (const uint32_t rank : {0u, 1u}) ASSERT_TRUE(make(rank, 2, &ranks[rank]).ok());
  std::filesystem::rename(directory_, root_ + "/moved");
  make_directory(0777);
  for (const char* name : {"job", "keepalive.0", "tmp.keepalive.0", "blob.0.0", "blob.0.1"})
    link(name);
  in_threads(2, [&](uint32_t rank) {
    std::vector<std::string> all;
    const Status status = ranks[rank]->allgather(bytes_of("x"), in_ms(60000), &all);
    EXPECT_TRUE(status.ok()) << status.message();
    ranks[rank]->finish_bootstrap();
  });
  EXPECT_TRUE(ranks[0]->finish().ok());
  expect_untouched();
  EXPECT_TRUE(std::filesystem::is_symlink(directory_ + "/blob.0.1"));
  EXPECT_TRUE(std::filesystem::is_empty(root_ + "/moved"));
}

}  // namespace
}  // namespace parallax
