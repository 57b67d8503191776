// SPDX-License-Identifier: Apache-2.0
// Loading the driver's library and NCCL's. See library.h.
#include "cuda/library.h"

#include <dlfcn.h>

namespace parallax {

namespace {

constexpr const char* kDriverFile = "libcuda.so.1";
constexpr const char* kNcclFile = "libnccl.so.2";
// Of the functions in each table.
constexpr const char* kDriverNeeded = "11.4";
constexpr const char* kNcclNeeded = "2.18";

std::string why_not_loaded() {
  const char* why = dlerror();
  return why == nullptr ? "cannot be loaded" : why;
}

// Null where it has none.
template <typename Function>
bool find(void* handle, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, symbol));
  return *function != nullptr;
}

std::string older(const char* file, const std::string& found, const char* symbol,
                  const char* needed) {
  return std::string(file) + " is of " + found + " and has no " + symbol + "; install " + needed +
         " or newer";
}

Status open_driver(DriverLibrary* library) {
  void* handle = dlopen(kDriverFile, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return unsupported("no CUDA driver is installed on this machine: " + why_not_loaded());
  }
  DriverApi& api = library->api;
  std::string version = "an unknown version";
  if (find(handle, "cuDriverGetVersion", &api.cuDriverGetVersion) &&
      api.cuDriverGetVersion(&library->version) == CUDA_SUCCESS) {
    version = "CUDA " + cuda_version_text(library->version);
  }
#define PARALLAX_CUDA_FIND(symbol)                                                                 \
  if (!find(handle, #symbol, &api.symbol)) {                                                       \
    return unsupported(older(kDriverFile, version, #symbol, "a driver of CUDA ") + kDriverNeeded); \
  }
  PARALLAX_CUDA_DRIVER_FUNCTIONS(PARALLAX_CUDA_FIND)
#undef PARALLAX_CUDA_FIND
  const CUresult ready = api.cuInit(0);
  if (ready == CUDA_SUCCESS) return {};
  return unsupported("the driver of " + version +
                     " cannot be used: cuInit: " + error_text(api, ready));
}

Status open_nccl(NcclLibrary* library) {
  void* handle = dlopen(kNcclFile, RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL);
  library->was_loaded = handle != nullptr;
  if (handle == nullptr) handle = dlopen(kNcclFile, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return unsupported("NCCL was not found: " + why_not_loaded());
  NcclApi& api = library->api;
  std::string version = "an unknown version";
  if (find(handle, "ncclGetVersion", &api.ncclGetVersion) &&
      api.ncclGetVersion(&library->version) == ncclSuccess) {
    version = "NCCL " + nccl_version_text(library->version);
  }
#define PARALLAX_NCCL_FIND(symbol)                                                 \
  if (!find(handle, #symbol, &api.symbol)) {                                       \
    return unsupported(older(kNcclFile, version, #symbol, "NCCL ") + kNcclNeeded); \
  }
  PARALLAX_NCCL_FUNCTIONS(PARALLAX_NCCL_FIND)
#undef PARALLAX_NCCL_FIND
  // A library that has the name before its time is not asked.
#define PARALLAX_NCCL_FIND(symbol, since) \
  if (library->version >= (since)) find(handle, #symbol, &api.symbol);
  PARALLAX_NCCL_OPTIONAL_FUNCTIONS(PARALLAX_NCCL_FIND)
#undef PARALLAX_NCCL_FIND
  return {};
}

// What came of loading a library, once in a process.
template <typename Library>
struct Loaded {
  Library library;
  Status status;
};

}  // namespace

Status load_driver(const DriverLibrary** library) {
  static const Loaded<DriverLibrary>* const loaded = [] {
    auto* made = new Loaded<DriverLibrary>();  // never freed: the driver's threads outlive main
    made->status = open_driver(&made->library);
    return made;
  }();
  *library = &loaded->library;
  return loaded->status;
}

Status load_nccl(const NcclLibrary** library) {
  static const Loaded<NcclLibrary>* const loaded = [] {
    auto* made = new Loaded<NcclLibrary>();
    made->status = open_nccl(&made->library);
    return made;
  }();
  *library = &loaded->library;
  return loaded->status;
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Up to 2.8 there were two digits less.
std::string nccl_version_text(int version) {
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version % 1000 / 100 : version % 10000 / 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

std::string error_text(const DriverApi& api, CUresult error) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.cuGetErrorName(error, &name) != CUDA_SUCCESS || name == nullptr) {
    return "CUDA error " + std::to_string(static_cast<int>(error));
  }
  if (api.cuGetErrorString(error, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return std::string(name) + " (" + text + ")";
}

}  // namespace parallax
