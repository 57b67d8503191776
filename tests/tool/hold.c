/* SPDX-License-Identifier: Apache-2.0
 *
 * To be preloaded: the process stops before it moves a file to a name that ends with FAKE_HOLD,
 * such as blob.1.0 of the rendezvous, says so by making FAKE_HOLD_FOLDER/held, and goes on once
 * there is FAKE_HOLD_FOLDER/go. So a test is where it wants to be in the middle of a rendezvous.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void path_of(char* path, size_t bytes, const char* name) {
  snprintf(path, bytes, "%s/%s", getenv("FAKE_HOLD_FOLDER"), name);
}

static void hold(void) {
  char held[4096], go[4096];
  path_of(held, sizeof held, "held");
  path_of(go, sizeof go, "go");
  close(open(held, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  while (access(go, F_OK) != 0) usleep(1000);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  const char* wanted = getenv("FAKE_HOLD");
  const size_t at = strlen(to);
  const size_t bytes = wanted == NULL ? 0 : strlen(wanted);
  if (bytes > 0 && at >= bytes && strcmp(to + at - bytes, wanted) == 0) hold();
  return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
}
