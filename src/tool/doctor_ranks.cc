// SPDX-License-Identifier: Apache-2.0
// Checks among the ranks of a job: they meet as a job does, tell each other what they are, try to
// reach each other over TCP, attach shared memory, and at last open a real job over the same
// rendezvous. Every rank makes the same rounds of the rendezvous, whatever it finds.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "parallax/parallax.h"
#include "rendezvous/rendezvous.h"
#include "tool/doctor.h"
#include "tool/doctor_card.h"
#include "tool/doctor_paths.h"
#include "tool/doctor_rdma.h"
#include "tool/doctor_rdma_reach.h"
#include "tool/machine.h"
#include "tool/reach.h"
#include "tool/tool.h"
#include "transport/endpoint.h"
#include "transport/shm/shm_transport.h"
#include "world/host_map.h"

namespace parallax::tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kAttachTimeoutMs = 5000;
constexpr size_t kHostsReachedMax = 64;

// Of the interface with this address; 0: unknown.
uint32_t mtu_at(const std::string& address) {
  for (const Interface& each : interfaces()) {
    for (const std::string& own : each.addresses) {
      if (own == address) return each.mtu_bytes;
    }
  }
  return 0;
}

class RankChecks {
 public:
  RankChecks(const RankIdentity& identity, uint32_t timeout_ms, const Settings& settings,
             const RdmaFacts& rdma, Findings* findings)
      : identity_(identity),
        timeout_ms_(timeout_ms),
        settings_(settings),
        rdma_(rdma),
        findings_(*findings) {}
  void run();

 private:
  Status meet();
  Status exchange();
  bool exchange_again();
  void know_hosts();
  void check_versions();
  void check_hosts();
  void check_reach(const ListenPlan& plan);
  void check_rdma_ports();
  void check_rdma_reach(RdmaReach* reach);
  void check_shared_memory(const Status& made, ShmTransport* shm);
  bool check_among_all();
  void check_job();
  Status open_job(std::string* transport);
  std::string name(uint32_t rank) const {
    return "rank " + std::to_string(rank) + " (host " + cards_[rank].host + ")";
  }
  static int allgather(void* context, const void* send, void* recv, size_t bytes);

  const RankIdentity& identity_;
  const uint32_t timeout_ms_;
  const Settings& settings_;
  const RdmaFacts& rdma_;
  Findings& findings_;
  const SteadyClock clock_;
  int64_t deadline_ns_ = 0;
  std::unique_ptr<Rendezvous> rendezvous_;
  Card own_;
  std::vector<Card> cards_;
  HostMap hosts_;
  bool one_machine_ = false;
};

Status RankChecks::exchange() {
  const std::string blob = encode(own_);
  if (blob.size() > kEndpointBytesMax) {
    return internal("the doctor's card has " + std::to_string(blob.size()) + " bytes");
  }
  std::vector<std::string> blobs;
  PARALLAX_RETURN_IF_ERROR(
      rendezvous_->allgather(std::as_bytes(std::span(blob)), deadline_ns_, &blobs));
  cards_.assign(blobs.size(), {});
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    PARALLAX_RETURN_IF_ERROR(decode(blobs[rank], &cards_[rank]));
  }
  return {};
}

// False: a rank was lost during the round, and the cards may be out of date.
bool RankChecks::exchange_again() {
  const Status met = exchange();
  if (met.ok()) return true;
  rendezvous_->leave(met);
  findings_.fail("rendezvous", met.message(), "see what that rank said");
  return false;
}

void RankChecks::check_versions() {
  bool alike = true;
  for (uint32_t rank = 0; rank < cards_.size(); ++rank) {
    const Card& card = cards_[rank];
    if (card.version != own_.version) {
      findings_.fail(
          "versions",
          name(rank) + " has libparallax " + card.version + ", this rank " + own_.version,
          "install one version on every host");
      alike = false;
    } else if (card.git != own_.git) {
      findings_.warn("versions",
                     name(rank) + " was built from " + (card.git.empty() ? "?" : card.git) +
                         ", this rank from " + (own_.git.empty() ? "?" : own_.git),
                     "install one build on every host");
      alike = false;
    }
  }
  if (alike) findings_.ok("versions", "every rank has libparallax " + own_.version);
}

