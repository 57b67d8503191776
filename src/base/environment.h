// SPDX-License-Identifier: Apache-2.0
// Environment: the one place that reads this process's variables (a rule of tests/tidy).
//
// A program may have rights that whoever starts it lacks: set-user-id, set-group-id, or file
// capabilities, such as cap_ipc_lock for RDMA. The kernel then sets AT_SECURE, and here no variable
// is set, so that its caller can name it no module, no file to write, and no ~/.parallax.conf.
//
// Any thread, unless another one calls setenv meanwhile.
#ifndef PARALLAX_BASE_ENVIRONMENT_H_
#define PARALLAX_BASE_ENVIRONMENT_H_

#include <string>
#include <vector>

namespace parallax {

// This process has rights that its caller may lack (AT_SECURE): nothing of the caller is taken.
bool caller_is_distrusted();

// As getenv; null, too, for every variable of a distrusted caller.
const char* variable(const char* name);

// The same as a string: "" if it is not set, or empty.
std::string process_variable(const char* name);

// "NAME=VALUE", all of them; none of a distrusted caller.
std::vector<std::string> process_environment();

// Takes what a distrusted caller could have hwloc and libibverbs load code by out of the process's
// environment, as the loader does with LD_PRELOAD. Elsewhere nothing.
void drop_foreign_variables();

}  // namespace parallax

#endif  // PARALLAX_BASE_ENVIRONMENT_H_
