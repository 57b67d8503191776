// SPDX-License-Identifier: Apache-2.0
// What launchers' environments mean: see the header. Pure.
#include "rendezvous/launcher.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "base/codec.h"
#include "rendezvous/handshake.h"

namespace parallax {

namespace {

constexpr uint32_t kJobPortFirst = 20000;
constexpr uint32_t kJobPortCount = 10000;

using Names = std::initializer_list<const char*>;

// A launcher is recognised by any one of its variables.
constexpr Names kOwnNames = {"PARALLAX_RANK", "PARALLAX_WORLD"};
constexpr Names kTorchrunNames = {"RANK", "WORLD_SIZE"};
constexpr Names kOpenMpiNames = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
constexpr Names kSlurmNames = {"SLURM_PROCID"};
// Of these alone none is recognised, but they say that ranks are to meet.
constexpr Names kHalfNames = {"PARALLAX_RENDEZVOUS", "MASTER_ADDR", "MASTER_PORT",
                              "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kOpenMpiIds = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"};

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::string text(const char* name) const { return environment_(name); }
  bool set(const char* name) const { return !text(name).empty(); }

  // The first that is set, or null.
  const char* first(Names names) const {
    for (const char* name : names) {
      if (set(name)) return name;
    }
    return nullptr;
  }

  Status number(const char* name, uint32_t least, uint32_t most, uint32_t* value) const {
    const std::string given = text(name);
    const char* end = given.data() + given.size();
    const auto [stop, failure] = std::from_chars(given.data(), end, *value);
    if (failure == std::errc() && stop == end && *value >= least && *value <= most) return {};
    return invalid(std::string(name) + " is '" + given.substr(0, 64) +
                   "'; it must be a number from " + std::to_string(least) + " to " +
                   std::to_string(most));
  }

  // The number of the first name that is set; one must be.
  Status need(const char* launcher, Names names, uint32_t least, uint32_t* value) const {
    const char* name = first(names);
    if (name != nullptr) return number(name, least, PARALLAX_WORLD_MAX, value);
    return invalid("options.rendezvous is \"env\" and the environment is that of " +
                   std::string(launcher) + ", but " + *names.begin() + " is not set");
  }

  Status ranks(const char* launcher, const char* rank, Names world, Launched* launched) const {
    PARALLAX_RETURN_IF_ERROR(need(launcher, {rank}, 0, &launched->rank));
    PARALLAX_RETURN_IF_ERROR(need(launcher, world, 1, &launched->world));
    launched->launcher = launcher;
    if (launched->rank < launched->world) return {};
    return invalid(std::string(rank) + " is " + std::to_string(launched->rank) + ", but " +
                   first(world) + " is " + std::to_string(launched->world));
  }

  // PARALLAX_PORT, else MASTER_PORT + 1, else the job's.
  Status port(const std::string& job, uint32_t* port) const {
    if (set("PARALLAX_PORT")) return number("PARALLAX_PORT", 1, UINT16_MAX, port);
    if (set("MASTER_PORT")) {
      PARALLAX_RETURN_IF_ERROR(number("MASTER_PORT", 1, UINT16_MAX - 1, port));
      ++*port;
      return {};
    }
    if (job.empty()) {
      return invalid("neither PARALLAX_PORT nor MASTER_PORT is set: ranks need a port to meet at");
    }
    *port = port_of_job(job);
    return {};
  }

