// SPDX-License-Identifier: Apache-2.0
// Search and loading of modules. See module_file.h.
#include "base/module_file.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace parallax {

namespace {

// The directory of the binary that this function was linked into; empty if the loader cannot tell.
std::filesystem::path own_directory() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&module_candidates), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  // For an executable found through PATH, dli_fname is only its argv[0].
  std::filesystem::path path = info.dli_fname;
  std::error_code error;
  if (!path.has_parent_path()) path = "/proc/self/exe";
  path = std::filesystem::canonical(path, error);
  return error ? std::filesystem::path() : path.parent_path();
}

}  // namespace

std::vector<std::string> module_candidates(const std::string& module_dir, const char* file) {
  if (!module_dir.empty()) return {(std::filesystem::path(module_dir) / file).string()};
  const std::filesystem::path own = own_directory();
  if (own.empty()) return {};
  std::vector<std::string> paths;
  for (const char* folder : {"", "parallax", "../lib", "../lib/parallax"}) {
    paths.push_back((own / folder / file).lexically_normal().string());
  }
  return paths;
}

Status open_module(const std::string& path, const char* entry, void** symbol) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return unsupported(path + ": no such file");
  // NODELETE: what it drives leaves threads and atexit handlers behind.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* why = dlerror();
    return unsupported(path + ": " + (why == nullptr ? "cannot be loaded" : why));
  }
  *symbol = dlsym(handle, entry);
  return *symbol != nullptr ? Status() : unsupported(path + ": it has no " + entry);
}

bool library_is_loaded(const char* library) {
  void* handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

}  // namespace parallax
