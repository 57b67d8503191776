// SPDX-License-Identifier: Apache-2.0
// Makes a tcp rendezvous from "tcp:HOST:PORT[#JOB]" or from a unique id: a TcpHost on rank 0, a
// TcpMember on the others. Blocks on the resolver for names, and for a moment while a port is still
// taken.
#ifndef PARALLAX_RENDEZVOUS_TCP_RENDEZVOUS_H_
#define PARALLAX_RENDEZVOUS_TCP_RENDEZVOUS_H_

#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/environment.h"
#include "rendezvous/rendezvous.h"

namespace parallax {

// The name of a job to which the program gave neither a name nor a secret. It must be the same for
// all of its ranks and differ from that of another job at the same loopback port: the launcher's
// name for the job, else this user's session (a login, a terminal, a service).
std::string unnamed_job(const Environment& environment);

// `where` is what follows "tcp:". INVALID: it cannot be parsed, or needs a secret. IO: rank 0
// cannot listen there.
Status make_tcp_rendezvous(const RendezvousOptions& options, std::string_view where,
                           const char* secret_file, const Environment& environment,
                           std::unique_ptr<Rendezvous>* rendezvous);

// INVALID: no id of parallax_unique_id, or rank 0 cannot listen where it says.
Status make_unique_id_rendezvous(const RendezvousOptions& options, const parallax_unique_id_t& id,
                                 std::unique_ptr<Rendezvous>* rendezvous);

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_TCP_RENDEZVOUS_H_
