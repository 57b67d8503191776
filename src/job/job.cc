// SPDX-License-Identifier: Apache-2.0
// Open: rendezvous, connecting, leaving. See job.h.
#include "job/job.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "base/environment.h"
#include "base/log.h"
#include "base/usable_cores.h"
#include "base/version.h"
#include "collectives/entries.h"
#include "job/connection.h"
#include "job/contact.h"
#include "job/endpoint_checks.h"
#include "job/introductions.h"
#include "job/job_settings.h"
#include "job/network_choice.h"
#include "job/tcp_network.h"
#include "message/kinds.h"
#include "rendezvous/launcher.h"
#include "transport/faulty/faulty_transport.h"
#include "transport/inproc/inproc_transport.h"
#include "transport/module/module.h"
#include "transport/router.h"
#include "transport/shm/shm_transport.h"

namespace parallax {

namespace {

constexpr uint32_t kTimeoutDefaultMs = 120000;
// A library that is busy registers memory, or gives up a communicator.
constexpr std::chrono::microseconds kForgetAgainAfter(50);
constexpr int64_t kFlushNs = 500 * kNanosecondsPerMillisecond;

std::string host_name(const parallax_options_t& options) {
  if (options.host != nullptr) return options.host;
  char name[PARALLAX_NAME_MAX + 1] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

void pause(int64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }

uint64_t random_number() {
  std::random_device source;
  return static_cast<uint64_t>(source()) << 32 | source();
}

}  // namespace

Job::Job(const parallax_options_t& options, std::unique_ptr<Settings> settings)
    : settings_(std::move(settings),
                options.timeout_ms == 0 ? kTimeoutDefaultMs : options.timeout_ms),
      options_(options),
      host_(host_name(options)) {}

// The order matters: the thread that drives goes first, then what it drove; the transport before
// the engine, whose memory it may be sending.
Job::~Job() {
  if (progress_ != nullptr) progress_->stop();
  compute_.reset();
  if (groups_ != nullptr) groups_->leave_transport();
  transport_.reset();
  groups_.reset();
  if (devices_ != nullptr) devices_->close(buffers_.give_up_devices());
  devices_.reset();
  progress_.reset();
}

Status misplaced(const char* call, int process) {
  if (RuleBlocks::calling()) {
    return bad_state(std::string(call) +
                     ": called from within a variable's rule_fn, which the job waits for");
  }
  return bad_state(std::string(call) + ": the job belongs to process " + std::to_string(process) +
                   "; process " + std::to_string(getpid()) +
                   ", forked from it, must leave it alone and may open a job of its own");
}

Status Job::open(parallax_options_t options, std::unique_ptr<Job>* job) {
  std::unique_ptr<Settings> settings;
  PARALLAX_RETURN_IF_ERROR(take_settings(&options, &settings));
  Launched launched;  // holds strings of `options`
  const bool outside = settings->value("rendezvous").source == SettingSource::kEnvironment;
  Status status = apply_launcher(process_variable, outside, &launched, &options);
  if (status.ok()) status = check_options(options);
  const auto slots = static_cast<uint32_t>(settings->value("slots").number);
  if (status.ok()) status = check_slots(slots, std::max(1u, options.world));
  if (!status.ok()) return settings->explained(status);
  warn_if_left_alone(options);
  std::unique_ptr<Job> opened(new Job(options, std::move(settings)));
  status = opened->begin();
  if (!status.ok()) return opened->settings_.as_opened().explained(status);
  *job = std::move(opened);
  return {};
}

Status Job::begin() {
  fuse_tables_ = static_cast<FuseTables>(setting("fuse_tables").number);
  PARALLAX_RETURN_IF_ERROR(binding_.prepare(setting("bind").text, setting("topology_xml").text));
  const int64_t deadline_ns = clock_.now_ns() + timeout_ns();
  PARALLAX_RETURN_IF_ERROR(make_rendezvous(options_, host_, clock_, &rendezvous_));
  const Status met = meet(deadline_ns);
  if (!met.ok()) {
    // So that the others hear why, and do not wait until their deadlines.
    rendezvous_->leave(met);
    return met;
  }
  PARALLAX_RETURN_IF_ERROR(start_engine());
  log_connection(connection_, hosts_, options_.rank);
  return {};
}

Status Job::await_all(int64_t deadline_ns) {
  std::vector<std::string> nothing;
  return rendezvous_->allgather({}, deadline_ns, &nothing);
}

Status Job::wire(NetworkTransport& network, int64_t deadline_ns) const {
  uint32_t missing = 0;
  const Status wired = network.wire(wired_peers(hosts_, options_.rank), deadline_ns, &missing);
  if (wired.ok()) return wired;
  const std::string& host = hosts_.names[hosts_.host_of[missing]];
  return wired.prefixed("rank " + std::to_string(missing) + " (host " + host + "): ")
      .about_peer(missing, host);
}

// Rank 0's number makes the epoch, so that a message of another job is never taken for ours.
Status Job::meet(int64_t deadline_ns) {
  Endpoint mine;
  mine.version = kVersion;
  mine.rank = options_.rank;
  mine.job = random_number();
  mine.pid = getpid();
  mine.lease_ms = static_cast<uint32_t>(lease_ns() / kNanosecondsPerMillisecond);
  mine.host = host_;
  mine.machine = shm_machine_id();
  mine.cores = usable_cores();
  const CarrierChoice carrier = choose_carrier(options_, setting("transport").where);
  mine.carrier = carrier.carrier;
  // Rules of faults are about messages, so all goes by them, at all ranks.
  mine.messages_only = options_.faults != nullptr;
  connection_.carrier_why = carrier.why;
  std::vector<Endpoint> all;
  PARALLAX_RETURN_IF_ERROR(exchange_endpoints(*rendezvous_, mine, deadline_ns, &all));
  std::vector<std::string> names;
  for (const Endpoint& endpoint : all) {
    names.push_back(endpoint.host);
    has_boards_ &= !endpoint.messages_only;
  }
  PARALLAX_RETURN_IF_ERROR(check_leases(all));
  hosts_ = map_hosts(names);
  spin_ = choose_spin(spin_options(settings_.as_opened(), hosts_.ranks_of.size() == 1),
                      cores_on_machine(all, hosts_.host_of, options_.rank));
  const uint32_t host = hosts_.host_of[options_.rank];
  PARALLAX_RETURN_IF_ERROR(binding_.decide(hosts_.local_of[options_.rank],
                                           static_cast<uint32_t>(hosts_.ranks_of[host].size())));
  mine.place = binding_.place();
  mine.job = all[0].job;
  // Odd, and so never 0.
  epoch_ = static_cast<uint32_t>(mine.job ^ mine.job >> 32) | 1;
  if (const std::shared_ptr<InprocHub> hub = rendezvous_->hub()) {
    std::unique_ptr<InprocTransport> inproc;
    PARALLAX_RETURN_IF_ERROR(InprocTransport::create(hub, options_.rank, &inproc));
    transport_ = std::move(inproc);
    connection_.one_process = true;
  } else if (all.size() == 1) {
    std::unique_ptr<InprocTransport> alone;
    const auto hub_of_one = std::make_shared<InprocHub>(1);
    PARALLAX_RETURN_IF_ERROR(InprocTransport::create(hub_of_one, 0, &alone));
    transport_ = std::move(alone);
  } else {
    PARALLAX_RETURN_IF_ERROR(check_hosts(all, hosts_, options_.transport));
    PARALLAX_RETURN_IF_ERROR(connect(mine, std::move(all), deadline_ns));
  }
  // Last, so that rules count messages of the job alone, not those of connecting.
  PARALLAX_RETURN_IF_ERROR(inject_faults());
  // No rank sends before every rank can receive.
  PARALLAX_RETURN_IF_ERROR(await_all(deadline_ns));
  rendezvous_->finish_bootstrap();
  return {};
}

// Wraps the transport so that it misbehaves by the rules of options.faults.
Status Job::inject_faults() {
  const char* given = options_.faults;
  if (given == nullptr) return {};
  FaultyOptions faults;
  const Status parsed = parse_faults(given, static_cast<uint32_t>(hosts_.host_of.size()), &faults);
  if (!parsed.ok()) return invalid("open: " + parsed.message());
  if (faults.rules.empty()) return {};
  faults.carries_data_of = carries_data_of;
  auto faulty = std::make_unique<FaultyTransport>(std::move(transport_), clock_, faults, pause);
  faulty_ = faulty.get();
  transport_ = std::move(faulty);
  return {};
}

// The transport between hosts, on the device that was named or that is found.
Status Job::make_network(const Endpoint& mine, bool one_machine,
                         std::unique_ptr<NetworkTransport>* network) {
  const bool by_ucx = mine.carrier != NetworkCarrier::kTcp;
  const ParallaxTransportModule* module = nullptr;
  if (by_ucx) {
    PARALLAX_RETURN_IF_ERROR(
        load_ucx_module(setting("module_dir").text, &module, &connection_.module));
  }
  const auto world = static_cast<uint32_t>(hosts_.host_of.size());
  const auto local_ranks =
      static_cast<uint32_t>(hosts_.ranks_of[hosts_.host_of[options_.rank]].size());
  NetworkChoice choice;
  PARALLAX_RETURN_IF_ERROR(choose_network({.carrier = mine.carrier,
                                           .options = &options_,
                                           .net_device_where = setting("net_device").where,
                                           .tcp_address_where = set_where(setting("tcp_address")),
                                           .rails = setting("rails").text,
                                           .one_machine = one_machine,
                                           .local_rank = hosts_.local_of[options_.rank],
                                           .local_ranks = local_ranks},
                                          &choice));
  connection_.network_why = choice.why;
  if (by_ucx) {
    const uint64_t registered_bytes_max = uint64_t{setting("rdma_memory_mb").number} << 20;
    PARALLAX_RETURN_IF_ERROR(
        module->create(ucx_network(choice, options_.rank, world, registered_bytes_max), network));
  } else {
    PARALLAX_RETURN_IF_ERROR(make_tcp_network({.options = &options_,
                                               .settings = &settings_.as_opened(),
                                               .device = choice.device,
                                               .world = world,
                                               .job = mine.job,
                                               .epoch = epoch_,
                                               .lease_ns = lease_ns()},
                                              network));
  }
  // Peers refuse a longer one: better said here, with what shortens it.
  const size_t address_bytes = (*network)->address().size();
  if (address_bytes > kNetworkAddressBytesMax) {
    return limit("open: the address that UCX gives has " + std::to_string(address_bytes) +
                 " bytes, at most " + std::to_string(kNetworkAddressBytesMax) +
                 " can be exchanged; name one interface by net_device, or fewer in UCX_TLS");
  }
  connection_.carrier = by_ucx ? connection_.module.library : "tcp";
  connection_.network = (*network)->description();
  return {};
}

// Those that the ranks' places call for, and where this rank listens by them.
Status Job::make_transports(bool one_machine, Endpoint* mine, std::unique_ptr<ShmTransport>* shm,
                            std::unique_ptr<NetworkTransport>* network) {
  if (hosts_.ranks_of[hosts_.host_of[options_.rank]].size() > 1) {
    // Descriptors on their way are bounded for a user: none of what nobody would use.
    for (const auto& ranks : hosts_.ranks_of) has_boards_ &= ranks.size() <= kEntryRanksMax;
    PARALLAX_RETURN_IF_ERROR(ShmTransport::create(
        {.rank = options_.rank, .clock = &clock_, .boards = has_boards_}, shm));
    mine->shm_address = (*shm)->address();
  }
  if (hosts_.ranks_of.size() > 1) {
    PARALLAX_RETURN_IF_ERROR(make_network(*mine, one_machine, network));
    mine->network_address = (*network)->address();
  }
  return {};
}

Status Job::connect(Endpoint mine, std::vector<Endpoint> all, int64_t deadline_ns) {
  const bool one_machine = std::all_of(all.begin(), all.end(), [&](const Endpoint& endpoint) {
    return endpoint.machine == all[0].machine;
  });
  const uint32_t world = static_cast<uint32_t>(hosts_.host_of.size());
  const uint32_t host = hosts_.host_of[options_.rank];
  std::unique_ptr<ShmTransport> shm;
  std::unique_ptr<NetworkTransport> network;
  const Status made = make_transports(one_machine, &mine, &shm, &network);
  PARALLAX_RETURN_IF_ERROR(exchange_addresses(*rendezvous_, mine, made, deadline_ns, &all));
  std::vector<NearMemory> places;
  for (const Endpoint& endpoint : all) places.push_back(endpoint.place);
  set_domains(&hosts_, places);
  std::vector<Router::Part> parts;
  std::vector<Endpoint> neighbours;
  std::vector<uint32_t> local_ranks, remote_ranks;
  for (uint32_t rank = 0; rank < world; ++rank) {
    if (rank == options_.rank) continue;
    if (hosts_.host_of[rank] == host) {
      neighbours.push_back(all[rank]);
      local_ranks.push_back(rank);
    } else {
      // Only the address: wire() or the first message makes the connection.
      PARALLAX_RETURN_IF_ERROR(network->connect(rank, all[rank].network_address));
      remote_ranks.push_back(rank);
    }
  }
  // Shared memory first: meanwhile this rank is silent on the network, which make_contact() expects
  // of a rank that waits for its own host.
  const ContactMeans means = {clock_, pause, *rendezvous_, lease_ns()};
  if (shm != nullptr) {
    PARALLAX_RETURN_IF_ERROR(make_contact(
        means, ContactWay::kSharedMemory, deadline_ns,
        [&](int64_t end_ns) { return shm->connect_all(neighbours, mine.job, end_ns); }));
    PARALLAX_LOG(kDebug, kShm,
                 "rank " + std::to_string(options_.rank) + " shares memory with " +
                     std::to_string(neighbours.size()) + " ranks of its host");
    parts.push_back({std::move(shm), local_ranks});
  }
  if (network != nullptr) {
    PARALLAX_RETURN_IF_ERROR(make_contact(means, ContactWay::kNetwork, deadline_ns,
                                          [&](int64_t end_ns) { return wire(*network, end_ns); }));
    connection_.ways = ways_of(*network, world);
    parts.push_back({std::move(network), remote_ranks});
  }
  std::unique_ptr<Router> router;
  PARALLAX_RETURN_IF_ERROR(Router::create(world, std::move(parts), &router));
  transport_ = std::move(router);
  return {};
}

Status Job::start_engine() {
  PARALLAX_LOG(kDebug, kInit, "bind: " + binding_.report().dump());
  PARALLAX_LOG(kDebug, kInit, "waiting: " + spin_report(spin_).dump());
  Binding& binding = binding_.binding();
  const Binding::Scope memory(binding);  // arenas reserved in it lie on the rank's NUMA nodes
  // First, since compute threads wake it.
  progress_ = std::make_unique<Progress>(*transport_, clock_, binding);
  const size_t local_ranks = hosts_.ranks_of[hosts_.host_of[options_.rank]].size();
  devices_ = std::make_unique<JobDevices>(
      JobDevices::options_of(settings_.as_opened(), local_ranks, [this] { progress_->wake(); }));
  compute_ = std::make_unique<InlineCompute>();
  if (options_.compute_threads > 0) {
    auto pool = std::make_unique<ThreadCompute>(
        [this] { progress_->wake(); },
        [&binding](std::thread& thread) { binding.adopt(thread, "parallax-comp"); });
    PARALLAX_RETURN_IF_ERROR(pool->start(options_.compute_threads));
    compute_ = std::move(pool);
  }
  const auto world = static_cast<uint32_t>(hosts_.host_of.size());
  const auto slots_each = static_cast<uint32_t>(setting("slots").number / world);
  CostSetting costs;
  PARALLAX_RETURN_IF_ERROR(parse_costs(setting("costs").text, &costs));
  // Ranks of one process, as tests have them, commit often, and take turns at the same cores.
  if (connection_.one_process) costs.measured = false;
  groups_ = std::make_unique<JobGroups>(
      EngineOptions{
          .rank = options_.rank,
          .view = first_view(hosts_, epoch_,
                             slots_each == 0 ? SlotMap() : SlotMap::of_ranks(world, slots_each)),
          .lease_ns = lease_ns(),
          .plan_mode = static_cast<parallax_plan_mode_t>(options_.plan_mode),
          .plan_after_steps = plan_after_steps_of(options_),
          .pins = pins_of(options_),
          .fuse_tables = fuse_tables_,
          .deterministic = options_.deterministic != 0,
          .memory_max_bytes = options_.memory_max_bytes,
          .memory_check = static_cast<MemoryCheck>(setting("memory_check").number),
          .machine = machine_memory(),
          .boards = has_boards_,
          .row_ways = row_ways_of(settings_.as_opened()),
          .staleness = staleness_of(options_),
          .devices = opener(),
          .memory_around = [this](const void* address) { return buffers_.around(address); },
          .buffers = &buffers_,
          .nccl = static_cast<AmongDevices>(setting("nccl").number),
          .nccl_timeout_ns =
              static_cast<int64_t>(setting("nccl_timeout_ms").number) * kNanosecondsPerMillisecond,
          .costs = costs},
      *transport_, clock_, *compute_, [this] { progress_->on_completed(); });
  PARALLAX_RETURN_IF_ERROR(groups_->start());
  if (hosts_.local_of[options_.rank] == 0) warn_of_short_lease(local_ranks, lease_ns());
  buffers_.share_with({[this](const SharedMemory& buffer) {
                         with_peer_memory([&](PeerMemory& memory) { memory.share(buffer); });
                       },
                       [this](const void* base) {
                         with_peer_memory([&](PeerMemory& memory) { memory.unshare(base); });
                       }});
  // Last: from here on a thread of its own may drive the engine.
  return progress_->start(*groups_, options_.manual_progress != 0, spin_.options);
}

// Sends what is queued, such as the notice of a failure, before the transport is destroyed.
void Job::flush(int64_t deadline_ns) {
  while (clock_.now_ns() < deadline_ns) {
    progress_->drive_once();
    if (progress_->with_groups([](const JobGroups& groups) { return groups.flushed(); })) return;
    usleep(200);
  }
}

// For every rank of the group to close it.
Status Job::say_goodbye(uint32_t group, int64_t timeout_ns, Request** request) {
  const int64_t deadline_ns = clock_.now_ns() + timeout_ns;
  PARALLAX_RETURN_IF_ERROR(
      progress_->call(group, [&](Engine& engine) { return engine.job_calls().close(request); }));
  if (progress_->wait({request, 1}, deadline_ns)) return (*request)->status;
  const Status missing = progress_->look(
      group, [&](const Engine& engine) { return engine.reports().missing(**request); });
  return missing.prefixed("close: after " +
                          std::to_string(timeout_ns / kNanosecondsPerMillisecond) + " ms ");
}

void Job::orphan(Request* request) {
  progress_->with_groups([&](JobGroups&) { orphans_.push_back(request); });
}

Status Job::close_part(uint32_t part) {
  Request* request = nullptr;
  const Status status = say_goodbye(part, timeout_ns(), &request);
  // A goodbye that is not over goes on, for the others' sake, until the job closes.
  const bool gone = request != nullptr && request->done();
  // Compute jobs may be reading callers' buffers, which complete_all() gives back.
  if (gone) progress_->finish_computing(part);
  const Status retired = progress_->call_groups([&](JobGroups& groups) {
    if (request != nullptr && !gone) orphans_.push_back(request);  // may throw, and is to be first
    groups.let_go(part);
    if (!gone) return Status();
    Engine& engine = groups.group(part);
    engine.complete_all();
    PARALLAX_RETURN_IF_ERROR(engine.release(request));
    groups.retire(part);
    groups.collect();
    return Status();
  });
  return status.ok() ? retired : status;
}

Status Job::close() {
  const int64_t timeout_ns = settings_.timeout_ns();
  const int64_t deadline_ns = clock_.now_ns() + timeout_ns;
  Request* request = nullptr;
  Status status = say_goodbye(0, timeout_ns, &request);
  if (status.code() == PARALLAX_TIMEOUT) {
    status = status.reworded(status.message() + "; this rank leaves, and the others lose it");
  }
  // The last words, then the progress thread, then compute jobs: these may be reading callers'
  // buffers, which complete_all() gives back.
  flush(std::min(deadline_ns, clock_.now_ns() + kFlushNs));
  progress_->stop();
  compute_->drain();
  const Status completed = progress_->call_groups([](JobGroups& groups) {
    groups.complete_all();
    return Status();
  });
  if (status.ok()) status = completed;
  if (request != nullptr) orphan(request);
  for (Request* own : orphans_) {
    bool last = false;
    const Status released = release(own, &last);
    if (status.ok()) status = released;
  }
  const Status finished = rendezvous_->finish();
  return status.ok() ? finished : status;
}

bool Job::abandon() {
  return progress_->with_groups([&](JobGroups& groups) {
    // Under the engine mutex, as in release(): of the two exactly one sees the last request go.
    abandoned_ = true;
    return groups.outstanding_requests() == 0;
  });
}

Status Job::release(Request* request, bool* last) {
  return progress_->with_groups([&](JobGroups& groups) {
    const uint32_t group = request->group;
    const Status status = groups.group(group).release(request);
    groups.collect();
    *last = abandoned_ && groups.outstanding_requests() == 0;
    return status;
  });
}

// Asked with the engine mutex, without any other lock.
Buffers::Borrower Job::borrower() {
  return [this](const ByteRange& bytes) {
    const int64_t until_ns = clock_.now_ns() + timeout_ns();
    for (bool over = false, late = false; !late; late = clock_.now_ns() >= until_ns) {
      PARALLAX_RETURN_IF_ERROR(progress_->with_groups(
          [&](JobGroups& groups) { return groups.forget_unless_borrowed(bytes, &over); }));
      if (over) return Status();
      progress_->drive_once();  // with manual progress nobody else does
      std::this_thread::sleep_for(kForgetAgainAfter);
    }
    return timed_out(
        "NCCL has them still after timeout_ms: sums are under way, a part forms, or it hangs");
  };
}

Status Job::set(std::string_view name, std::string_view value) {
  return settings_.set(name, value, [this](const Settings& changed) {
    progress_->with_groups([&changed](JobGroups& groups) {
      groups.set_memory_limits(changed.value("memory_max_bytes").number,
                               static_cast<MemoryCheck>(changed.value("memory_check").number));
    });
  });
}

}  // namespace parallax
