// SPDX-License-Identifier: Apache-2.0
// Registries of variables that no caller described.
#ifndef PARALLAX_TESTS_SUPPORT_REGISTRIES_H_
#define PARALLAX_TESTS_SUPPORT_REGISTRIES_H_

#include <memory>
#include <vector>

#include "base/check.h"
#include "variable/registry.h"

namespace parallax::testkit {

inline void add_all(Registry& registry, const std::vector<Variable>& variables) {
  for (const Variable& variable : variables) {
    uint32_t id = 0;
    PARALLAX_CHECK(registry.add(variable, &id).ok());
  }
}

// As if a commit of each alone had brought them in: their numbers are their ids.
inline std::unique_ptr<Registry> registry_of(const std::vector<Variable>& variables) {
  auto registry = std::make_unique<Registry>();
  for (const Variable& variable : variables) {
    add_all(*registry, {variable});
    registry->number_new();
  }
  return registry;
}

// Of a variable that is registered already: so that a test can say what is odd about it.
inline Variable& changeable(const Registry& registry, uint32_t id) {
  return const_cast<Variable&>(registry[id]);
}

// They outlive what is returned.
inline std::vector<const Variable*> pointers_to(const std::vector<Variable>& variables) {
  std::vector<const Variable*> pointers;
  for (const Variable& variable : variables) pointers.push_back(&variable);
  return pointers;
}

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_REGISTRIES_H_
