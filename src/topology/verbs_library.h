// SPDX-License-Identifier: Apache-2.0
// VerbsLibrary: libibverbs, which is loaded and never linked, since most machines do without it.
// Stays loaded, as its providers do. Any thread; the first call may block on the file system.
#ifndef PARALLAX_TOPOLOGY_VERBS_LIBRARY_H_
#define PARALLAX_TOPOLOGY_VERBS_LIBRARY_H_

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <string>

namespace parallax {

struct VerbsLibrary {
  void* handle = nullptr;  // for functions that are not here: find_symbol
  decltype(&ibv_get_device_list) get_device_list = nullptr;
  decltype(&ibv_free_device_list) free_device_list = nullptr;
  decltype(&ibv_get_device_name) get_device_name = nullptr;
  decltype(&ibv_open_device) open_device = nullptr;
  decltype(&ibv_close_device) close_device = nullptr;
  decltype(&ibv_query_device) query_device = nullptr;
  // ibv_query_port is a macro too; the function fills in what the struct held in its first version.
  int (*query_port)(ibv_context*, uint8_t, ibv_port_attr*) = nullptr;
  // Null before rdma-core 32.
  decltype(&_ibv_query_gid_table) query_gid_table = nullptr;
};

template <typename Function>
bool find_symbol(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Null: not installed, or not what we know; *why is then the loader's reason.
const VerbsLibrary* load_verbs(std::string* why);

}  // namespace parallax

#endif  // PARALLAX_TOPOLOGY_VERBS_LIBRARY_H_