void RankChecks::check_hosts() {
  bool sound = true;
  for (uint32_t rank = 0; rank < cards_.size(); ++rank) {
    if (cards_[rank].host != own_.host || cards_[rank].machine == own_.machine) continue;
    findings_.fail("hosts",
                   name(rank) +
                       " gives the same host name as this rank, but cannot share memory "
                       "with it (another machine, container or network namespace)",
                   "give them different names: PARALLAX_HOST");
    sound = false;
  }
  if (sound) {
    findings_.ok("hosts", std::to_string(hosts_.names.size()) +
                              (hosts_.names.size() == 1 ? " host, " : " hosts, ") +
                              std::to_string(cards_.size()) + " ranks");
  }
}

// Of one rank of each other host, as for TCP.
void RankChecks::check_rdma_ports() {
  std::vector<std::pair<std::string, RdmaCard>> others;
  const uint32_t own_host = hosts_.host_of[identity_.rank];
  for (uint32_t host = 0; host < hosts_.ranks_of.size(); ++host) {
    const std::vector<uint32_t>& there = hosts_.ranks_of[host];
    if (host == own_host) continue;
    const uint32_t rank = there[hosts_.local_of[identity_.rank] % there.size()];
    others.emplace_back(name(rank), cards_[rank].rdma);
  }
  compare_rdma(own_.rdma, others, rdma_.is_wanted, &findings_);
}

// Ranks of one place on their hosts among each other, so that every rail is tried and each rank of
// a pair tries the other.
void RankChecks::check_rdma_reach(RdmaReach* reach) {
  std::vector<RdmaReach::Peer> peers;
  const uint32_t local = hosts_.local_of[identity_.rank];
  for (const std::vector<uint32_t>& there : hosts_.ranks_of) {
    if (local >= there.size() || there[local] == identity_.rank) continue;
    const Card& card = cards_[there[local]];
    peers.push_back({.rank = there[local],
                     .name = name(there[local]),
                     .address = card.rdma_address,
                     .port = card.rdma.port});
  }
  reach->check(peers, rdma_.is_wanted, &findings_);
}

// One rank of each other host: the one with the local rank of this one, so that all pairs of hosts
// are tried and no rank is asked by all. What a path carries is for the first rank of each host to
// measure, to the next host: so each link carries one stream in each direction, as far as it can.
void RankChecks::check_reach(const ListenPlan& plan) {
  const uint32_t own_host = hosts_.host_of[identity_.rank];
  // Half of the time left is kept for the rounds that follow.
  const int64_t until_ns = clock_.now_ns() + (deadline_ns_ - clock_.now_ns()) / 2;
  const PathChecks paths = {own_, plan, findings_, until_ns};
  const auto hosts = static_cast<uint32_t>(hosts_.ranks_of.size());
  const uint32_t local = hosts_.local_of[identity_.rank];
  // Each begins with the next host, so that no host is asked by all at a time.
  for (uint32_t step = 1; step < hosts; ++step) {
    const std::vector<uint32_t>& there = hosts_.ranks_of[(own_host + step) % hosts];
    const uint32_t rank = there[local % there.size()];
    paths.check(name(rank), cards_[rank], local == 0 && step == 1);
    paths.check_secret(name(rank), cards_[rank], settings_);
  }
}

// `made`: of this rank's own part. The cards of this host's ranks hold theirs.
void RankChecks::check_shared_memory(const Status& made, ShmTransport* shm) {
  std::vector<Endpoint> neighbours;
  for (const uint32_t rank : hosts_.ranks_of[hosts_.host_of[identity_.rank]]) {
    if (rank == identity_.rank || cards_[rank].machine != own_.machine) continue;
    Endpoint endpoint;
    endpoint.rank = rank;
    endpoint.host = cards_[rank].host;
    endpoint.shm_address = cards_[rank].shm_address;
    neighbours.push_back(std::move(endpoint));
  }
  if (neighbours.empty()) return;
  const int64_t until_ns =
      std::min(deadline_ns_, clock_.now_ns() + kAttachTimeoutMs * kNanosecondsPerMillisecond);
  const Status status = made.ok() ? shm->connect_all(neighbours, cards_[0].secret, until_ns) : made;
  if (status.ok()) {
    findings_.ok("shared memory", "attached to " + std::to_string(neighbours.size()) +
                                      (neighbours.size() == 1 ? " rank" : " ranks") +
                                      " of this host");
  } else {
    findings_.fail("shared memory", status.message(),
                   "the ranks of a host must run as one user, in one network namespace, with "
                   "enough descriptors (ulimit -n) and file size (ulimit -f)");
  }
}

