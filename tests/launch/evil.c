/* SPDX-License-Identifier: Apache-2.0
 *
 * What a caller would have a program with more rights than its own load: says so when it is loaded.
 */
#include <unistd.h>

__attribute__((constructor)) static void run(void) {
  static const char kWords[] = "EVIL: code of the caller runs\n";
  if (write(STDOUT_FILENO, kWords, sizeof kWords - 1) < 0) _exit(1);
}
