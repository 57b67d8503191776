// SPDX-License-Identifier: Apache-2.0
// What the doctor's checks of RDMA look at, asked of this machine. See doctor_rdma.h.
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/environment.h"
#include "tool/doctor_rdma.h"
#include "tool/machine.h"
#include "tool/nics_file.h"
#include "transport/module/loader.h"

namespace parallax::tool {

namespace {

namespace fs = std::filesystem;

// The folder in which UCX looks for its parts, beside the library that this process has loaded.
std::string ucx_folder() {
  std::string folder;
  const auto look = [](dl_phdr_info* info, size_t, void* found) {
    const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
    const size_t slash = path.rfind('/');
    if (slash == path.npos || !path.substr(slash + 1).starts_with("libuct.so")) return 0;
    *static_cast<std::string*>(found) = std::string(path.substr(0, slash)) + "/ucx";
    return 1;
  };
  dl_iterate_phdr(look, &folder);
  return folder;
}

bool is_interface(const std::string& device) {
  const std::vector<Interface> all = interfaces();
  return std::any_of(all.begin(), all.end(),
                     [&](const Interface& each) { return each.name == device; });
}

}  // namespace

std::string closed_files(const std::string& folder) {
  std::error_code error;
  std::string text;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  if (error) return folder + " cannot be read: " + error.message();
  std::sort(names.begin(), names.end());
  bool any = false;
  for (const std::string& name : names) {
    if (!name.starts_with("uverbs")) continue;
    any = true;
    if (access((folder + "/" + name).c_str(), R_OK | W_OK) == 0) continue;
    text += (text.empty() ? "" : "; ") + folder + "/" + name + ": " + std::strerror(errno);
  }
  return any ? text : folder + " has no file uverbs*";
}

// Opens it as UCX does, which tells of libraries that are missing.
std::string ucx_without_verbs(const std::string& folder) {
  const std::string path = folder + "/libuct_ib.so.0";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return "UCX has no part for verbs: there is no " + path;
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (library != nullptr) return "";
  const char* why = dlerror();
  return "UCX cannot load its part for verbs: " + std::string(why == nullptr ? path : why);
}

Status gather_rdma(const Settings& settings, const std::string& nics_file, RdmaFacts* facts) {
  (void)discover({}, &facts->topology).ok();  // what it did not find is a finding
  const std::string device = settings.value("net_device").text;
  // An interface is no RDMA device; any other name is meant as one.
  if (!device.empty() && !is_interface(device)) facts->device = device;
  facts->is_wanted = !facts->device.empty() || settings.value("transport").text == "rdma";
  facts->gid_index = process_variable("UCX_IB_GID_INDEX");
  if (!nics_file.empty()) {
    return use_nics_file(nics_file, &facts->topology);  // files and UCX of here say nothing of them
  }
  facts->are_here = true;
  if (facts->topology.nics.empty()) return {};
  facts->cuda = cuda_variables();
  facts->no_files = closed_files("/dev/infiniband");
  const ParallaxTransportModule* module = nullptr;
  ModuleReport report;
  const Status loaded = load_ucx_module(settings.value("module_dir").text, &module, &report);
  const std::string folder = loaded.ok() ? ucx_folder() : "";
  if (!folder.empty()) facts->no_verbs = ucx_without_verbs(folder);
  return {};
}

}  // namespace parallax::tool
