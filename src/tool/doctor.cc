// SPDX-License-Identifier: Apache-2.0
// parallax doctor: its command line and its report. See doctor.h.
#include "tool/doctor.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "job/job_settings.h"
#include "tool/doctor_rdma.h"
#include "tool/tool.h"

namespace parallax::tool {

namespace {

void print_json(const Findings& findings, const RankIdentity& identity) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const Finding& each : findings.list()) {
    list.push_back({{"check", each.check},
                    {"verdict", verdict_name(each.verdict)},
                    {"text", each.text},
                    {"remedy", each.remedy}});
  }
  const Json whole = {{"rank", identity.rank}, {"world", identity.world}, {"findings", list}};
  std::printf("%s\n", whole.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

// Lines bear the rank where the launcher does not put it before them itself.
std::string tag_of(const RankIdentity& identity) {
  const bool tagged = identity.launcher.empty() || identity.launcher == "parallax run";
  return tagged || identity.world == 1 ? "" : "[" + std::to_string(identity.rank) + "] ";
}

void print_text(const Findings& findings, const std::string& tag, bool all) {
  for (const Finding& each : findings.list()) {
    if (each.verdict == Verdict::kOk && !all) continue;
    std::printf("%s%-4s  %s: %s%s\n", tag.c_str(), verdict_name(each.verdict), each.check.c_str(),
                each.text.c_str(), each.remedy.empty() ? "" : (" -> " + each.remedy).c_str());
  }
}

// Reports what the command line and the launcher say of the other ranks; false: this rank cannot
// meet them.
bool say_identity(const Status& found, const RankIdentity& identity, Findings* findings) {
  if (!found.ok()) {
    findings->fail(
        "launcher",
        found.message() + (identity.world > 1 ? "; the other ranks were not looked for" : ""),
        "set it for every rank, or PARALLAX_RENDEZVOUS to where they can meet "
        "(tcp:HOST:PORT, file:DIR), or give --rank, --world and --rendezvous; --world 1 "
        "checks this machine alone");
  } else if (!identity.launcher.empty() && identity.world == 1) {
    findings->ok("launcher", identity.launcher == "no launcher"
                                 ? "there is none: one rank alone"
                                 : identity.launcher + " started this rank alone");
  } else if (!identity.launcher.empty()) {
    findings->ok("launcher", identity.launcher + " started " + std::to_string(identity.world) +
                                 " ranks, which meet at " + identity.rendezvous);
  }
  return found.ok() && identity.world > 1;
}

// The environment's and the files'; the default of each that is wrong.
Settings read_settings(Findings* findings) {
  Settings settings;
  const Status loaded = settings.load({.environment = process_environment()});
  const std::vector<std::string> warnings = settings.warnings();
  if (!loaded.ok()) {
    findings->fail("settings", loaded.message(), "correct it; the checks go on with its default");
  } else if (warnings.empty()) {
    findings->ok("settings", "every PARALLAX_* variable and line of a file is a setting");
  }
  for (const std::string& warning : warnings) {
    findings->warn("settings", warning, "correct or remove the name");
  }
  return settings;
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "OK";
    case Verdict::kWarn:
      return "WARN";
    case Verdict::kFail:
      return "FAIL";
  }
  return "";
}

int doctor_main(int argc, char** argv) {
  IdentityFlags given;
  uint32_t timeout_ms = 30000;
  bool json = false, verbose = false;
  std::string nics_file;
  CLI::App app(
      "Checks this machine and, under a launcher (parallax run, torchrun, mpirun, srun) or with "
      "--rank, --world and --rendezvous, what is between the ranks. Each finding is a line OK, "
      "WARN "
      "or FAIL with its remedy. Exit status 1: something failed.",
      "parallax doctor");
  app.add_option("--rank", given.rank, "this rank; the launcher's");
  app.add_option("--world", given.world, "the number of ranks; the launcher's, else 1");
  app.add_option("--rendezvous", given.rendezvous, "how ranks meet; the launcher's");
  app.add_option("--timeout-ms", timeout_ms, "how long to wait for other ranks; 30000")
      ->check(CLI::Range(1, 3600000));
  app.add_option("--nics", nics_file,
                 "RDMA devices of another machine, from a file of its parallax info --json -t");
  app.add_flag("-v,--verbose", verbose, "ranks other than 0 print what is OK, too");
  app.add_flag("--json", json, "as one JSON object per rank");
  int exit_status = kExitOk;
  if (!parse_command_line(app, argc, argv, &exit_status)) return exit_status;

  Findings findings;
  const Settings settings = read_settings(&findings);
  RankIdentity identity;
  const Status found = find_identity(given, settings, process_variable, &identity);
  if (!found.ok() && identity.launcher.empty()) {
    return complain("doctor", found.message(), kExitUsage);
  }
  const bool together = say_identity(found, identity, &findings);
  RdmaFacts rdma;
  const Status gathered = gather_rdma(settings, nics_file, &rdma);
  if (!gathered.ok()) return complain("doctor", "--nics: " + gathered.message(), kExitUsage);
  check_machine(settings, identity.world, rdma, &findings);
  check_rdma(rdma, &findings);
  if (together) check_ranks(identity, timeout_ms, settings, rdma, &findings);
  if (json) {
    print_json(findings, identity);
  } else {
    print_text(findings, tag_of(identity), verbose || identity.rank == 0);
  }
  return findings.any_fail() ? kExitNo : kExitOk;
}

}  // namespace parallax::tool