// In pieces, since a round carries at most kEndpointBytesMax a rank.
int RankChecks::allgather(void* context, const void* send, void* recv, size_t bytes) {
  auto* const self = static_cast<RankChecks*>(context);
  for (size_t at = 0; at < bytes; at += kEndpointBytesMax) {
    const size_t part = std::min(kEndpointBytesMax, bytes - at);
    std::vector<std::string> all;
    const Status status = self->rendezvous_->allgather(
        {static_cast<const std::byte*>(send) + at, part}, self->deadline_ns_, &all);
    if (!status.ok()) return 1;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].size() != part) return 2;
      std::copy(all[rank].begin(), all[rank].end(), static_cast<char*>(recv) + rank * bytes + at);
    }
  }
  return 0;
}

Status RankChecks::open_job(std::string* transport) {
  const auto ended = [](parallax_status_t code) {
    return code == PARALLAX_OK ? Status() : Status(code, parallax_last_error());
  };
  parallax_options_t options = {};
  options.size = sizeof options;
  options.rank = identity_.rank;
  options.world = identity_.world;
  options.host = own_.host.c_str();
  options.allgather = allgather;
  options.allgather_context = this;
  options.timeout_ms = timeout_ms_;
  parallax_job_t* job = nullptr;
  PARALLAX_RETURN_IF_ERROR(ended(parallax_open(&options, &job)));
  parallax_request_t* request = nullptr;
  Status status = ended(parallax_commit(job));
  if (status.ok()) status = ended(parallax_barrier(job, &request));
  if (status.ok()) status = ended(parallax_wait(&request, 1, PARALLAX_WAIT_DEFAULT));
  if (request != nullptr && status.ok()) status = ended(parallax_request_release(request));
  size_t bytes = 0;
  (void)parallax_report(job, PARALLAX_REPORT_TOPOLOGY, nullptr, &bytes);
  std::string report(bytes, '\0');
  if (parallax_report(job, PARALLAX_REPORT_TOPOLOGY, report.data(), &bytes) == PARALLAX_OK) {
    const Json topology = Json::parse(report.c_str());
    const size_t local = hosts_.ranks_of[hosts_.host_of[identity_.rank]].size();
    const std::string network = topology.at("network");
    if (local > 1) *transport = "shared memory";
    if (!network.empty()) *transport += (local > 1 ? " and " : "") + network;
  }
  const Status closed = ended(parallax_close(job));
  return status.ok() ? closed : status;
}

void RankChecks::check_job() {
  std::string transport;
  const Status status = open_job(&transport);
  if (status.ok()) {
    findings_.ok("job", "opened, passed a barrier and closed over " + transport);
    const Status finished = rendezvous_->finish();
    if (!finished.ok()) findings_.warn("rendezvous", finished.message(), "remove it by hand");
  } else {
    findings_.fail("job", status.message(), "PARALLAX_DEBUG=info says what was chosen, and why");
  }
}

Status RankChecks::meet() {
  parallax_options_t open_options = {};
  open_options.size = sizeof open_options;
  open_options.rank = identity_.rank;
  open_options.world = identity_.world;
  open_options.rendezvous = identity_.rendezvous.empty() ? nullptr : identity_.rendezvous.c_str();
  const std::string& secret_file = settings_.value("secret_file").text;
  open_options.secret_file = secret_file.empty() ? nullptr : secret_file.c_str();
  PARALLAX_RETURN_IF_ERROR(make_rendezvous(open_options, own_.host, clock_, &rendezvous_));
  const Status met = exchange();
  if (!met.ok()) rendezvous_->leave(met);
  return met;
}

