// SPDX-License-Identifier: Apache-2.0
// parallax info: the build, the transports, the devices, the topology and the settings.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/settings.h"
#include "base/usable_cores.h"
#include "base/vector_code.h"
#include "device/loader.h"
#include "tool/machine.h"
#include "tool/nics_file.h"
#include "tool/tool.h"
#include "tool/topology_tree.h"
#include "topology/topology.h"
#include "transport/module/loader.h"

namespace parallax::tool {

namespace {

using Json = nlohmann::ordered_json;

struct Chosen {
  bool build = false, transports = false, devices = false, topology = false, settings = false;
  bool full = false, json = false;
};

// What the kernels run by here, and what else they could.
std::string vectors_text() {
  std::string all;
  for (const VectorLevel each : vector_levels()) {
    all += (all.empty() ? " of " : ", ") + std::string(vector_level_name(each));
  }
  return vector_level_name(vector_level()) + all;
}

Json build_json() {
  const BuildInfo& build = build_info();
  return {{"version", build.version},   {"git", build.git},
          {"compiler", build.compiler}, {"build_type", build.build_type},
          {"options", build.options},   {"vectors", vectors_text()}};
}

// Found: slices may lie on devices of this machine.
Json cuda_json(const Settings& settings) {
  const ParallaxDeviceModule* module = nullptr;
  DeviceModuleReport report;
  DeviceReport devices;
  Status status = load_cuda_module(settings.value("module_dir").text, &module, &report);
  if (status.ok()) status = module->describe(&devices);
  Json cuda = {{"name", "cuda"}, {"found", status.ok()}};
  std::string why = devices.driver;
  if (status.ok()) {
    why += ", " + (devices.collectives.empty() ? devices.collectives_why : devices.collectives);
    for (const DeviceInfo& each : devices.devices) {
      why += "; " + std::to_string(each.number) + ": " + each.name + " (" + each.pci_bus_id + ")";
    }
    why += "; " + report.path + ", for " + report.made;
  } else {
    why = report.path.empty() ? status.message() : report.path + ": " + status.message();
  }
  cuda["why"] = why;
  cuda["tried"] = report.tried;
  cuda["driver"] = devices.driver;
  cuda["nccl"] = devices.collectives;
  cuda["nccl_why"] = devices.collectives_why;
  return cuda;
}

Json transports_json(const Settings& settings) {
  Json ucx = {{"name", "ucx"}, {"found", false}};
  const ParallaxTransportModule* module = nullptr;
  ModuleReport report;
  const Status loaded = load_ucx_module(settings.value("module_dir").text, &module, &report);
  ucx["found"] = loaded.ok();
  ucx["why"] = loaded.ok() ? report.library + ", " + report.path : loaded.message();
  ucx["tried"] = report.tried;
  ucx["environment"] = report.environment;
  return {{{"name", "inproc"}, {"found", true}, {"why", "built in: threads of one process"}},
          {{"name", "shm"}, {"found", true}, {"why", "built in: processes of one host"}},
          {{"name", "tcp"}, {"found", true}, {"why", "built in: between hosts, the default"}},
          ucx,
          cuda_json(settings)};
}

Json devices_json(const Topology& topology) {
  Json list = Json::array();
  for (const Interface& each : interfaces()) {
    list.push_back({{"kind", "interface"},
                    {"name", each.name},
                    {"state", each.up ? "up" : "down"},
                    {"addresses", each.addresses}});
  }
  const Json nics = Json::parse(topology_json(topology)).at("nics");
  for (size_t i = 0; i < topology.nics.size(); ++i) {
    const Nic& nic = topology.nics[i];
    Json ports = Json::array();
    for (const NicPort& port : nic.ports) {
      ports.push_back(nic.name + ":" + std::to_string(port.number) + " " + port_text(port));
    }
    list.push_back(
        {{"kind", "rdma"},
         {"name", nic.name},
         {"state", !nic.error.empty() || nic.ports.empty() ? "cannot be opened" : "open"},
         {"addresses", ports},
         {"why", nic.error},
         {"nic", nics.at(i)}});
  }
  if (topology.nics.empty()) {
    list.push_back({{"kind", "rdma"},
                    {"name", "(none)"},
                    {"state", "missing"},
                    {"addresses", Json::array()},
                    {"why", topology.no_nics_why}});
  }
  return list;
}

std::string joined(const Json& list) {
  std::string text;
  for (const Json& each : list) {
    if (!text.empty()) text += ", ";
    text += each.get<std::string>();
  }
  return text;
}

// What control groups leave this process of the cores that it may run on.
Json quota_json() {
  const UsableCores cores = usable_cores();
  if (cores.quota_thousandths == 0) return nullptr;
  return {{"cores", core_quota_text(cores.quota_thousandths)}, {"file", cores.quota_file}};
}

// `live`: it is this machine's.
void print_topology(const Topology& topology, bool live) {
  std::printf("Topology\n");
  Table table = {{"host", topology.host},
                 {"packages", std::to_string(topology.packages)},
                 {"cores", std::to_string(topology.cores)},
                 {"hardware threads", std::to_string(topology.pus) + ", " +
                                          std::to_string(topology.pus_allowed) + " allowed here"},
                 {"memory", mebibytes(topology.memory_bytes)}};
  if (const Json quota = live ? quota_json() : nullptr; live) {
    table.push_back({"CPU quota", quota.is_null()
                                      ? "none"
                                      : quota["cores"].get<std::string>() + " cores, by " +
                                            quota["file"].get<std::string>()});
  }
  for (const NumaNode& node : topology.numa_nodes) {
    table.push_back({"NUMA node " + std::to_string(node.index),
                     mebibytes(node.memory_bytes) + ", " + std::to_string(node.pus) + " threads"});
  }
  for (const Cache& cache : topology.caches) {
    table.push_back({"L" + std::to_string(cache.level) + " " + cache.kind,
                     std::to_string(cache.count) + " x " + std::to_string(cache.size_bytes >> 10) +
                         " KiB, each for " + std::to_string(cache.pus_sharing) +
                         (cache.pus_sharing == 1 ? " thread" : " threads")});
  }
  print_table(table, stdout);
  std::printf("\n%s", topology_tree(topology).c_str());
}

void print_settings(const Settings& settings, bool full) {
  std::printf("Settings (code > environment > file > default; here without code)\n");
  Table table;
  for (const SettingRow& row : setting_rows()) {
    const SettingValue& value = settings.value(row.name);
    const std::string shown = settings.shown(row);
    const std::string from = value.where.empty() ? setting_source_name(value.source) : value.where;
    table.push_back({row.name, shown.empty() ? "(not set)" : shown, row.unit,
                     value.wrong.empty() ? from : "WRONG, " + value.wrong});
    if (!full) continue;
    print_table(table, stdout);
    table.clear();
    print_table({{setting_variable(row)},
                 {"allowed: " + setting_allowed(row) +
                  "; default: " + (*row.standard == '\0' ? "not set" : row.standard)},
                 {"set in: " + setting_sources(row)},
                 {row.help},
                 {""}},
                stdout, "      ");
  }
  print_table(table, stdout);
  for (const std::string& warning : settings.warnings()) {
    std::printf("  warning: %s\n", warning.c_str());
  }
}

// `topology` is that of `here`, this machine, or of the file that topology_xml names.
void print(const Chosen& chosen, const Settings& settings, const Topology& here,
           const Topology& topology) {
  bool first = true;
  const auto gap = [&first] {
    if (!first) std::printf("\n");
    first = false;
  };
  if (chosen.build) {
    gap();
    std::printf("Build\n");
    const Json build = build_json();
    Table table;
    for (const auto& [name, value] : build.items()) {
      const std::string text = value.get<std::string>();
      table.push_back({name, text.empty() ? "(unknown)" : text});
    }
    print_table(table, stdout);
  }
  if (chosen.transports) {
    gap();
    std::printf("Transports\n");
    Table table;
    for (const Json& each : transports_json(settings)) {
      table.push_back(
          {each["name"], each["found"].get<bool>() ? "found" : "not found", each["why"]});
    }
    print_table(table, stdout);
  }
  if (chosen.devices) {
    gap();
    std::printf("Devices\n");
    Table table;
    for (const Json& each : devices_json(here)) {
      table.push_back({each["kind"], each["name"], each["state"],
                       joined(each["addresses"]) + each.value("why", "")});
    }
    print_table(table, stdout);
  }
  if (chosen.topology) {
    gap();
    print_topology(topology, &topology == &here);
  }
  if (chosen.settings) {
    gap();
    print_settings(settings, chosen.full);
  }
}

void print_json(const Chosen& chosen, const Settings& settings, const Topology& here,
                const Topology& topology) {
  Json all;
  if (chosen.build) all["build"] = build_json();
  if (chosen.transports) all["transports"] = transports_json(settings);
  if (chosen.devices) all["devices"] = devices_json(here);
  if (chosen.topology) {
    all["topology"] = Json::parse(topology_json(topology));
    if (&topology == &here) all["topology"]["cpu_quota"] = quota_json();
  }
  if (chosen.settings) {
    all["settings"] = Json::parse(settings.json());
    all["warnings"] = settings.warnings();
  }
  std::printf("%s\n", all.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

Status read_file(const std::string& path, Topology* topology) {
  std::string xml;
  PARALLAX_RETURN_IF_ERROR(read_topology_xml(path, &xml));
  const Status found = discover({.hwloc_xml = xml}, topology);
  if (found.ok()) return found;
  return {found.code(), "topology_xml is '" + path + "': " + found.message()};
}

}  // namespace

int info_main(int argc, char** argv) {
  Chosen chosen;
  bool markdown = false;
  std::string nics_file;
  CLI::App app(
      "Prints what this build is and what it finds on this machine. Without an option that picks "
      "a part: build, transports and devices.",
      "parallax info");
  app.add_flag("-b,--build", chosen.build, "version, compiler, options");
  app.add_flag("-m,--transports", chosen.transports, "transports found, and why others were not");
  app.add_flag("-d,--devices", chosen.devices, "network interfaces and RDMA devices with ports");
  app.add_flag("-t,--topology", chosen.topology, "NUMA nodes, cores, caches, NICs, GPUs");
  app.add_flag("-c,--config", chosen.settings, "settings: values, and where they come from");
  app.add_flag("-f,--full", chosen.full, "settings with what is allowed and what they are for");
  app.add_option("--nics", nics_file,
                 "RDMA devices of another machine, from a file of its parallax info --json -t");
  app.add_flag("--json", chosen.json, "as one JSON object");
  app.add_flag("--markdown", markdown, "the table of settings as docs/settings.md has it");
  int exit_status = kExitOk;
  if (!parse_command_line(app, argc, argv, &exit_status)) return exit_status;
  if (markdown) return std::fputs(settings_markdown().c_str(), stdout), kExitOk;
  if (chosen.full) chosen.settings = true;
  if (!chosen.build && !chosen.transports && !chosen.devices && !chosen.topology &&
      !chosen.settings) {
    chosen.build = chosen.transports = chosen.devices = true;
  }
  Settings settings;
  const Status loaded = settings.load({.environment = process_environment()});
  // The table of settings shows what is wrong in its place.
  if (!loaded.ok() && !chosen.settings) return complain("info", loaded.message(), kExitNo);
  Topology here, shown;
  const std::string& file = settings.value("topology_xml").text;
  if (chosen.devices || (chosen.topology && file.empty())) {
    const Status found = discover({}, &here);
    if (!found.ok()) complain("info", found.message(), kExitNo);  // what was found is shown
  }
  if (chosen.topology && !file.empty()) {
    const Status read = read_file(file, &shown);
    if (!read.ok()) return complain("info", settings.explained(read).message(), kExitNo);
  }
  if (!nics_file.empty()) {
    Status used = use_nics_file(nics_file, &here);
    if (used.ok()) used = use_nics_file(nics_file, &shown);
    if (!used.ok()) return complain("info", "--nics: " + used.message(), kExitNo);
  }
  const Topology& topology = file.empty() ? here : shown;
  if (chosen.json) {
    print_json(chosen, settings, here, topology);
  } else {
    print(chosen, settings, here, topology);
  }
  return loaded.ok() ? kExitOk : complain("info", loaded.message(), kExitNo);
}

}  // namespace parallax::tool
