// SPDX-License-Identifier: Apache-2.0
// The unique id, NCCL's way: 128 bytes that one process makes and the caller carries to the others.
// It holds where rank 0 listens, a random job name and a random key, so that whoever has the id can
// join, and nobody else.
//
//   u32 magic, u16 1, u16 port, u8 address bytes (4 or 16), 16 address, 16 job, 32 key,
//   zeros, and in the last 8 bytes the start of an HMAC over all before, against garbling
//
// make_unique_id listens at once, so that ranks may connect before rank 0 opens, and nobody takes
// the port meanwhile. The listener waits in a table of the process (its only state between the two
// calls, which share nothing but the bytes of the id) until open takes it. Any thread.
#ifndef PARALLAX_RENDEZVOUS_UNIQUE_ID_H_
#define PARALLAX_RENDEZVOUS_UNIQUE_ID_H_

#include <string>

#include "base/crypto.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "parallax/parallax.h"
#include "rendezvous/tcp_address.h"

namespace parallax {

inline constexpr size_t kUniqueIdsWaitingMax = 64;

struct UniqueId {
  SocketAddress address;
  std::string job;  // 32 hexadecimal digits
  Key key;
};

parallax_unique_id_t encode_unique_id(const UniqueId& id);
// INVALID: not made by encode_unique_id, or changed since.
Status decode_unique_id(const parallax_unique_id_t& bytes, UniqueId* id);

// At the interface `device` (the setting net_device), or as choose_address does with "". LIMIT: too
// many were made and never opened.
Status make_unique_id(const std::string& device, parallax_unique_id_t* id);
// The listener that waits for this job; invalid if none does.
UniqueFd take_listener(const std::string& job);
// Closes the listener in a process that was forked after the id was made and is not rank 0: its
// copy would keep the port open.
void drop_inherited_listener(const std::string& job);

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_UNIQUE_ID_H_
