// SPDX-License-Identifier: Apache-2.0
// What came from each rank is checked here. See introductions.h.
#include "job/introductions.h"

#include <span>
#include <string>

#include "base/rank_list.h"
#include "base/text.h"

namespace parallax {

namespace {

Status brought_wrong(uint32_t rank, const Status& why) {
  return why
      .prefixed("open: what rank " + std::to_string(rank) + " brought to the rendezvous is wrong: ")
      .about_peer(rank);
}

}  // namespace

Status exchange_endpoints(Rendezvous& rendezvous, const Endpoint& mine, int64_t deadline_ns,
                          std::vector<Endpoint>* all) {
  const std::string blob = encode_endpoint(mine);
  std::vector<std::string> blobs;
  PARALLAX_RETURN_IF_ERROR(
      rendezvous.allgather(std::as_bytes(std::span(blob)), deadline_ns, &blobs));
  all->assign(blobs.size(), {});
  for (uint32_t rank = 0; rank < blobs.size(); ++rank) {
    const Status decoded = decode_endpoint(std::as_bytes(std::span(blobs[rank])), &(*all)[rank]);
    if (!decoded.ok()) return brought_wrong(rank, decoded);
    if ((*all)[rank].rank != rank) {
      return invalid("open: rank " + std::to_string((*all)[rank].rank) +
                     " came to the rendezvous as rank " + std::to_string(rank));
    }
  }
  return {};
}

Status exchange_addresses(Rendezvous& rendezvous, const Endpoint& mine, const Status& own,
                          int64_t deadline_ns, std::vector<Endpoint>* all) {
  Endpoint told = mine;
  if (!own.ok()) told.trouble = printable(own.message()).substr(0, kTroubleBytesMax);
  const std::string blob = encode_addresses(told);
  std::vector<std::string> blobs;
  const Status met = rendezvous.allgather(std::as_bytes(std::span(blob)), deadline_ns, &blobs);
  if (!own.ok()) return own;
  PARALLAX_RETURN_IF_ERROR(met);
  for (uint32_t rank = 0; rank < blobs.size(); ++rank) {
    const Status decoded = decode_addresses(std::as_bytes(std::span(blobs[rank])), &(*all)[rank]);
    if (!decoded.ok()) return brought_wrong(rank, decoded);
    const Endpoint& other = (*all)[rank];
    if (other.trouble.empty()) continue;
    return departed(rank, other.host, invalid(other.trouble));
  }
  return {};
}

}  // namespace parallax
