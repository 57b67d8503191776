// SPDX-License-Identifier: Apache-2.0
// Search, environment and version check of the UCX module. See loader.h.
#include "transport/module/loader.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "base/descriptors.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/module_file.h"

namespace parallax {
namespace {

constexpr const char* kModuleFile = "libparallax_ucx.so";

struct Setting {
  const char* name;
  const char* value;
};

// Read by UCX when its libraries are loaded, so they cannot be passed any later way. The first four
// keep it from hooking mmap and from taking SIGSEGV, SIGHUP and others from the host process. An
// ep_create to a machine that does not answer blocks for a minute unless connecting does not block.
// Its log would go to the host process's standard output.
constexpr Setting kUcxSettings[] = {
    {"UCX_MEM_EVENTS", "n"},       {"UCX_ERROR_SIGNALS", ""}, {"UCX_DEBUG_SIGNO", ""},
    {"UCX_HANDLE_ERRORS", "none"}, {"UCX_TCP_CONN_NB", "y"},  {"UCX_LOG_LEVEL", "error"},
    {"UCX_LOG_FILE", "stderr"},
};

bool ucx_is_loaded() {
  return library_is_loaded("libucs.so.0") || library_is_loaded("libucp.so.0");
}

void prepare_environment(ModuleReport* report) {
  for (const Setting& setting : kUcxSettings) {
    if (variable(setting.name) != nullptr) continue;
    if (setenv(setting.name, setting.value, 0) == 0) {
      report->environment.push_back(std::string(setting.name) + "=" + setting.value);
    }
  }
}

// One file: OK, or why it cannot be used.
Status load_file(const std::string& path, const ParallaxTransportModule** module) {
  void* entry = nullptr;
  PARALLAX_RETURN_IF_ERROR(open_module(path, kUcxModuleEntry, &entry));
  const ParallaxTransportModule* table = reinterpret_cast<ModuleEntry>(entry)();
  PARALLAX_RETURN_IF_ERROR(check_module(table, path));
  *module = table;
  return {};
}

// UCX keeps a thread of its own, which a forked child has no copy of: endpoints made there would
// never connect. The first process to load the module is the one that can use it.
Status check_not_forked() {
  static std::atomic<pid_t> loaded_in = 0;
  const pid_t here = getpid();
  pid_t first = 0;
  if (loaded_in.compare_exchange_strong(first, here) || first == here) return {};
  return unsupported("open: process " + std::to_string(first) + " uses UCX, and process " +
                     std::to_string(here) +
                     ", forked from it, cannot; start it by exec (multiprocessing's \"spawn\"), or "
                     "fork before the first open");
}

// UCX reads variables, ~/ucx.conf and ./ucx.conf, and loads modules by them; none of it can be
// switched off from outside.
Status check_caller() {
  if (!caller_is_distrusted()) return {};
  return unsupported(
      "open: this program has rights that its caller may lack (set-user-id, or file capabilities), "
      "and UCX loads what the caller's environment names; grant the rights otherwise (for RDMA "
      "raise "
      "ulimit -l), or keep all ranks on one host");
}

}  // namespace

Status check_module(const ParallaxTransportModule* module, const std::string& path) {
  if (module == nullptr || module->abi != kModuleAbi || module->build == nullptr) {
    return unsupported(path + ": it is not a module of libparallax; reinstall libparallax");
  }
  if (std::string_view(module->build) != PARALLAX_MODULE_BUILD ||
      module->struct_bytes != sizeof(ParallaxTransportModule)) {
    return unsupported(path + ": it is of \"" + module->build + "\" but the library is of \"" +
                       PARALLAX_MODULE_BUILD + "\"; install both from one build");
  }
  if (module->create == nullptr) return unsupported(path + ": its table has no create()");
  return {};
}

Status load_ucx_module(const std::string& module_dir, const ParallaxTransportModule** module,
                       ModuleReport* report) {
  // UCX 1.13 ends the process when a worker finds no descriptor: some twelve, and one per peer.
  constexpr uint32_t kDescriptorsNeeded = 32;
  PARALLAX_RETURN_IF_ERROR(check_caller());
  PARALLAX_RETURN_IF_ERROR(check_descriptors(kDescriptorsNeeded, "open: UCX"));
  PARALLAX_RETURN_IF_ERROR(check_not_forked());
  *report = {};
  const std::vector<std::string> paths = module_candidates(module_dir, kModuleFile);
  report->library_was_loaded = ucx_is_loaded();
  if (!report->library_was_loaded) prepare_environment(report);
  for (const std::string& path : paths) {
    const Status status = load_file(path, module);
    if (status.ok()) {
      report->path = path;
      report->library = (*module)->library == nullptr ? "" : (*module)->library;
      PARALLAX_LOG(kDebug, kNet, "module " + path + ", " + report->library);
      return {};
    }
    report->tried.push_back(status.message());
    PARALLAX_LOG(kDebug, kNet, "module not loaded: " + status.message());
  }
  std::string why = "the UCX transport cannot be loaded";
  for (const std::string& line : report->tried) why += "; " + line;
  if (paths.empty()) why += "; the library cannot tell where it lies itself";
  return unsupported(why + ". Install " + kModuleFile + " and UCX, or name its folder in " +
                     kModuleDirVariable);
}

}  // namespace parallax