 private:
  const Environment& environment_;
};

// tcp:HOST:PORT#JOB, with the job's name cut to kJobNameBytesMax.
Status meet_at(const Reader& reader, std::string host, const std::string& job, Launched* launched) {
  uint32_t port = 0;
  PARALLAX_RETURN_IF_ERROR(reader.port(job, &port));
  if (host.find(':') != std::string::npos && host.front() != '[') host = "[" + host + "]";
  launched->rendezvous = "tcp:" + host + ":" + std::to_string(port);
  if (!job.empty()) launched->rendezvous += "#" + job.substr(0, kJobNameBytesMax);
  return {};
}

Status read_own(const Reader& reader, Launched* launched) {
  PARALLAX_RETURN_IF_ERROR(
      reader.ranks("parallax run", "PARALLAX_RANK", {"PARALLAX_WORLD"}, launched));
  if (launched->world == 1 || reader.set("PARALLAX_RENDEZVOUS")) return {};
  return invalid(
      "PARALLAX_RANK and PARALLAX_WORLD are set, but PARALLAX_RENDEZVOUS is not: it says where "
      "ranks meet, such as tcp:127.0.0.1:29500");
}

Status read_torchrun(const Reader& reader, Launched* launched) {
  PARALLAX_RETURN_IF_ERROR(reader.ranks("torchrun", "RANK", {"WORLD_SIZE"}, launched));
  uint32_t local_world = 0;
  if (reader.set("LOCAL_WORLD_SIZE")) {
    PARALLAX_RETURN_IF_ERROR(reader.number("LOCAL_WORLD_SIZE", 1, launched->world, &local_world));
  }
  if (launched->world == 1 || reader.set("PARALLAX_RENDEZVOUS")) return {};
  std::string host = reader.text("MASTER_ADDR");
  if (host.empty()) {
    return invalid("RANK and WORLD_SIZE are set, but MASTER_ADDR is not: ranks cannot find rank 0");
  }
  if (local_world == launched->world) host = "127.0.0.1";
  return meet_at(reader, host, reader.text("TORCHELASTIC_RUN_ID"), launched);
}

Status read_open_mpi(const Reader& reader, Launched* launched) {
  PARALLAX_RETURN_IF_ERROR(
      reader.ranks("Open MPI", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}, launched));
  if (launched->world == 1 || reader.set("PARALLAX_RENDEZVOUS")) return {};
  uint32_t local_world = 0;
  PARALLAX_RETURN_IF_ERROR(
      reader.need("Open MPI", {"OMPI_COMM_WORLD_LOCAL_SIZE"}, 1, &local_world));
  std::string host = reader.text("MASTER_ADDR");
  if (local_world == launched->world) host = "127.0.0.1";
  if (host.empty()) {
    return invalid(
        "Open MPI started " + std::to_string(local_world) + " of " +
        std::to_string(launched->world) +
        " ranks on this node and does not tell where rank 0 is: set MASTER_ADDR to its node, or "
        "PARALLAX_RENDEZVOUS, for all ranks (mpirun -x MASTER_ADDR=node1), or pass an allgather "
        "over MPI in options.allgather");
  }
  const char* id = reader.first(kOpenMpiIds);
  return meet_at(reader, host, id == nullptr ? "" : "ompi-" + reader.text(id), launched);
}

