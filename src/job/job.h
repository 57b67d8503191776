// SPDX-License-Identifier: Apache-2.0
// Job: one rank of a real job: the rendezvous, the transports it leads to, the engine, and what
// drives it. Owned by the C ABI's handle. open() and close() block up to their deadlines; all else
// is Progress's.
//
// The rendezvous has three rounds: who is where (hosts are then known), how to reach it (its
// addresses alone), and that everyone is connected (nothing). Ranks of one host attach shared
// memory; between hosts UCX or tcp carries.
#ifndef PARALLAX_JOB_JOB_H_
#define PARALLAX_JOB_JOB_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/compute.h"
#include "base/fork_mark.h"
#include "base/settings.h"
#include "engine/job_groups.h"
#include "job/buffers.h"
#include "job/connection.h"
#include "job/job_binding.h"
#include "job/job_devices.h"
#include "job/live_settings.h"
#include "job/progress.h"
#include "job/spin_choice.h"
#include "rendezvous/rendezvous.h"
#include "server/rule_blocks.h"
#include "transport/endpoint.h"
#include "transport/transport.h"
#include "world/host_map.h"

namespace parallax {

class FaultyTransport;
class NetworkTransport;
class ShmTransport;

// Of a call by a process or a thread that must leave the job, which that process opened, alone.
Status misplaced(const char* call, int process);

class Job {
 public:
  // `options` has its full size. What it leaves zero is taken from the settings; its values are
  // checked here.
  static Status open(parallax_options_t options, std::unique_ptr<Job>* job);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // STATE in a forked child: its copy has none of the threads, and shares sockets with its parent.
  Status check_process(const char* call) const {
    return RuleBlocks::calling() || mark_.in_child() ? misplaced(call, mark_.process()) : Status();
  }
  Progress& progress() { return *progress_; }
  const Progress& progress() const { return *progress_; }
  int64_t timeout_ns() const { return settings_.timeout_ns(); }
  const Clock& clock() const { return clock_; }
  // Some reduces go as one (FuseTables::kAll).
  bool fuses_reduces() const { return fuse_tables_ == FuseTables::kAll; }
  int64_t lease_ns() const {
    const uint32_t lease_ms =
        options_.lease_ms == 0 ? kLeaseMillisecondsDefault : options_.lease_ms;
    return lease_ms * kNanosecondsPerMillisecond;
  }

  // A part is its caller's, to close.
  void hold(uint32_t part) {
    progress_->with_groups([part](JobGroups& groups) { groups.hold(part); });
  }
  // Parts that their callers have not closed.
  uint32_t part_count() {
    return progress_->with_groups([](const JobGroups& groups) { return groups.part_count(); });
  }
  // Waits for every rank of the part to close it. Afterwards it may only release requests.
  Status close_part(uint32_t part);
  // Waits for every rank to close. Afterwards the job may only release requests and be destroyed.
  Status close();
  // A request of the library's own that was not waited out: released by close().
  void orphan(Request* request);
  // The caller's handle was released; the last request to be released frees the job. True if none
  // is left.
  bool abandon();
  // Releases one; true if the job is abandoned and that was its last.
  Status release(Request* request, bool* last);
  // Memory of the job, or that it is told of; as Buffers. Of all its groups.
  Status allocate_buffer(uint64_t bytes, const parallax_buffer_options_t& options, void** pointer) {
    const Status made = buffers_.allocate(bytes, options, {binding_.binding(), opener()}, pointer);
    const bool host = made.ok() && options.memory == PARALLAX_MEMORY_HOST;
    return host ? know_memory(*pointer, bytes) : made;
  }
  JobDevices& devices() { return *devices_; }
  Status free_buffer(void* pointer) { return buffers_.free(pointer, borrower()); }
  Status register_buffer(void* pointer, uint64_t bytes) {
    const Status added = buffers_.add(pointer, bytes);
    return added.ok() ? know_memory(pointer, bytes) : added;
  }
  Status unregister_buffer(void* pointer) { return buffers_.remove(pointer, borrower()); }
  // Counters of a group, and the job's memory beside its variables.
  std::string stats_report(uint32_t group) const;
  // Hosts, this machine, transports, as JSON. Asks the kernel: tens of milliseconds.
  std::string topology_report() const;
  // Every setting of this job, with the source of its value.
  std::string settings_report() const { return R"({"settings":)" + settings_.json() + "}"; }
  // As LiveSettings::set. Blocks as long as one pass of the engine takes.
  Status set(std::string_view name, std::string_view value);

 private:
  Job(const parallax_options_t& options, std::unique_ptr<Settings> settings);

  Status begin();
  Status meet(int64_t deadline_ns);
  Status await_all(int64_t deadline_ns);
  Status connect(Endpoint mine, std::vector<Endpoint> all, int64_t deadline_ns);
  Status make_transports(bool one_machine, Endpoint* mine, std::unique_ptr<ShmTransport>* shm,
                         std::unique_ptr<NetworkTransport>* network);
  Status make_network(const Endpoint& mine, bool one_machine,
                      std::unique_ptr<NetworkTransport>* network);
  Status wire(NetworkTransport& network, int64_t deadline_ns) const;
  Status inject_faults();
  Status start_engine();
  Status say_goodbye(uint32_t group, int64_t timeout_ns, Request** request);
  const SettingValue& setting(const char* name) const { return settings_.as_opened().value(name); }
  void flush(int64_t deadline_ns);
  // The network may be let write there.
  Status know_memory(const void* pointer, uint64_t bytes) {
    return progress_->with_groups([&](JobGroups& groups) {
      RemoteWrites* const writes = groups.remote_writes();
      if (writes != nullptr) writes->know(ByteRange::at(pointer, bytes));
      return Status();
    });
  }
  Buffers::Borrower borrower();
  // With the engine mutex, as all of the transport. Not where this rank shares no memory.
  template <typename Body>
  void with_peer_memory(Body body) {
    progress_->with_groups([&](JobGroups&) {
      if (PeerMemory* const memory = transport_->peer_memory()) body(*memory);
    });
  }
  OpenDevices opener() {
    return [this](DeviceShare* share) { return devices_->open(share); };
  }

  LiveSettings settings_;             // holds strings of options_
  const parallax_options_t options_;  // the program's strings are not used after open()
  const std::string host_;
  const SteadyClock clock_;
  const ForkMark mark_;  // of the process that opened the job
  std::unique_ptr<Rendezvous> rendezvous_;
  HostMap hosts_;
  uint32_t epoch_ = 1;
  Connection connection_;
  SpinChoice spin_;
  FuseTables fuse_tables_ = FuseTables::kManaged;  // as JobGroups has it
  bool has_boards_ = true;  // where the transport has any: nobody wants messages alone
  Buffers buffers_;         // outlives the transport, which may be sending from it
  std::unique_ptr<Transport> transport_;
  FaultyTransport* faulty_ = nullptr;  // transport_, if it is one
  JobBinding binding_;                 // its binding outlives the threads below
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<JobDevices> devices_;  // wakes progress_
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<JobGroups> groups_;
  std::vector<Request*> orphans_;  // guarded by the engine mutex
  bool abandoned_ = false;         // guarded by the engine mutex
};

}  // namespace parallax

#endif  // PARALLAX_JOB_JOB_H_
