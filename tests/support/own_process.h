// SPDX-License-Identifier: Apache-2.0
// What this process holds: open descriptors and resident memory, as the kernel counts them. Tests
// only; needs nothing of the library.
#ifndef PARALLAX_TESTS_SUPPORT_OWN_PROCESS_H_
#define PARALLAX_TESTS_SUPPORT_OWN_PROCESS_H_

#include <dirent.h>
#include <unistd.h>

#include <cstdio>

namespace parallax::testkit {

inline int open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// -1: the kernel does not say.
inline long resident_kib() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return -1;
  long pages = 0, resident = 0;
  const int read = std::fscanf(file, "%ld %ld", &pages, &resident);
  std::fclose(file);
  return read == 2 ? resident * (sysconf(_SC_PAGESIZE) / 1024) : -1;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_OWN_PROCESS_H_
