// SPDX-License-Identifier: Apache-2.0
// Finds and loads libparallax_ucx.so, so that libparallax.so itself links no network library. Keeps
// nothing: the caller holds the report and the table, which stays valid as long as the process,
// because a network library that has started threads cannot be unloaded safely.
//
// Threads: any, but not while another thread reads or writes the environment (setenv). May block on
// the file system.
#ifndef PARALLAX_TRANSPORT_MODULE_LOADER_H_
#define PARALLAX_TRANSPORT_MODULE_LOADER_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "transport/module/module.h"

namespace parallax {

struct ModuleReport {
  std::string path;                 // of the module loaded; empty: none was
  std::string library;              // "UCX 1.13.1"
  bool library_was_loaded = false;  // by the host process, before us: its settings were left alone
  std::vector<std::string> environment;  // "NAME=value" that were set for the library
  std::vector<std::string> tried;        // "PATH: why not", in the order of trying
};

// Looks in module_dir (the setting of that name) and, where that is empty, in the directory of the
// binary that holds this code (libparallax.so), its parallax/, and ../lib and ../lib/parallax of
// it. Unless the process has UCX already, sets what keeps UCX from patching mmap and taking
// signals; a variable that the user has set stays. UNSUPPORTED names every file tried, or says that
// the program has rights which its caller lacks. `report` is filled either way.
Status load_ucx_module(const std::string& module_dir, const ParallaxTransportModule** module,
                       ModuleReport* report);

// Whether a table fits this library. `path` is for the sentence. UNSUPPORTED.
Status check_module(const ParallaxTransportModule* module, const std::string& path);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_MODULE_LOADER_H_
