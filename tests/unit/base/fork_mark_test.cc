// SPDX-License-Identifier: Apache-2.0
#include "base/fork_mark.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace parallax {
namespace {

// The exit status of a child that asks whether it is one: 1 if it knows.
template <typename Fork>
int answer_of(Fork forked, const ForkMark& mark) {
  const pid_t child = forked();
  if (child == 0) _exit(mark.in_child() ? 1 : 0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

pid_t bare_clone() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

TEST(ForkMark, TellsAChildHoweverItWasMade) {
  const ForkMark mark;
  EXPECT_FALSE(mark.in_child());
  EXPECT_EQ(mark.process(), getpid());
  EXPECT_EQ(answer_of(fork, mark), 1);
  EXPECT_EQ(answer_of(bare_clone, mark), 1);
  EXPECT_FALSE(mark.in_child());
}

// A child's own mark is its own: the grandchild is told apart from both.
TEST(ForkMark, AChildMakesItsOwn) {
  const ForkMark mark;
  const pid_t child = fork();
  if (child == 0) {
    const ForkMark own;
    const bool right = !own.in_child() && mark.in_child() && answer_of(fork, own) == 1 &&
                       answer_of(bare_clone, mark) == 1;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace parallax
