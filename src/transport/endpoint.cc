// SPDX-License-Identifier: Apache-2.0
// Endpoint on the wire: little-endian, strings prefixed by a 16-bit length. The prefix {magic,
// version, rank, host} never changes, so that a rank of another version can be refused by name.
// Addresses come after it, of a rank whose version is known by then.
// Pure functions; nothing blocks. The blob is another rank's: everything is checked before use.
#include "transport/endpoint.h"

#include "base/check.h"
#include "base/codec.h"
#include "base/version.h"

namespace parallax {
namespace {

constexpr uint32_t kMagic = 0x45584c50;         // "PLXE"
constexpr uint32_t kAddressMagic = 0x41584c50;  // "PLXA"
constexpr size_t kMachineBytesMax = 127;
constexpr size_t kShmAddressBytesMax = 107;  // sockaddr_un holds 108, the first is NUL

Status garbage(const char* what) {
  return io_error(std::string("a rank's endpoint is unreadable (") + what +
                  "): check that every rank is of one job and that the exchange keeps bytes and "
                  "order");
}

}  // namespace

std::string version_text(uint32_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string encode_endpoint(const Endpoint& endpoint) {
  std::string out;
  put_number(&out, kMagic);
  put_number(&out, endpoint.version);
  put_number(&out, endpoint.rank);
  put_text(&out, endpoint.host, PARALLAX_NAME_MAX);
  put_number(&out, endpoint.job);
  put_number(&out, endpoint.pid);
  put_number(&out, endpoint.lease_ms);
  put_number(&out, static_cast<uint8_t>(endpoint.carrier));
  put_number(&out, static_cast<uint8_t>(endpoint.messages_only));
  put_text(&out, endpoint.machine, kMachineBytesMax);
  put_text(&out, endpoint.cores.mask, kCoreMaskBytesMax);
  put_number(&out, endpoint.cores.quota_thousandths);
  put_number(&out, endpoint.cores.quota_group);
  PARALLAX_CHECK(out.size() <= kEndpointBytesMax);
  return out;
}

Status decode_endpoint(std::span<const std::byte> blob, Endpoint* endpoint) {
  if (blob.size() > kEndpointBytesMax) return garbage("too long");
  ByteReader reader({reinterpret_cast<const char*>(blob.data()), blob.size()});
  Endpoint read;
  uint32_t magic = 0;
  if (!reader.number(&magic) || magic != kMagic) return garbage("not from libparallax");
  if (!reader.number(&read.version) || !reader.number(&read.rank) ||
      !reader.text(&read.host, PARALLAX_NAME_MAX)) {
    return garbage("cut short");
  }
  if (!is_printable(read.host)) return garbage("host name with control bytes");
  if (read.version != kVersion) {
    return Status(PARALLAX_MISMATCH, "rank " + std::to_string(read.rank) + " (host " + read.host +
                                         ") runs libparallax " + version_text(read.version) +
                                         ", this rank " + version_text(kVersion) +
                                         ": install one version on every host")
        .about_field("version")
        .about_peer(read.rank, read.host);
  }
  uint8_t carrier = 0, messages_only = 0;
  if (!reader.number(&read.job) || !reader.number(&read.pid) || !reader.number(&read.lease_ms) ||
      !reader.number(&carrier) || carrier > static_cast<uint8_t>(NetworkCarrier::kTcp) ||
      !reader.number(&messages_only) || messages_only > 1 ||
      !reader.text(&read.machine, kMachineBytesMax) ||
      !reader.text(&read.cores.mask, kCoreMaskBytesMax) ||
      !reader.number(&read.cores.quota_thousandths) || !reader.number(&read.cores.quota_group)) {
    return garbage("cut short or a length out of range");
  }
  if (!reader.empty()) return garbage("bytes left over");
  read.carrier = static_cast<NetworkCarrier>(carrier);
  read.messages_only = messages_only == 1;
  *endpoint = std::move(read);
  return {};
}

std::string encode_addresses(const Endpoint& endpoint) {
  std::string out;
  put_number(&out, kAddressMagic);
  put_number(&out, endpoint.rank);
  put_number(&out, endpoint.place.node);
  put_number(&out, endpoint.place.cache);
  put_text(&out, endpoint.shm_address, kShmAddressBytesMax);
  put_text(&out, endpoint.network_address, kNetworkAddressBytesMax);
  put_text(&out, endpoint.trouble, kTroubleBytesMax);
  PARALLAX_CHECK(out.size() <= kEndpointBytesMax);
  return out;
}

Status decode_addresses(std::span<const std::byte> blob, Endpoint* endpoint) {
  if (blob.size() > kEndpointBytesMax) return garbage("too long");
  ByteReader reader({reinterpret_cast<const char*>(blob.data()), blob.size()});
  uint32_t magic = 0, rank = 0;
  NearMemory place;
  std::string shm_address, network_address, trouble;
  if (!reader.number(&magic) || magic != kAddressMagic) return garbage("not its addresses");
  if (!reader.number(&rank) || !reader.number(&place.node) || !reader.number(&place.cache) ||
      !reader.text(&shm_address, kShmAddressBytesMax) ||
      !reader.text(&network_address, kNetworkAddressBytesMax) ||
      !reader.text(&trouble, kTroubleBytesMax)) {
    return garbage("cut short or a length out of range");
  }
  if (!is_printable(trouble)) return garbage("a sentence with control bytes");
  if (!reader.empty()) return garbage("bytes left over");
  if (rank != endpoint->rank) {
    return invalid("the addresses of rank " + std::to_string(rank) + " stand where those of rank " +
                   std::to_string(endpoint->rank) + " belong");
  }
  endpoint->place = place;
  endpoint->shm_address = std::move(shm_address);
  endpoint->network_address = std::move(network_address);
  endpoint->trouble = std::move(trouble);
  return {};
}

}  // namespace parallax
