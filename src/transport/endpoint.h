// SPDX-License-Identifier: Apache-2.0
// Endpoint: what one rank tells the others at the rendezvous so that they can reach it. A plain
// value; serialised into the two blobs that each rank brings: first who and where it is, then, once
// it knows by whom it is to be reached, its addresses. Sizes are capped before trust.
#ifndef PARALLAX_TRANSPORT_ENDPOINT_H_
#define PARALLAX_TRANSPORT_ENDPOINT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/near_memory.h"
#include "base/status.h"
#include "base/usable_cores.h"

namespace parallax {

inline constexpr size_t kEndpointBytesMax = 4096;
inline constexpr size_t kNetworkAddressBytesMax = 3072;
inline constexpr size_t kTroubleBytesMax = 768;

// What carries messages between hosts.
enum class NetworkCarrier : uint8_t { kUcx, kRdma, kTcp };

struct Endpoint {
  uint32_t version = 0;  // PARALLAX_VERSION_*; ranks of another version are refused by name
  uint32_t rank = 0;
  uint64_t job = 0;  // random, rank 0's holds for the job
  int64_t pid = 0;
  NetworkCarrier carrier = NetworkCarrier::kTcp;  // the same on all ranks
  bool messages_only = false;  // its messages are tampered with, and nothing is to pass beside them
  uint32_t lease_ms = 0;       // must be the same on all ranks: heartbeats follow the sender's
  std::string host;            // parallax_options_t.host, or the machine's name
  std::string machine;         // boot id: tells "same machine" where host is overridden
  UsableCores cores;           // of the thread that opens; without the quota's file
  NearMemory place;            // as it is bound
  std::string shm_address;     // of the shm transport: an abstract unix socket's name
  std::string network_address;  // of the transport between hosts; empty: there is none
  std::string trouble;          // why it cannot be reached, and gives up; empty: it can
};

// 0.2.0 of 200.
std::string version_text(uint32_t version);

// All but place and addresses.
std::string encode_endpoint(const Endpoint& endpoint);
Status decode_endpoint(std::span<const std::byte> blob, Endpoint* endpoint);
// The rank, its place, its addresses and its trouble. Those are added to an endpoint that was
// decoded before; INVALID: it is another rank's.
std::string encode_addresses(const Endpoint& endpoint);
Status decode_addresses(std::span<const std::byte> blob, Endpoint* endpoint);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_ENDPOINT_H_
