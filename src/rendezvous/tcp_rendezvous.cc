// SPDX-License-Identifier: Apache-2.0
// Where rank 0 listens, and the key by which ranks authenticate each other: see the header.
#include "rendezvous/tcp_rendezvous.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/interface.h"
#include "base/tcp_socket.h"
#include "rendezvous/launcher.h"
#include "rendezvous/secret.h"
#include "rendezvous/tcp_host.h"
#include "rendezvous/tcp_listen.h"
#include "rendezvous/tcp_member.h"
#include "rendezvous/unique_id.h"

namespace parallax {

namespace {

// A port of the ephemeral range may be taken for a moment by a rank that tried to connect before
// rank 0 listened, and connected to itself (tcp_connected).
constexpr int kListenTriesMax = 10;
constexpr std::chrono::milliseconds kListenPause{20};

Status listen_patiently(const SocketAddress& address, UniqueFd* listener) {
  Status listening;
  for (int i = 0; i < kListenTriesMax; ++i) {
    if (i > 0) std::this_thread::sleep_for(kListenPause);
    listening = tcp_listen(address, listener);
    if (listening.ok()) break;
  }
  return listening;
}

// A numeric address is used as it is. A name is resolved; but a machine's own name often resolves
// to loopback on that machine (Debian writes it so into /etc/hosts), where other machines cannot
// connect. So if a name other than localhost resolves to loopback and there is a secret, rank 0
// listens on all of its addresses.
Status listen_at(const TcpAddress& tcp_address, bool secret, UniqueFd* listener) {
  std::vector<SocketAddress> addresses;
  PARALLAX_RETURN_IF_ERROR(resolve(tcp_address, &addresses));
  PARALLAX_RETURN_IF_ERROR(check_trust(tcp_address, addresses, secret));
  SocketAddress address = addresses[0];
  if (secret && is_loopback(address) && !is_numeric(tcp_address) &&
      tcp_address.host != "localhost") {
    address = any_address(address.storage.ss_family, tcp_address.port);
  }
  return listen_patiently(address, listener);
}

}  // namespace

std::string unnamed_job(const Environment& environment) {
  const std::string job = job_of_launcher(environment);
  if (!job.empty()) return job;
  return "session " + std::to_string(::getsid(0)) + " of user " + std::to_string(::geteuid());
}

Status make_tcp_rendezvous(const RendezvousOptions& options, std::string_view where,
                           const char* secret_file, const Environment& environment,
                           std::unique_ptr<Rendezvous>* rendezvous) {
  TcpAddress tcp_address;
  PARALLAX_RETURN_IF_ERROR(parse_tcp_address(where, &tcp_address));
  std::string secret;
  PARALLAX_RETURN_IF_ERROR(find_secret(secret_file, environment, &secret));
  TcpEntry entry{
      .where = tcp_address.text(),
      .job = tcp_address.job.empty() && secret.empty() ? unnamed_job(environment) : tcp_address.job,
      .secret = !secret.empty(),
      .key = derive_key(secret, kJobKey)};
  wipe(&secret);
  if (options.rank != 0) {
    return TcpMember::create(options, std::move(entry), std::move(tcp_address), rendezvous);
  }
  UniqueFd listener;
  PARALLAX_RETURN_IF_ERROR(listen_at(tcp_address, entry.secret, &listener));
  return TcpHost::create(options, std::move(entry), std::move(listener), rendezvous);
}

Status make_unique_id_rendezvous(const RendezvousOptions& options, const parallax_unique_id_t& id,
                                 std::unique_ptr<Rendezvous>* rendezvous) {
  UniqueId read;
  PARALLAX_RETURN_IF_ERROR(decode_unique_id(id, &read));
  const std::string where = to_text(read.address);
  TcpEntry entry{
      .where = where, .job = read.job, .secret = true, .key = derive_key(read.key.view(), kJobKey)};
  if (options.rank != 0) {
    drop_inherited_listener(read.job);
    TcpAddress tcp_address;
    PARALLAX_RETURN_IF_ERROR(parse_tcp_address(where, &tcp_address));
    return TcpMember::create(options, std::move(entry), std::move(tcp_address), rendezvous);
  }
  UniqueFd listener = take_listener(read.job);
  if (!listener.valid()) {
    const Status listening = listen_patiently(read.address, &listener);
    if (!listening.ok()) {
      return invalid(
          "options.unique_id was made by another process, or is that of another job: "
          "let rank 0 call parallax_unique_id, once for each job (" +
          listening.message() + ")");
    }
  }
  return TcpHost::create(options, std::move(entry), std::move(listener), rendezvous);
}

}  // namespace parallax
