// SPDX-License-Identifier: Apache-2.0
// parallax run: which ranks there are, where they run and with which environment.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/environment.h"
#include "base/settings.h"
#include "base/unique_fd.h"
#include "rendezvous/ended_ranks.h"
#include "tool/hosts_file.h"
#include "tool/launcher.h"
#include "tool/tool.h"

namespace parallax::tool {

namespace {

constexpr uint32_t kRanksMax = 4096;
constexpr double kMillisecondsPerSecond = 1000;

struct RunOptions {
  uint32_t ranks = 0;
  uint32_t ranks_per_host = 0;
  std::string hosts_file;
  std::string rendezvous;
  std::vector<std::string> forwarded;
  std::string tag_output = "on";
  double grace_s = 5;
  bool dry_run = false;
  std::vector<std::string> command;
};

// Where a rank runs, from which its environment follows.
struct RankPlacement {
  std::string host;  // for PARALLAX_HOST; "" leaves it to the machine's name
  const HostLine* line = nullptr;
  uint32_t local_rank = 0, local_world = 0;
  bool remote = false;
};

std::string own_name() {
  char name[256] = "";
  (void)gethostname(name, sizeof name - 1);
  return name;
}

// A port that is free now; another process may take it before rank 0 does.
Status find_port(uint16_t* port) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket.valid() || bind(socket.get(), generic, bytes) != 0 ||
      getsockname(socket.get(), generic, &bytes) != 0) {
    return io_error(std::string("no free port on loopback: ") + std::strerror(errno));
  }
  *port = ntohs(address.sin_port);
  return {};
}

// 'text' for a POSIX shell.
std::string quoted(const std::string& text) {
  constexpr const char* kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=.,:/@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string out = "'";
  for (const char each : text) out += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return out + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
}

Status place_ranks(const RunOptions& options, const std::vector<HostLine>& lines,
                   std::vector<RankPlacement>* placements) {
  uint32_t slots = 0;
  for (const HostLine& line : lines) slots += line.ranks();
  if (!lines.empty() && options.ranks > slots) {
    return invalid("-n " + std::to_string(options.ranks) + ", but " + options.hosts_file +
                   " has room for " + std::to_string(slots) + ": add hosts or GPUs to it");
  }
  const uint32_t world = options.ranks != 0 ? options.ranks : slots;
  if (world == 0) return invalid("say how many ranks: -n N, or --hosts FILE");
  if (world > kRanksMax) {
    return invalid("-n " + std::to_string(world) + ": at most " + std::to_string(kRanksMax));
  }
  for (const HostLine& line : lines) {
    const uint32_t left = world - static_cast<uint32_t>(placements->size());
    const uint32_t here = std::min(left, line.ranks());
    for (uint32_t local = 0; local < here; ++local) {
      placements->push_back({.host = line.name,
                             .line = &line,
                             .local_rank = local,
                             .local_world = here,
                             .remote = !is_this_machine(line.name)});
    }
  }
  if (!lines.empty()) return {};
  const uint32_t per_host = options.ranks_per_host != 0 ? options.ranks_per_host : world;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const uint32_t first = rank - rank % per_host;
    placements->push_back(
        {.host = options.ranks_per_host != 0 ? "host" + std::to_string(rank / per_host) : "",
         .line = nullptr,
         .local_rank = rank - first,
         .local_world = std::min(per_host, world - first),
         .remote = false});
  }
  return {};
}

using Environment = std::vector<std::pair<std::string, std::string>>;

Environment environment_of(const RankPlacement& placement, size_t rank, size_t world,
                           const std::string& rendezvous, const std::string& master_address,
                           uint16_t master_port) {
  Environment environment = {{"RANK", std::to_string(rank)},
                             {"WORLD_SIZE", std::to_string(world)},
                             {"LOCAL_RANK", std::to_string(placement.local_rank)},
                             {"LOCAL_WORLD_SIZE", std::to_string(placement.local_world)},
                             {"MASTER_ADDR", master_address},
                             {"MASTER_PORT", std::to_string(master_port)},
                             {"PARALLAX_RANK", std::to_string(rank)},
                             {"PARALLAX_WORLD", std::to_string(world)},
                             {"PARALLAX_RENDEZVOUS", rendezvous},
                             {"PYTHONUNBUFFERED", "1"}};
  if (!placement.host.empty()) environment.emplace_back("PARALLAX_HOST", placement.host);
  if (placement.line != nullptr && !placement.line->gpus.empty()) {
    std::string gpus;
    for (const uint32_t gpu : placement.line->gpus) {
      gpus += (gpus.empty() ? "" : ",") + std::to_string(gpu);
    }
    environment.emplace_back("CUDA_VISIBLE_DEVICES", gpus);
  }
  return environment;
}

