// SPDX-License-Identifier: Apache-2.0
// Paths: what `parallax doctor` finds of TCP between hosts. Ranks listen where transport tcp of a
// job would (tcp_address, tcp_rails, tcp_ports), and each tries one rank of every other host: its
// addresses, ports across the range, clock, packets of full length, and what the path carries.
#ifndef PARALLAX_TOOL_DOCTOR_PATHS_H_
#define PARALLAX_TOOL_DOCTOR_PATHS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/settings.h"
#include "base/status.h"
#include "tool/doctor.h"
#include "tool/doctor_card.h"
#include "tool/reach.h"
#include "transport/tcp/tcp_strangers.h"

namespace parallax::tool {

// Where a rank listens for the others.
struct ListenPlan {
  std::vector<std::string> addresses;
  std::vector<uint16_t> other_ports;  // to be tried beside the first
  TcpPorts ports;                     // of tcp_ports; 0: the kernel's choice
  // The first so many addresses are each a rail's, and each has to be reached; 0: a job takes any.
  uint32_t rails = 0;
};

// Of a rank on a host of `local_ranks`. INVALID: a setting of transport tcp cannot be followed.
Status plan_listening(const Settings& settings, bool one_machine, size_t local_ranks,
                      ListenPlan* plan);

// Of the secret by which the ranks of a job know each other, bound to a card by its random number:
// who has the same one makes the same of it, others learn nothing. "": there is none. INVALID, IO.
Status secret_mark(const Settings& settings, uint64_t card_secret, std::string* mark);

struct PathChecks {
  const Card& own;
  const ListenPlan& plan;
  Findings& findings;
  int64_t until_ns = 0;  // of SteadyClock: nothing goes on after it

  // Of the rank `name`; *measures*: what the path carries, too.
  void check(const std::string& name, const Card& card, bool measures) const;
  void check_secret(const std::string& name, const Card& card, const Settings& settings) const;

 private:
  // That one of the peer's, from this rank's own where each of its addresses is a rail's.
  TcpEndpoint path_to(const Card& card, size_t endpoint) const;
  // True: reached.
  bool try_endpoint(const std::string& name, const Card& card, size_t endpoint, bool measures,
                    std::string* why) const;
  void check_clock(const std::string& name, const Probe& probe) const;
  void check_ports(const std::string& name, const Card& card, const TcpEndpoint& reached) const;
  bool check_mtu(const std::string& name, const Card& card, size_t endpoint,
                 const std::string& local_address) const;
  void measure(const std::string& name, const Card& card, size_t endpoint) const;
  bool time_is_left() const { return SteadyClock().now_ns() < until_ns; }
};

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_DOCTOR_PATHS_H_
