// SPDX-License-Identifier: Apache-2.0
// The tcp meeting's door: "tcp:HOST:PORT[#JOB]" or a unique id, to TcpHost on rank 0 and to
// TcpMember on the others. Blocks on the resolver for names, and for a moment while a port is still
// taken.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_TCP_RENDEZVOUS_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_TCP_RENDEZVOUS_H_

#include <memory>
#include <string>
#include <string_view>

#include "transport/rendezvous/environment.h"
#include "transport/rendezvous/rendezvous.h"

namespace parallax {

// What a job is called that neither its program nor a secret tells from others: what its ranks
// share, and another job at the same port of loopback does not. The launcher's name for it, else
// this user's session (a login, a terminal, a service).
std::string unnamed_job(const Environment& environment);

// `where` is what follows "tcp:". INVALID: what is wrong with it, or that it takes a secret. IO:
// rank 0 cannot listen there.
Status make_tcp_rendezvous(const RendezvousOptions& options, std::string_view where,
                           const char* secret_file, const Environment& environment,
                           std::unique_ptr<Rendezvous>* rendezvous);

// INVALID: no id of parallax_unique_id, or rank 0 cannot listen where it says.
Status make_unique_id_rendezvous(const RendezvousOptions& options, const parallax_unique_id_t& id,
                                 std::unique_ptr<Rendezvous>* rendezvous);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_TCP_RENDEZVOUS_H_
