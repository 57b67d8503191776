// SPDX-License-Identifier: Apache-2.0
// Finds and loads libparallax_cuda.so, so that libparallax.so itself has no trace of CUDA. Keeps
// nothing: the caller holds the report and the table, which stays valid as long as the process.
//
// Any thread; may block on the file system.
#ifndef PARALLAX_DEVICE_LOADER_H_
#define PARALLAX_DEVICE_LOADER_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "device/module.h"

namespace parallax {

struct DeviceModuleReport {
  std::string path;                // of the module loaded; empty: none was
  std::string made;                // what it was compiled with
  std::vector<std::string> tried;  // "PATH: why not", in the order of trying
};

// Looks where module_candidates (base/module_file.h) does. UNSUPPORTED names every file tried, or
// says that the program has rights which its caller lacks, or that this process was forked from one
// that uses a device. `report` is filled either way.
Status load_cuda_module(const std::string& module_dir, const ParallaxDeviceModule** module,
                        DeviceModuleReport* report);

// Whether a table fits this library. `path` is for the sentence. UNSUPPORTED.
Status check_module(const ParallaxDeviceModule* module, const std::string& path);

}  // namespace parallax

#endif  // PARALLAX_DEVICE_LOADER_H_
