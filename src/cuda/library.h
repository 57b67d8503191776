// SPDX-License-Identifier: Apache-2.0
// The libraries that the module drives, found at run time: libcuda.so.1 of the machine's driver and
// libnccl.so.2. Each is loaded once in a process and stays; what is found is a table of its
// functions and its version.
//
// Any thread; may block on the file system, and NCCL is large.
#ifndef PARALLAX_CUDA_LIBRARY_H_
#define PARALLAX_CUDA_LIBRARY_H_

#include <string>

#include "base/status.h"
#include "cuda/driver_api.h"
#include "cuda/nccl_api.h"

namespace parallax {

struct DriverLibrary {
  DriverApi api;
  int version = 0;  // 13000 is 13.0
};

struct NcclLibrary {
  NcclApi api;
  int version = 0;  // 22809 is 2.28.9
  // The process had it, by a framework.
  bool was_loaded = false;
};

// Initialised. UNSUPPORTED names the library, the function that it has not, or what cuInit says.
Status load_driver(const DriverLibrary** library);
// UNSUPPORTED names the library, or the function that it has not, with its version. That of a
// framework in the process is taken before any other.
Status load_nccl(const NcclLibrary** library);

// "13.0"; "2.28.9".
std::string cuda_version_text(int version);
std::string nccl_version_text(int version);

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
std::string error_text(const DriverApi& api, CUresult error);

}  // namespace parallax

#endif  // PARALLAX_CUDA_LIBRARY_H_