// What a remote rank takes along of this environment: settings, but no secret, since a command line
// can be read by everyone on both machines; and what was asked for.
Environment forwarded(const RunOptions& options) {
  Environment environment;
  for (const std::string& entry : process_environment()) {
    const size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    const bool asked = std::find(options.forwarded.begin(), options.forwarded.end(), name) !=
                       options.forwarded.end();
    bool setting = name.starts_with("UCX_");
    for (const SettingRow& row : setting_rows()) {
      setting = setting || (name == setting_variable(row) && row.type != SettingType::kSecret &&
                            name != kEndedRanksVariable);
    }
    if (equals != std::string::npos && (asked || setting)) {
      environment.emplace_back(name, entry.substr(equals + 1));
    }
  }
  return environment;
}

// The remote side: the command in a session of its own, which is ended when the connection ends.
// Until then its lines name the ranks that have ended. Without a file to write them to (a full
// disk) the ranks there do not hear of that, and nothing else changes.
std::vector<std::string> over_ssh(const RunOptions& options, const RankPlacement& placement,
                                  const Environment& environment) {
  std::vector<std::string> words = {"env"};
  for (const Environment& each : {forwarded(options), environment}) {
    for (const auto& [name, value] : each) words.push_back(name + "=" + value);
  }
  words.insert(words.end(), options.command.begin(), options.command.end());
  const auto grace_s = static_cast<int64_t>(std::ceil(options.grace_s));
  const std::string script =
      "cd " + quoted(std::filesystem::current_path().string()) +
      " || exit 1; ended=$(mktemp 2>/dev/null); exec 3<&0; " + kEndedRanksVariable +
      "=\"$ended\" setsid " + shell_line(words) +
      " </dev/null 3<&- & child=$!; (cat <&3 >>\"${ended:-/dev/null}\" || cat <&3 >/dev/null; kill "
      "-TERM -$child; sleep " +
      std::to_string(grace_s) +
      "; kill -KILL -$child; rm -f \"$ended\") >/dev/null 2>&1 & watcher=$!; wait $child; "
      "status=$?; "
      "kill -KILL -$child 2>/dev/null; kill $watcher 2>/dev/null; rm -f \"$ended\"; exit $status";
  return {"ssh", "-o", "BatchMode=yes", "--", placement.host, "exec sh -c " + quoted(script)};
}

