// SPDX-License-Identifier: Apache-2.0
// Search and version check of the CUDA module. See loader.h.
#include "device/loader.h"

#include <unistd.h>

#include <atomic>
#include <string_view>

#include "base/environment.h"
#include "base/log.h"
#include "base/module_file.h"

namespace parallax {
namespace {

constexpr const char* kCudaModuleFile = "libparallax_cuda.so";

// One file: OK, or why it cannot be used.
Status load_cuda_file(const std::string& path, const ParallaxDeviceModule** module) {
  void* entry = nullptr;
  PARALLAX_RETURN_IF_ERROR(open_module(path, kCudaModuleEntry, &entry));
  const ParallaxDeviceModule* table = reinterpret_cast<DeviceModuleEntry>(entry)();
  PARALLAX_RETURN_IF_ERROR(check_module(table, path));
  *module = table;
  return {};
}

// The process that loaded the module first; 0: none has.
std::atomic<pid_t> used_in = 0;

// A driver that was initialised has threads and mappings that a forked child has no part in.
Status check_not_forked_from_user() {
  const pid_t here = getpid();
  const pid_t first = used_in;
  if (first == 0 || first == here) return {};
  return unsupported("process " + std::to_string(first) + " uses CUDA, and process " +
                     std::to_string(here) +
                     ", forked from it, cannot; start it by exec (multiprocessing's \"spawn\"), or "
                     "fork before the first use of a device");
}

// The driver loads what CUDA_INJECTION64_PATH and its kind name; it cannot be told not to.
Status check_trusted_caller() {
  if (!caller_is_distrusted()) return {};
  return unsupported(
      "this program has rights that its caller may lack (set-user-id, or file capabilities), and "
      "CUDA loads what the caller's environment names; grant the rights otherwise, or keep slices "
      "in host memory");
}

}  // namespace

Status check_module(const ParallaxDeviceModule* module, const std::string& path) {
  if (module == nullptr || module->abi != kDeviceModuleAbi || module->build == nullptr) {
    return unsupported(path + ": it is not a module of libparallax; reinstall libparallax");
  }
  if (std::string_view(module->build) != PARALLAX_DEVICE_MODULE_BUILD ||
      module->struct_bytes != sizeof(ParallaxDeviceModule)) {
    return unsupported(path + ": it is of \"" + module->build + "\" but the library is of \"" +
                       PARALLAX_DEVICE_MODULE_BUILD + "\"; install both from one build");
  }
  if (module->create == nullptr || module->describe == nullptr) {
    return unsupported(path + ": its table lacks create() or describe()");
  }
  return {};
}

Status load_cuda_module(const std::string& module_dir, const ParallaxDeviceModule** module,
                        DeviceModuleReport* report) {
  *report = {};
  PARALLAX_RETURN_IF_ERROR(check_trusted_caller());
  PARALLAX_RETURN_IF_ERROR(check_not_forked_from_user());
  const std::vector<std::string> paths = module_candidates(module_dir, kCudaModuleFile);
  for (const std::string& path : paths) {
    const Status status = load_cuda_file(path, module);
    if (status.ok()) {
      used_in = getpid();
      report->path = path;
      report->made = (*module)->made == nullptr ? "" : (*module)->made;
      PARALLAX_LOG(kDebug, kInit, "module " + path + ", for " + report->made);
      return {};
    }
    report->tried.push_back(status.message());
    PARALLAX_LOG(kDebug, kInit, "module not loaded: " + status.message());
  }
  std::string why = "the module for CUDA devices cannot be loaded";
  for (const std::string& line : report->tried) why += "; " + line;
  if (paths.empty()) why += "; the library cannot tell where it lies itself";
  return unsupported(why + ". Build libparallax with the CUDA toolkit (PARALLAX_CUDA), install " +
                     kCudaModuleFile + ", or name its folder in " + kModuleDirVariable);
}

}  // namespace parallax