void RankChecks::know_hosts() {
  std::vector<std::string> names;
  one_machine_ = true;
  for (const Card& card : cards_) {
    names.push_back(card.host);
    one_machine_ = one_machine_ && card.machine == own_.machine;
  }
  hosts_ = map_hosts(names);
}

// Each rank opens a listener and a shared memory segment, tells the others where they are, tries
// those of the others, and keeps its own until all have tried. False: a rank was lost.
bool RankChecks::check_among_all() {
  const std::vector<uint32_t>& here = hosts_.ranks_of[hosts_.host_of[identity_.rank]];
  Listener listener;
  ListenPlan plan;
  const Status planned = plan_listening(settings_, one_machine_, here.size(), &plan);
  if (!planned.ok()) {
    findings_.fail("reach", planned.message(), "mend the setting");
  } else if (const Status listening = listener.start(plan.addresses, plan.other_ports, plan.ports);
             !listening.ok()) {
    findings_.fail("reach", listening.message(), "free a port, or mend the address");
  }
  own_.rails = plan.rails;
  own_.endpoints = listener.endpoints();
  own_.other_ports = listener.other_ports();
  for (const TcpEndpoint& endpoint : own_.endpoints) {
    own_.mtus_bytes.push_back(mtu_at(endpoint.address));
  }
  own_.rdma = rdma_card(rdma_, hosts_.local_of[identity_.rank], static_cast<uint32_t>(here.size()));
  own_.secret = listener.secret();
  (void)secret_mark(settings_, own_.secret, &own_.secret_mark);  // check_machine says what ails it
  std::unique_ptr<ShmTransport> shm;
  const Status made = ShmTransport::create({.rank = identity_.rank, .clock = &clock_}, &shm);
  if (made.ok()) own_.shm_address = shm->address();
  RdmaReach rdma_reach;
  // Beyond so many a job makes its connections as it needs them, too.
  const size_t hosts = hosts_.ranks_of.size();
  if (rdma_.are_here && hosts > 1 && hosts <= kHostsReachedMax) {
    rdma_reach.open(settings_, own_.rdma, identity_.rank, identity_.world);
    own_.rdma_address = rdma_reach.address();
  }
  if (!exchange_again()) return false;
  check_rdma_reach(&rdma_reach);  // first, while all ranks do
  check_shared_memory(made, shm.get());
  check_reach(plan);
  check_rdma_ports();
  own_.failed = findings_.any_fail();
  return exchange_again();
}

void RankChecks::run() {
  deadline_ns_ = clock_.now_ns() + timeout_ms_ * kNanosecondsPerMillisecond;
  char own_name[PARALLAX_NAME_MAX + 1] = "";
  (void)gethostname(own_name, sizeof own_name - 1);
  own_.version = build_info().version;
  own_.git = build_info().git;
  own_.host = identity_.host.empty() ? own_name : identity_.host;
  own_.machine = shm_machine_id();
  const Status met = meet();
  if (!met.ok()) {
    return findings_.fail("rendezvous", met.message(),
                          "start all ranks under one launcher, or with the same --world and "
                          "--rendezvous (of file: a directory that is new and that all of them "
                          "see); --world 1 checks this machine alone");
  }
  findings_.ok("rendezvous", std::to_string(identity_.world) + " ranks met");
  know_hosts();
  check_versions();
  check_hosts();
  if (!check_among_all()) return;
  const auto ill =
      std::find_if(cards_.begin(), cards_.end(), [](const Card& card) { return card.failed; });
  if (ill == cards_.end()) {
    check_job();
  } else if (!own_.failed) {
    findings_.warn(
        "job",
        "not tried, as checks of " + name(static_cast<uint32_t>(ill - cards_.begin())) + " failed",
        "see what that rank said");
  }
  rendezvous_->finish_bootstrap();
}

}  // namespace

void check_ranks(const RankIdentity& identity, uint32_t timeout_ms, const Settings& settings,
                 const RdmaFacts& rdma, Findings* findings) {
  RankChecks(identity, timeout_ms, settings, rdma, findings).run();
}

}  // namespace parallax::tool