Status read_slurm(const Reader& reader, Launched* launched) {
  PARALLAX_RETURN_IF_ERROR(
      reader.ranks("Slurm", "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, launched));
  if (launched->world == 1 || reader.set("PARALLAX_RENDEZVOUS")) return {};
  uint32_t nodes = 0;
  PARALLAX_RETURN_IF_ERROR(
      reader.need("Slurm", {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}, 1, &nodes));
  std::string host = reader.text("MASTER_ADDR");
  if (host.empty()) {
    const char* list = reader.first({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
    if (list != nullptr) host = first_of_node_list(reader.text(list));
  }
  if (host.empty()) host = reader.text("SLURM_LAUNCH_NODE_IPADDR");
  if (nodes == 1) host = "127.0.0.1";
  if (host.empty()) {
    return invalid(
        "Slurm does not tell where rank 0 is (SLURM_JOB_NODELIST is not set): set MASTER_ADDR or "
        "PARALLAX_RENDEZVOUS for all ranks");
  }
  std::string job = reader.text("SLURM_JOB_ID");
  if (!job.empty()) job = "slurm-" + job + "." + reader.text("SLURM_STEP_ID");
  return meet_at(reader, host, job, launched);
}

// A program that is started by hand, in a notebook or under a debugger is one rank alone. Where
// half of what a launcher sets is there, ranks were to meet, and each would train a model of its
// own.
Status read_none(const Reader& reader, Launched* launched) {
  const char* half = reader.first(kHalfNames);
  if (half != nullptr) {
    return invalid(
        "options.rendezvous is \"env\", and " + std::string(half) +
        " is set, but the environment is that of no launcher: set PARALLAX_RANK and "
        "PARALLAX_WORLD too, or start under parallax run, torchrun, mpirun or srun; to be "
        "one rank alone, unset it");
  }
  launched->launcher = "no launcher";
  launched->rank = 0;
  launched->world = 1;
  return {};
}

}  // namespace

std::string job_of_launcher(const Environment& environment) {
  const Reader reader(environment);
  std::string job;
  if (reader.set("RANK") && reader.set("WORLD_SIZE") && reader.set("MASTER_PORT")) {
    job = "master port " + reader.text("MASTER_PORT") + " of " + reader.text("MASTER_ADDR");
  } else if (reader.first(kOpenMpiNames) != nullptr) {
    const char* id = reader.first(kOpenMpiIds);
    if (id != nullptr) job = "ompi-" + reader.text(id);
  } else if (reader.first(kSlurmNames) != nullptr && reader.set("SLURM_JOB_ID")) {
    job = "slurm-" + reader.text("SLURM_JOB_ID") + "." + reader.text("SLURM_STEP_ID");
  }
  std::replace_if(
      job.begin(), job.end(),
      [](char c) {
        return !is_printable({&c, 1});
      },
      '?');
  return job.substr(0, kJobNameBytesMax);
}

// FNV-1a.
uint16_t port_of_job(std::string_view job) {
  uint32_t hash = 0x811c9dc5;
  for (const char byte : job) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x01000193;
  return static_cast<uint16_t>(kJobPortFirst + hash % kJobPortCount);
}

std::string first_of_node_list(std::string_view list) {
  std::string first;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      first.push_back(list[at]);
      continue;
    }
    const size_t close = list.find(']', at);
    const size_t end = list.find_first_of("-,]", at);
    if (close == std::string_view::npos) return "";
    first.append(list.substr(at + 1, end - at - 1));
    at = close;
  }
  return first;
}

bool is_launched(const Environment& environment) {
  const Reader reader(environment);
  for (const Names& names : {kOwnNames, kTorchrunNames, kOpenMpiNames, kSlurmNames}) {
    if (reader.first(names) != nullptr) return true;
  }
  return false;
}

Status read_launcher(const Environment& given, Launched* launched) {
  // PARALLAX_RENDEZVOUS=env is the request to read the launcher's variables, and no address.
  const Environment environment = [&given](const char* name) {
    const std::string value = given(name);
    const bool asks = std::string_view(name) == "PARALLAX_RENDEZVOUS" && value == "env";
    return asks ? std::string() : value;
  };
  const Reader reader(environment);
  Status read;
  if (reader.first(kOwnNames) != nullptr) {
    read = read_own(reader, launched);
  } else if (reader.first(kTorchrunNames) != nullptr) {
    read = read_torchrun(reader, launched);
  } else if (reader.first(kOpenMpiNames) != nullptr) {
    read = read_open_mpi(reader, launched);
  } else if (reader.first(kSlurmNames) != nullptr) {
    read = read_slurm(reader, launched);
  } else {
    read = read_none(reader, launched);
  }
  PARALLAX_RETURN_IF_ERROR(read);
  const std::string where = reader.text("PARALLAX_RENDEZVOUS");
  if (launched->world == 1) {
    launched->rendezvous.clear();
  } else if (!where.empty()) {
    launched->rendezvous = where;
  }
  launched->host = reader.text("PARALLAX_HOST");
  return {};
}

Status apply_launcher(const Environment& environment, bool from_outside, Launched* launched,
                      parallax_options_t* options) {
  if (options->rendezvous == nullptr) return {};
  if (std::string_view(options->rendezvous) == "env") {
    PARALLAX_RETURN_IF_ERROR(read_launcher(environment, launched));
  } else {
    if (!from_outside || options->rank != 0 || options->world != 0) return {};
    const std::string where = options->rendezvous;
    const Environment with_where = [&](const char* name) {
      return std::string_view(name) == "PARALLAX_RENDEZVOUS" ? where : environment(name);
    };
    if (!read_launcher(with_where, launched).ok() || launched->world < 2) return {};
  }
  if ((options->world != 0 && options->world != launched->world) ||
      (options->rank != 0 && options->rank != launched->rank)) {
    return invalid("options.rank and options.world are " + std::to_string(options->rank) + " and " +
                   std::to_string(options->world) + ", but by the environment of " +
                   launched->launcher + " this is rank " + std::to_string(launched->rank) + " of " +
                   std::to_string(launched->world) +
                   ": leave both 0 where options.rendezvous is \"env\"");
  }
  options->rank = launched->rank;
  options->world = launched->world;
  options->rendezvous = launched->rendezvous.empty() ? nullptr : launched->rendezvous.c_str();
  if (options->host == nullptr && !launched->host.empty()) options->host = launched->host.c_str();
  return {};
}

}  // namespace parallax
