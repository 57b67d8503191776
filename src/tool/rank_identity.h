// SPDX-License-Identifier: Apache-2.0
// RankIdentity: which rank `parallax doctor` is, of how many, and where they meet: as the command
// line says, else the environment of a launcher, read as for `options.rendezvous = "env"`
// (launcher.h), else one rank alone.
#ifndef PARALLAX_TOOL_RANK_IDENTITY_H_
#define PARALLAX_TOOL_RANK_IDENTITY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/settings.h"
#include "base/status.h"
#include "rendezvous/environment.h"

namespace parallax::tool {

// From the command line; empty where it says nothing.
struct IdentityFlags {
  std::optional<uint32_t> rank, world;
  std::string rendezvous;
};

struct RankIdentity {
  std::string launcher;  // "torchrun": the rest is from its environment; "": command line
  uint32_t rank = 0;
  uint32_t world = 1;
  std::string rendezvous;
  std::string host;  // "" leaves it to the machine's name
};

// INVALID: something is missing, unreadable or contradictory; *identity then holds what could be
// read.
Status find_identity(const IdentityFlags& given, const Settings& settings,
                     const Environment& environment, RankIdentity* identity);

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_RANK_IDENTITY_H_
