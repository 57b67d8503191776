// SPDX-License-Identifier: Apache-2.0
// Reads the file, bounded, and lets its devices take the place of those found. See nics_file.h.
#include "tool/nics_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "topology/nic_ports.h"

namespace parallax::tool {

namespace {

constexpr size_t kFileBytesMax = size_t{16} << 20;

}  // namespace

Status use_nics_file(const std::string& path, Topology* topology) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return io_error(path + " cannot be read: " + std::strerror(errno) +
                    "; give a file that `parallax info --json -t` wrote");
  }
  std::string text;
  char buffer[65536];
  while (file.read(buffer, sizeof buffer) || file.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(file.gcount()));
    if (text.size() > kFileBytesMax) return invalid(path + " is larger than 16 MiB");
  }
  std::vector<Nic> nics;
  const Status read = read_nics_json(text, &nics);
  if (!read.ok()) return invalid(path + ": " + read.message());
  std::erase_if(topology->nics, [&](const Nic& own) {
    return std::none_of(nics.begin(), nics.end(),
                        [&](const Nic& other) { return other.name == own.name; });
  });
  merge_nics(nics, &topology->nics);
  topology->no_nics_why = nics.empty() ? path + " lists none" : "";
  return {};
}

}  // namespace parallax::tool
