// SPDX-License-Identifier: Apache-2.0
// parallax doctor: its command line and its report. See doctor.h.
#include "tool/doctor.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "step/job_settings.h"
#include "tool/tool.h"

namespace parallax::tool {

namespace {

void print_json(const Findings& findings, const RanksOptions& ranks) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const Finding& each : findings.list()) {
    list.push_back({{"check", each.check},
                    {"verdict", verdict_name(each.verdict)},
                    {"text", each.text},
                    {"remedy", each.remedy}});
  }
  const Json whole = {{"rank", ranks.rank}, {"world", ranks.world}, {"findings", list}};
  std::printf("%s\n", whole.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

void print_text(const Findings& findings, bool all) {
  for (const Finding& each : findings.list()) {
    if (each.verdict == Verdict::kOk && !all) continue;
    std::printf("%-4s  %s: %s%s\n", verdict_name(each.verdict), each.check.c_str(),
                each.text.c_str(), each.remedy.empty() ? "" : (" -> " + each.remedy).c_str());
  }
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
  RanksOptions ranks;
  int64_t rank = -1;
  bool json = false, verbose = false;
  CLI::App app(
      "Checks this machine and, with --rank, --world and --rendezvous or as the command of "
      "`parallax run`, what is between the ranks. Each finding is a line OK, WARN or FAIL with its "
      "remedy. Exit status 1: something failed.",
      "parallax doctor");
  app.add_option("--rank", rank, "this rank; default: PARALLAX_RANK");
  app.add_option("--world", ranks.world, "number of ranks; default: PARALLAX_WORLD");
  app.add_option("--rendezvous", ranks.rendezvous, "as for a job; default: PARALLAX_RENDEZVOUS");
  app.add_option("--timeout-ms", ranks.timeout_ms, "how long to wait for other ranks; 30000")
      ->check(CLI::Range(1, 3600000));
  app.add_flag("-v,--verbose", verbose, "ranks other than 0 print what is OK, too");
  app.add_flag("--json", json, "as one JSON object per rank");
  int exit_status = kExitOk;
  if (!parse_command_line(app, argc, argv, &exit_status)) return exit_status;

  Findings findings;
  Settings settings;
  const Status loaded = settings.load({.environment = process_environment()});
  if (!loaded.ok()) {
    findings.fail("settings", loaded.message(), "correct it; the checks go on with the defaults");
    settings = Settings();
  } else if (settings.warnings().empty()) {
    findings.ok("settings", "every PARALLAX_* variable and line of a file is a setting");
  }
  for (const std::string& warning : settings.warnings()) {
    findings.warn("settings", warning, "correct or remove the name");
  }
  if (app.count("--world") == 0) {
    ranks.world = static_cast<uint32_t>(settings.value("world").number);
  }
  ranks.rank =
      rank < 0 ? static_cast<uint32_t>(settings.value("rank").number) : static_cast<uint32_t>(rank);
  if (ranks.rendezvous.empty()) ranks.rendezvous = settings.value("rendezvous").text;
  ranks.host = settings.value("host").text;
  if (ranks.world == 0 || ranks.rank >= ranks.world) {
    return complain("doctor",
                    "--rank " + std::to_string(ranks.rank) + " is not among --world " +
                        std::to_string(ranks.world),
                    kExitUsage);
  }
  check_machine(settings, ranks.world, &findings);
  if (ranks.world > 1) check_ranks(ranks, settings, &findings);
  if (json) {
    print_json(findings, ranks);
  } else {
    print_text(findings, verbose || ranks.rank == 0);
  }
  return findings.any_fail() ? kExitNo : kExitOk;
}

}  // namespace parallax::tool