std::vector<ProcessPlan> plan_processes(const RunOptions& options,
                                        const std::vector<RankPlacement>& placements,
                                        const std::string& rendezvous,
                                        const std::string& ended_file, uint16_t port) {
  const bool any_remote = std::any_of(placements.begin(), placements.end(),
                                      [](const RankPlacement& each) { return each.remote; });
  std::string master = "127.0.0.1";
  if (any_remote) master = placements[0].remote ? placements[0].host : own_name();
  master = master.substr(master.find('@') + 1);
  std::vector<ProcessPlan> plans;
  for (size_t rank = 0; rank < placements.size(); ++rank) {
    const RankPlacement& placement = placements[rank];
    ProcessPlan plan;
    plan.rank = static_cast<uint32_t>(rank);
    plan.host = placement.host.empty() ? own_name() : placement.host;
    Environment environment =
        environment_of(placement, rank, placements.size(), rendezvous, master, port);
    plan.hold_stdin = placement.remote;
    if (placement.remote) {
      plan.argv = over_ssh(options, placement, environment);
    } else {
      plan.argv = options.command;
      plan.environment = std::move(environment);
      plan.environment.emplace_back(kEndedRanksVariable, ended_file);
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

// The rendezvous that was asked for; "" for a folder of this run, which only this machine can
// reach.
Status choose_rendezvous(const RunOptions& options, const std::vector<RankPlacement>& placements,
                         std::string* rendezvous) {
  Settings settings;
  PARALLAX_RETURN_IF_ERROR(settings.load({.environment = process_environment()}));
  *rendezvous = options.rendezvous;
  if (rendezvous->empty()) *rendezvous = settings.value("rendezvous").text;
  if (!rendezvous->empty()) return {};
  for (const RankPlacement& placement : placements) {
    if (!placement.remote) continue;
    return invalid("ranks on other machines (" + placement.host +
                   ") cannot see a folder of this one: give --rendezvous tcp:HOST:PORT of the "
                   "first host, with secret_file in every host's settings, or file:DIR with a new "
                   "directory on a file system that all hosts share");
  }
  return {};
}

// Of this run alone, and of this user.
Status make_folder(bool dry_run, std::string* folder) {
  *folder = (std::filesystem::temp_directory_path() / "parallax-run-XXXXXX").string();
  if (dry_run) return {};
  if (mkdtemp(folder->data()) == nullptr) return io_error(*folder + ": " + std::strerror(errno));
  return {};
}

void print_plans(const std::vector<ProcessPlan>& plans) {
  for (const ProcessPlan& plan : plans) {
    std::vector<std::string> words;
    if (!plan.environment.empty()) words.push_back("env");
    for (const auto& [name, value] : plan.environment) words.push_back(name + "=" + value);
    words.insert(words.end(), plan.argv.begin(), plan.argv.end());
    std::printf("[%u] %s: %s\n", plan.rank, plan.host.c_str(), shell_line(words).c_str());
  }
}

int start(const RunOptions& options) {
  std::vector<HostLine> lines;
  std::vector<RankPlacement> placements;
  std::string rendezvous;
  uint16_t port = 0;  // for programs that meet by MASTER_PORT
  LaunchOptions launching;
  launching.tag_output = options.tag_output == "on";
  launching.grace_ms = static_cast<int64_t>(options.grace_s * kMillisecondsPerSecond);
  Status status;
  if (!options.hosts_file.empty()) status = read_hosts(options.hosts_file, &lines);
  if (status.ok()) status = place_ranks(options, lines, &placements);
  if (status.ok()) status = choose_rendezvous(options, placements, &rendezvous);
  if (status.ok()) status = find_port(&port);
  std::string& folder = launching.remove_folder;
  if (status.ok()) status = make_folder(options.dry_run, &folder);
  launching.ended_file = folder + "/ended";
  if (rendezvous.empty()) rendezvous = "file:" + folder + "/rendezvous";
  if (!status.ok()) return complain("run", status.message(), kExitUsage);
  const std::vector<ProcessPlan> plans =
      plan_processes(options, placements, rendezvous, launching.ended_file, port);
  if (options.dry_run) return print_plans(plans), kExitOk;
  int exit_status = kExitOk;
  status = launch(plans, launching, &exit_status);
  return status.ok() ? exit_status : complain("run", status.message(), kExitNo);
}

}  // namespace

int run_main(int argc, char** argv) {
  RunOptions options;
  CLI::App app(
      "Starts COMMAND as the ranks of one job, tags their output, and ends all when one fails. "
      "The exit status is that of the first rank that failed.",
      "parallax run");
  app.add_option("-n,--ranks", options.ranks,
                 "number of ranks; with --hosts: all that it has room for");
  auto* const emulated = app.add_option("--ranks-per-host", options.ranks_per_host,
                                        "emulate hosts of K ranks each on this machine");
  app.add_option("--hosts", options.hosts_file, "a file of lines `host: gpu,gpu`, a rank per GPU")
      ->excludes(emulated);
  app.add_option("--rendezvous", options.rendezvous,
                 "how ranks meet (default: a private folder, removed at the end)");
  app.add_option("--env", options.forwarded, "a variable to pass on to other hosts; repeatable")
      ->allow_extra_args(false);
  app.add_option("--tag-output", options.tag_output, "on: lines are opened by [RANK]; off")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--grace", options.grace_s, "seconds between SIGTERM and SIGKILL; 5")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_flag("--dry-run", options.dry_run, "print the command of each rank and start nothing");
  app.footer("Put the command after --, as in: parallax run -n 4 -- ./train --epochs 3");
  app.allow_extras();  // told below, with the remedy
  char** const end = argv + argc;
  char** const dashes =
      std::find_if(argv, end, [](const char* each) { return std::strcmp(each, "--") == 0; });
  int exit_status = kExitOk;
  if (!parse_command_line(app, static_cast<int>(dashes - argv), argv, &exit_status)) {
    return exit_status;
  }
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty()) {
    return complain("run",
                    "'" + extras[0] +
                        "' is no option of run; put the command after --, as in: "
                        "parallax run -n 2 -- ./train",
                    kExitUsage);
  }
  if (dashes != end) options.command.assign(dashes + 1, end);
  if (options.command.empty()) {
    return complain("run", "put the command after --, as in: parallax run -n 2 -- ./train",
                    kExitUsage);
  }
  return start(options);
}

}  // namespace parallax::tool
