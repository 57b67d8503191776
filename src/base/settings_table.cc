// SPDX-License-Identifier: Apache-2.0
// The table of all settings. See settings.h. A new setting is one row here, of which texts are
// made (settings_texts.cc); docs/settings.md is then written anew by `parallax info --markdown`.
#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>

#include "base/settings.h"

namespace parallax {

namespace {

using Options = parallax_options_t;

constexpr uint64_t kUint32Max = UINT32_MAX;
constexpr uint32_t kEverywhere = kSetInCode | kSetInEnvironment | kSetInFile;
constexpr uint32_t kPerRank = kSetInCode | kSetInEnvironment;
constexpr uint32_t kOutside = kSetInEnvironment | kSetInFile;

constexpr SettingRow kRows[] = {
    {.name = "rank",
     .type = SettingType::kNumber,
     .standard = "0",
     .max = PARALLAX_WORLD_MAX - 1,
     .sources = kPerRank,
     .help = "This rank. Used, with world, by a program that gives neither and no allgather.",
     .number32 = &Options::rank},
    {.name = "world",
     .type = SettingType::kNumber,
     .standard = "1",
     .min = 1,
     .max = PARALLAX_WORLD_MAX,
     .sources = kPerRank,
     .help = "Number of ranks; see rank.",
     .number32 = &Options::world},
    {.name = "rendezvous",
     .type = SettingType::kText,
     .standard = "",
     .sources = kPerRank,
     .help = "How ranks meet: tcp:HOST:PORT, env (as a launcher's environment says), file:DIR, a "
             "directory that every rank can write, or inproc:NAME; see rendezvous.md. Unused where "
             "the program gives allgather or unique_id.",
     .text = &Options::rendezvous},
    {.name = "port",
     .type = SettingType::kNumber,
     .standard = "",
     .min = 1,
     .max = UINT16_MAX,
     .sources = kSetInEnvironment,
     .help = "Where rank 0 listens if rendezvous is env, in place of MASTER_PORT + 1."},
    {.name = "ended_ranks",
     .type = SettingType::kText,
     .standard = "",
     .sources = kSetInEnvironment,
     .help = "A file in which parallax run, which sets this, says which ranks have ended."},
    {.name = "secret_file",
     .type = SettingType::kText,
     .standard = "",
     .sources = kEverywhere,
     .help = "A file of mode 0600 with the secret by which ranks authenticate each other over tcp.",
     .text = &Options::secret_file},
    {.name = "secret",
     .type = SettingType::kSecret,
     .standard = "",
     .sources = kSetInEnvironment,
     .help = "The secret itself, where there is no secret_file."},
    {.name = "host",
     .type = SettingType::kText,
     .standard = "",
     .sources = kEverywhere,
     .help = "Name of this host: ranks of one name share memory. Not set: the machine's name.",
     .text = &Options::host},
    {.name = "transport",
     .type = SettingType::kChoice,
     .standard = "",
     .choices = "ucx|tcp|shm|rdma",
     .sources = kEverywhere,
     .help = "Between hosts: tcp, the library's own, authenticated and encrypted, with a secret "
             "beyond loopback; ucx, unprotected, for a network that one trusts; rdma is ucx on "
             "RDMA devices alone, and open fails where there is none; shm refuses ranks of other "
             "hosts. Not set: rdma where net_device names an RDMA device, else tcp; see "
             "transports.md.",
     .text = &Options::transport},
    {.name = "net_device",
     .type = SettingType::kText,
     .standard = "",
     .sources = kEverywhere,
     .help = "The interface between hosts (eth0, lo, mlx5_0:1). Not set: with transport rdma the "
             "nearest active RDMA device, else lo if every rank is on one machine, else the "
             "default route's with tcp and UCX's own choice with ucx.",
     .text = &Options::net_device},
    {.name = "security",
     .type = SettingType::kChoice,
     .standard = "encrypt",
     .choices = "encrypt|authenticate|handshake",
     .sources = kOutside,
     .help = "What transport tcp does for each message: encrypts it; authenticates it, in clear; "
             "or nothing, once who connects has proved itself, for a network that one trusts. The "
             "same on every rank."},
    {.name = "tcp_ports",
     .type = SettingType::kText,
     .standard = "",
     .sources = kOutside,
     .help = "FIRST-LAST: the ports at one of which each rank of transport tcp listens. Not set: "
             "one of the system's choosing."},
    {.name = "tcp_address",
     .type = SettingType::kText,
     .standard = "",
     .sources = kOutside,
     .help = "The address at which this rank listens and from which it connects under transport "
             "tcp, 10.0.0.1 or fd00::1: of interface net_device where that is given, too. Not set: "
             "net_device's first, IPv4 before IPv6."},
    {.name = "tcp_rails",
     .type = SettingType::kText,
     .standard = "",
     .sources = kOutside,
     .help =
         "Further interfaces of this rank under transport tcp, up to 7, with commas: eth1,eth2. "
         "Each pair of ranks has one more connection over each, and messages take them in "
         "turn. One named again has several. As many on every rank. Not set: one connection."},
    {.name = "tcp_busy_poll_us",
     .type = SettingType::kNumber,
     .standard = "0",
     .unit = "us",
     .max = 1'000'000,
     .sources = kOutside,
     .help = "How long the kernel looks into the network device's queue by itself when a rank of "
             "transport tcp looks for messages (SO_BUSY_POLL), where the device can. More than "
             "net.core.busy_read takes CAP_NET_ADMIN."},
    {.name = "tcp_congestion",
     .type = SettingType::kText,
     .standard = "auto",
     .sources = kOutside,
     .help =
         "The algorithm of congestion control of transport tcp: system, the system's; auto, the "
         "system's but between near ranks (round trips below 1 ms) where that is BBR, which "
         "leaves links idle there: then cubic, or reno where cubic may not be had; or a name "
         "that the kernel knows, asked for once a connection stands."},
    {.name = "rails",
     .type = SettingType::kText,
     .standard = "auto",
     .sources = kOutside,
     .help = "Ports of RDMA devices that a rank uses at once under transport rdma, for what is "
             "written into its peers' memory: auto: those nearest to it, at most 4; a number: at "
             "most so many of them; or the ports themselves, as mlx5_0:1,mlx5_1:1, the first for "
             "messages too."},
    {.name = "rdma_memory_mb",
     .type = SettingType::kNumber,
     .standard = "4096",
     .unit = "MiB",
     .max = 1 << 24,
     .sources = kOutside,
     .help = "Of this rank's memory, what may be registered with RDMA devices at once so that "
             "peers write there by themselves; what was not used for longest goes first, and what "
             "finds no room is copied. 0: all is copied."},
    {.name = "lease_ms",
     .type = SettingType::kNumber,
     .standard = "5000",
     .unit = "ms",
     .min = 50,
     .max = kUint32Max,
     .sources = kEverywhere,
     .help = "A rank silent for longer is lost. The same on every rank.",
     .number32 = &Options::lease_ms},
    {.name = "timeout_ms",
     .type = SettingType::kNumber,
     .standard = "120000",
     .unit = "ms",
     .min = 1,
     .max = kUint32Max,
     .sources = kEverywhere | kSetWhileOpen,
     .help = "Deadline of open, commit, split and close, and of a wait that gives none. What "
             "parallax_set gives holds for each call that begins after it.",
     .number32 = &Options::timeout_ms},
    {.name = "plan_mode",
     .type = SettingType::kChoice,
     .standard = "auto",
     .choices = "auto|hybrid|ps|ar",
     .sources = kEverywhere,
     .help = "Where managed variables lie; see planning.md. The same on every rank.",
     .number32 = &Options::plan_mode},
    {.name = "plan_after_steps",
     .type = SettingType::kNumber,
     .standard = "8",
     .unit = "steps",
     .min = 1,
     .max = kUint32Max,
     .sources = kEverywhere,
     .help = "Steps measured before auto and ar settle. The same on every rank.",
     .number32 = &Options::plan_after_steps},
    {.name = "pins",
     .type = SettingType::kText,
     .standard = "",
     .sources = kEverywhere,
     .help = "PATTERN=WAY[; ...]: pins by name, as planning.md has them. The same on every rank.",
     .text = &Options::pins},
    {.name = "sparse_as_dense",
     .type = SettingType::kSwitch,
     .standard = "0",
     .max = 1,
     .sources = kEverywhere,
     .help = "1: what has row ids and no pin is reduced whole. The same on every rank.",
     .number32 = &Options::sparse_as_dense},
    {.name = "deterministic",
     .type = SettingType::kSwitch,
     .standard = "0",
     .max = 1,
     .sources = kEverywhere,
     .help = "1: the same bits at any timing, plan and method. The same on every rank.",
     .number32 = &Options::deterministic},
    {.name = "slots",
     .type = SettingType::kNumber,
     .standard = "0",
     .max = 1 << 24,
     .sources = kOutside,
     .help =
         "Slots into which the rows of sharded variables fall, fixed when the job first "
         "commits: a multiple of the ranks; 0: 8 for each rank. A part of a job has as many for "
         "each of its ranks. The same on every rank."},
    {.name = "memory_max_bytes",
     .type = SettingType::kBytes,
     .standard = "0",
     .unit = "bytes",
     .max = UINT64_MAX,
     .sources = kEverywhere | kSetWhileOpen,
     .help = "Commit refuses to reserve more per rank, for all parts of the job together; 0: no "
             "limit.",
     .number64 = &Options::memory_max_bytes},
    {.name = "memory_check",
     .type = SettingType::kChoice,
     .standard = "warn",
     .choices = "warn|refuse|off",
     .sources = kOutside | kSetWhileOpen,
     .help = "What commit does where the variables of a host's ranks, of all parts of the job, may "
             "touch more memory than the machine or a control group has: says so in the log, "
             "refuses (LIMIT), or nothing."},
    {.name = "compute_threads",
     .type = SettingType::kNumber,
     .standard = "0",
     .unit = "threads",
     .max = 256,
     .sources = kEverywhere,
     .help = "Threads for merges and updates beside the progress thread.",
     .number32 = &Options::compute_threads},
    {.name = "early_pull",
     .type = SettingType::kChoice,
     .standard = "on",
     .choices = "on|off",
     .sources = kOutside,
     .help = "Between hosts, rows that a step leaves alone are given before its commit."},
    {.name = "row_coding",
     .type = SettingType::kChoice,
     .standard = "auto",
     .choices = "auto|on|off",
     .sources = kOutside,
     .help = "Whether this rank sends row keys and numbers of rows to other hosts in fewer bytes, "
             "without loss: auto: where the link, by the costs of the job, would take longer than "
             "the computing; on; off."},
    {.name = "rows_in_place",
     .type = SettingType::kChoice,
     .standard = "on",
     .choices = "on|off",
     .sources = kOutside,
     .help = "Inside a host, ranks read this rank's tables, and rows that it pushes, where these "
             "lie, and it reads their tables. off: its rows go by messages."},
    {.name = "fuse_tables",
     .type = SettingType::kChoice,
     .standard = "on",
     .choices = "on|off|all",
     .sources = kOutside,
     .help = "Small managed tables of one kind, four or more, are pulled, pushed and updated as "
             "one. off: each by itself. all: rows that the framework holds are reduced as one too, "
             "by programs that wait for a reduce only once all of a step are called. The same on "
             "every rank."},
    {.name = "push_listed",
     .type = SettingType::kChoice,
     .standard = "on",
     .choices = "on|off",
     .sources = kOutside,
     .help = "Between hosts, pushed rows that were pulled in the step are named by their place in "
             "what was asked for. off: by their row keys."},
    {.name = "costs",
     .type = SettingType::kText,
     .standard = "measured",
     .sources = kOutside,
     .help = "What the choice among algorithms of elements, and among methods of rows that the "
             "framework holds, and whether rows are coded between hosts, goes by: measured, at the "
             "first commit that has one to make; "
             "standard; or some constants by name, as between_latency_ns=20000,between_byte_ps=80, "
             "with the others measured. Rank 0's hold for all; names are in planning.md."},
    {.name = "spin_us",
     .type = SettingType::kNumber,
     .standard = "50",
     .unit = "us",
     .max = 1'000'000,
     .sources = kOutside,
     .help = "How long a waiter looks for what it waits for before it blocks in the kernel, up to "
             "20 times as long in a job of one host, while that pays, and for what devices are "
             "summing; 0: it blocks at once. See threading.md."},
    {.name = "spin_yield",
     .type = SettingType::kChoice,
     .standard = "auto",
     .choices = "auto|on|off",
     .sources = kOutside,
     .help = "Whether a waiter that looks gives its core to others after each look: on, off, or "
             "auto: where this machine's ranks of the job are more than the cores that they may "
             "use, by affinity and by control groups; elsewhere once it has looked in vain."},
    {.name = "bind",
     .type = SettingType::kText,
     .standard = "auto",
     .sources = kOutside,
     .help = "Where the library's own threads run and its memory lies: auto (this rank's share of "
             "the NUMA nodes), none, node:N, or pus:LIST as pus:0-3,8; see topology.md."},
    {.name = "topology_xml",
     .type = SettingType::kText,
     .standard = "",
     .sources = kOutside,
     .help = "A file written by lstopo --of xml: the machine to report and to plan bind for, in "
             "place of this one. Nothing is bound then."},
    {.name = "faults",
     .type = SettingType::kText,
     .standard = "",
     .sources = kEverywhere,
     .help = "What this rank's transport is to do wrong on purpose: rules as in faults.md.",
     .text = &Options::faults},
    {.name = "module_dir",
     .type = SettingType::kText,
     .standard = "",
     .sources = kOutside,
     .help =
         "Folder of libparallax_ucx.so and libparallax_cuda.so. Not set: beside libparallax.so, "
         "and in parallax/, ../lib and ../lib/parallax from there."},
    {.name = "pinned_max_bytes",
     .type = SettingType::kBytes,
     .standard = "0",
     .unit = "bytes",
     .max = UINT64_MAX,
     .sources = kOutside,
     .help =
         "Host memory that this rank pins at most for slices on devices; a call that finds "
         "none is copied in pieces. 0: no bound. Not set: a quarter of the machine's, shared by "
         "the ranks of the host."},
    {.name = "pinned_call_max_bytes",
     .type = SettingType::kBytes,
     .standard = "256M",
     .unit = "bytes",
     .max = UINT64_MAX,
     .sources = kOutside,
     .help = "What one call with slices on devices may pin for itself; a larger one is copied to "
             "ordinary memory, in pieces through 4 MiB of pinned memory that such calls share."},
    {.name = "device_scratch_max_bytes",
     .type = SettingType::kBytes,
     .standard = "256M",
     .unit = "bytes",
     .max = UINT64_MAX,
     .sources = kOutside,
     .help = "Memory of each device that this rank takes at most to coalesce pushed and reduced "
             "rows there, before they are copied; slices that find none are coalesced by the host. "
             "0: all are."},
    {.name = "device_coalesce_min_bytes",
     .type = SettingType::kBytes,
     .standard = "2M",
     .unit = "bytes",
     .max = UINT64_MAX,
     .sources = kOutside,
     .help = "Ids and values of rows on a device, of a variable in a call, from which on they are "
             "coalesced there; fewer are copied as they are."},
    {.name = "nccl",
     .type = SettingType::kChoice,
     .standard = "world",
     .choices = "off|world|host",
     .sources = kOutside,
     .help = "Dense variables registered with memory CUDA: world has the devices of all ranks sum "
             "them by NCCL, where every rank has it; host has those of each host do so, and sums "
             "of hosts go by the job's own messages; off has them copied, and summed by the host."},
    {.name = "nccl_timeout_ms",
     .type = SettingType::kNumber,
     .standard = "600000",
     .unit = "ms",
     .max = kUint32Max,
     .sources = kOutside,
     .help = "How long a sum among devices may take from its launch on, or its communicator to "
             "form, before the job fails and gives it up; 0: for ever."},
    {.name = "nccl_abort_ms",
     .type = SettingType::kNumber,
     .standard = "3000",
     .unit = "ms",
     .max = 4000,
     .sources = kOutside,
     .help = "How long a call in NCCL gets to return before its communicator is aborted under it."},
    {.name = "library",
     .type = SettingType::kText,
     .standard = "",
     .sources = kSetInEnvironment,
     .help = "The libparallax.so that the Python package loads; see python.md."},
    {.name = "debug",
     .type = SettingType::kChoice,
     .standard = "warn",
     .choices = "none|warn|info|debug|trace",
     .sources = kOutside | kSetWhileOpen,
     .help = "What is logged. info has one line at start that says transport, device and why."},
    {.name = "debug_subsys",
     .type = SettingType::kList,
     .standard = "all",
     .choices = "init|env|net|shm|plan|step|member|all",
     .sources = kOutside | kSetWhileOpen,
     .help = "The parts that log, separated by commas; ^ before the list excludes them instead. "
             "Warnings always pass."},
    {.name = "debug_file",
     .type = SettingType::kText,
     .standard = "",
     .sources = kOutside | kSetWhileOpen,
     .help = "Where the log goes: a path, in which %h is the host, %p the process and %% a "
             "percent sign. Not set: standard error."},
    {.name = "config_file",
     .type = SettingType::kText,
     .standard = "",
     .sources = kSetInEnvironment,
     .help = "The file of settings. Not set: ~/.parallax.conf over /etc/parallax.conf."},
};

// Levenshtein's distance.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::span<const SettingRow> setting_rows() { return kRows; }

const SettingRow* find_setting(std::string_view name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const SettingRow& each) { return name == each.name; });
  return row == std::end(kRows) ? nullptr : row;
}

std::string setting_variable(const SettingRow& row) {
  std::string variable = "PARALLAX_";
  for (const char* at = row.name; *at != '\0'; ++at) {
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(*at)));
  }
  return variable;
}

std::string nearest_setting(std::string_view name) {
  // The beginning of one name alone: "timeout" of "timeout_ms".
  const auto begins = [name](const SettingRow& row) {
    return name.size() > 3 && std::string_view(row.name).starts_with(name);
  };
  if (std::count_if(std::begin(kRows), std::end(kRows), begins) == 1) {
    return std::find_if(std::begin(kRows), std::end(kRows), begins)->name;
  }
  // Farther than a third of the name is another word, not a slip.
  size_t best = name.size() / 3 + 1;
  std::string nearest;
  for (const SettingRow& row : kRows) {
    const size_t length = std::string_view(row.name).size();
    if (std::max(length, name.size()) - std::min(length, name.size()) >= best) continue;
    const size_t far = distance(name, row.name);
    if (far >= best) continue;
    best = far;
    nearest = row.name;
  }
  return nearest;
}

}  // namespace parallax
