// SPDX-License-Identifier: Apache-2.0
// ModuleFile: where a module of this library (libparallax_NAME.so) may lie, and how one is opened.
// A module is never unloaded: what it drives leaves threads and handlers behind. Keeps nothing.
//
// Any thread; may block on the file system.
#ifndef PARALLAX_BASE_MODULE_FILE_H_
#define PARALLAX_BASE_MODULE_FILE_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace parallax {

// The environment's name of the setting that names the folder, for sentences.
inline constexpr const char* kModuleDirVariable = "PARALLAX_MODULE_DIR";

// Paths to try, in that order: in module_dir (the setting of that name) or, where that is empty, in
// the directory of the binary that holds this code (libparallax.so), its parallax/, and ../lib and
// ../lib/parallax of it. None: the loader cannot tell where this code lies.
std::vector<std::string> module_candidates(const std::string& module_dir, const char* file);

// *symbol is the module's entry. UNSUPPORTED: "PATH: why not".
Status open_module(const std::string& path, const char* entry, void** symbol);

// The process has a library of that name already ("libucp.so.0").
bool library_is_loaded(const char* library);

}  // namespace parallax

#endif  // PARALLAX_BASE_MODULE_FILE_H_
