// SPDX-License-Identifier: Apache-2.0
// Reading a file of hosts. See hosts_file.h.
#include "tool/hosts_file.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

namespace parallax::tool {

namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// What no program would take for an option, and no shell for anything else.
bool is_word(std::string_view text) {
  return !text.empty() && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), [](unsigned char each) {
           return std::isalnum(each) != 0 || each == '.' || each == '-' || each == '_';
         });
}

// HOST or USER@HOST.
bool is_host_name(std::string_view name) {
  const size_t at = name.find('@');
  return name.size() <= PARALLAX_NAME_MAX &&
         (at == std::string_view::npos || is_word(name.substr(0, at))) &&
         is_word(name.substr(at == std::string_view::npos ? 0 : at + 1));
}

bool parse_gpus(std::string_view list, std::vector<uint32_t>* gpus) {
  while (true) {
    const size_t comma = list.find(',');
    const std::string_view one = trimmed(list.substr(0, comma));
    uint32_t gpu = 0;
    const auto [end, error] = std::from_chars(one.data(), one.data() + one.size(), gpu);
    if (error != std::errc() || end != one.data() + one.size()) return false;
    gpus->push_back(gpu);
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

Status parse_hosts(std::string_view text, const std::string& file, std::vector<HostLine>* hosts) {
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, std::min(end, text.find('#'))));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty()) continue;
    const std::string where = file + " line " + std::to_string(number) + ": ";
    const size_t colon = line.find(':');
    HostLine host;
    host.name = std::string(trimmed(line.substr(0, colon)));
    if (!is_host_name(host.name)) {
      return invalid(where + "'" + host.name.substr(0, 80) + "' is not a host's name or address");
    }
    if (colon != std::string_view::npos && !parse_gpus(line.substr(colon + 1), &host.gpus)) {
      return invalid(where + "after `" + host.name +
                     ":` numbers of GPUs are expected, separated by commas, such as 0,1");
    }
    for (const HostLine& other : *hosts) {
      if (other.name == host.name) {
        return invalid(where + host.name + " is there twice: give all its GPUs in one line");
      }
    }
    hosts->push_back(std::move(host));
  }
  return hosts->empty() ? invalid(file + " names no host") : Status();
}

Status read_hosts(const std::string& file, std::vector<HostLine>* hosts) {
  std::ifstream stream(file);
  if (!stream) return io_error(file + " cannot be read: " + std::strerror(errno));
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  return parse_hosts(text, file, hosts);
}

bool is_this_machine(const std::string& host) {
  char own[256] = "";
  (void)gethostname(own, sizeof own - 1);
  const std::string name = own;
  return host == "localhost" || host == "127.0.0.1" || host == name ||
         host == name.substr(0, name.find('.'));
}

}  // namespace parallax::tool
