// SPDX-License-Identifier: Apache-2.0
// Reading the file that the setting topology_xml names. See topology.h.
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "topology/topology.h"

namespace parallax {

namespace {

constexpr size_t kXmlBytesMax = size_t{1} << 28;  // a hundred times the largest machine known

}  // namespace

Status read_topology_xml(const std::string& path, std::string* xml) {
  const auto wrong = [&path](const std::string& what) {
    return io_error("topology_xml is '" + path + "': " + what +
                    "; name a file written by `lstopo --of xml`, or leave topology_xml out");
  };
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found) return wrong("no such file");
  if (error) return wrong(error.message());
  if (kind != std::filesystem::file_type::regular) return wrong("it is not a file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::array<char, 1 << 16> piece;
  while (file.read(piece.data(), piece.size()) || file.gcount() > 0) {
    xml->append(piece.data(), static_cast<size_t>(file.gcount()));
    if (xml->size() > kXmlBytesMax) return wrong("it is larger than any topology");
  }
  if (!file.is_open() || file.bad()) return wrong(std::strerror(errno));
  return xml->empty() ? wrong("it is empty") : Status();
}

}  // namespace parallax
