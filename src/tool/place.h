// SPDX-License-Identifier: Apache-2.0
// Where `parallax doctor` is among the ranks, and where these meet: what the command line says,
// else the environment of a launcher, as `options.rendezvous = "env"` reads it (launcher.h), else
// one rank alone.
#ifndef PARALLAX_TOOL_PLACE_H_
#define PARALLAX_TOOL_PLACE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/settings.h"
#include "base/status.h"
#include "transport/rendezvous/environment.h"

namespace parallax::tool {

// Of the command line; what was not given is empty.
struct GivenPlace {
  std::optional<uint32_t> rank, world;
  std::string rendezvous;
};

struct RankPlace {
  std::string launcher;  // whose environment says the rest: "torchrun"; "" for the command line
  uint32_t rank = 0;
  uint32_t world = 1;
  std::string rendezvous;
  std::string host;  // "" leaves it to the machine's name
};

// INVALID: what is missing, unreadable or contradicts another; *place is then what could be read.
Status find_place(const GivenPlace& given, const Settings& settings, const Environment& environment,
                  RankPlace* place);

}  // namespace parallax::tool

#endif  // PARALLAX_TOOL_PLACE_H_
