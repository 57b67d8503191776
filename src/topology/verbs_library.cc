// SPDX-License-Identifier: Apache-2.0
// See verbs_library.h.
#include "topology/verbs_library.h"

namespace parallax {
namespace {

struct Loaded {
  VerbsLibrary verbs;
  std::string why;  // not
};

Loaded load_verbs_once() {
  Loaded loaded;
  VerbsLibrary& verbs = loaded.verbs;
  verbs.handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (verbs.handle == nullptr ||
      !find_symbol(verbs.handle, "ibv_get_device_list", &verbs.get_device_list) ||
      !find_symbol(verbs.handle, "ibv_free_device_list", &verbs.free_device_list) ||
      !find_symbol(verbs.handle, "ibv_get_device_name", &verbs.get_device_name) ||
      !find_symbol(verbs.handle, "ibv_open_device", &verbs.open_device) ||
      !find_symbol(verbs.handle, "ibv_close_device", &verbs.close_device) ||
      !find_symbol(verbs.handle, "ibv_query_device", &verbs.query_device) ||
      !find_symbol(verbs.handle, "ibv_query_port", &verbs.query_port)) {
    const char* why = dlerror();
    loaded.why = why == nullptr ? "no reason given" : why;
    return loaded;
  }
  (void)find_symbol(verbs.handle, "_ibv_query_gid_table", &verbs.query_gid_table);
  return loaded;
}

}  // namespace

const VerbsLibrary* load_verbs(std::string* why) {
  static const Loaded loaded = load_verbs_once();
  *why = loaded.why;
  return loaded.why.empty() ? &loaded.verbs : nullptr;
}

}  // namespace parallax
