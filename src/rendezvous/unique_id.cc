// SPDX-License-Identifier: Apache-2.0
// Making and reading unique ids: see the header.
#include "rendezvous/unique_id.h"

#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "base/codec.h"
#include "base/interface.h"
#include "base/mutex.h"
#include "base/tcp_socket.h"
#include "rendezvous/tcp_listen.h"

namespace parallax {

namespace {

constexpr uint32_t kIdMagic = 0x49584c50;  // "PLXI"
constexpr uint16_t kFormat = 1;
constexpr size_t kAddressBytes = 16;
constexpr size_t kJobBytes = 16;
constexpr size_t kCheckBytes = 8;
constexpr size_t kIdBytes = PARALLAX_UNIQUE_ID_BYTES;
constexpr std::string_view kCheckKey = "parallax unique id 1";

struct Waiting {
  UniqueFd listener;
  pid_t made_by = 0;
};
struct Listeners {
  Mutex mutex;
  std::map<std::string, Waiting> by_job PARALLAX_GUARDED_BY(mutex);
};

// Never destroyed: a job may be opened by a thread that outlives static destruction.
Listeners& listeners() {
  static Listeners* table = new Listeners;
  return *table;
}

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char byte : bytes) {
    hex.push_back(kDigits[static_cast<unsigned char>(byte) >> 4]);
    hex.push_back(kDigits[static_cast<unsigned char>(byte) & 15]);
  }
  return hex;
}

std::string from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(digit(hex[i]) << 4 | digit(hex[i + 1])));
  }
  return bytes;
}

}  // namespace

parallax_unique_id_t encode_unique_id(const UniqueId& id) {
  const std::string address = address_bytes(id.address);
  std::string out;
  put_number(&out, kIdMagic);
  put_number(&out, kFormat);
  put_number(&out, port_of(id.address));
  put_number(&out, static_cast<uint8_t>(address.size()));
  out.append(address).append(kAddressBytes - address.size(), '\0');
  out.append(from_hex(id.job)).append(id.key.view());
  out.append(kIdBytes - kCheckBytes - out.size(), '\0');
  out.append(hmac(kCheckKey, out), 0, kCheckBytes);
  PARALLAX_CHECK(out.size() == kIdBytes);
  parallax_unique_id_t bytes;
  std::memcpy(bytes.bytes, out.data(), out.size());
  wipe(&out);
  return bytes;
}

Status decode_unique_id(const parallax_unique_id_t& bytes, UniqueId* id) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.bytes), kIdBytes);
  const std::string_view body = all.substr(0, kIdBytes - kCheckBytes);
  const Status wrong = invalid(
      "options.unique_id was not made by parallax_unique_id, was made by another version, or was "
      "changed on its way: carry all of its " +
      std::to_string(kIdBytes) + " bytes");
  ByteReader reader(body);
  uint32_t magic = 0;
  uint16_t format = 0;
  uint16_t port = 0;
  uint8_t used = 0;
  std::string_view address, job, key;
  if (!reader.number(&magic) || magic != kIdMagic || !reader.number(&format) || format != kFormat ||
      !reader.number(&port) || !reader.number(&used) || !reader.raw(kAddressBytes, &address) ||
      !reader.raw(kJobBytes, &job) || !reader.raw(kKeyBytes, &key) ||
      !same_bytes(std::string_view(hmac(kCheckKey, body)).substr(0, kCheckBytes),
                  all.substr(body.size())) ||
      (used != sizeof(in_addr) && used != sizeof(in6_addr)) || port == 0) {
    return wrong;
  }
  id->address = make_address(address.substr(0, used), port);
  id->job = to_hex(job);
  std::copy(key.begin(), key.end(), id->key.bytes.begin());
  return {};
}

Status make_unique_id(const std::string& device, parallax_unique_id_t* id) {
  UniqueId made;
  // An RDMA device and its port, such as mlx5_0:1, has no address to listen at.
  const bool has_address = device.find(':') == std::string::npos;
  PARALLAX_RETURN_IF_ERROR(choose_address(has_address ? device : "", &made.address));
  UniqueFd listener;
  PARALLAX_RETURN_IF_ERROR(tcp_listen(made.address, &listener));
  PARALLAX_RETURN_IF_ERROR(tcp_name(listener, &made.address));
  made.job = to_hex(random_bytes(kJobBytes));
  std::string key = random_bytes(kKeyBytes);
  std::copy(key.begin(), key.end(), made.key.bytes.begin());
  wipe(&key);
  Listeners& waiting = listeners();
  const MutexLock lock(waiting.mutex);
  if (waiting.by_job.size() >= kUniqueIdsWaitingMax) {
    return limit("unique_id: " + std::to_string(waiting.by_job.size()) +
                 " ids were made in this process and not opened as rank 0; make one for each job");
  }
  waiting.by_job[made.job] = {std::move(listener), ::getpid()};
  *id = encode_unique_id(made);
  return {};
}

UniqueFd take_listener(const std::string& job) {
  Listeners& waiting = listeners();
  const MutexLock lock(waiting.mutex);
  const auto found = waiting.by_job.find(job);
  if (found == waiting.by_job.end()) return {};
  UniqueFd listener = std::move(found->second.listener);
  waiting.by_job.erase(found);
  return listener;
}

void drop_inherited_listener(const std::string& job) {
  Listeners& waiting = listeners();
  const MutexLock lock(waiting.mutex);
  const auto found = waiting.by_job.find(job);
  const bool inherited = found != waiting.by_job.end() && found->second.made_by != ::getpid();
  if (inherited) waiting.by_job.erase(found);
}

}  // namespace parallax
