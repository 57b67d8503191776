// SPDX-License-Identifier: Apache-2.0
// The doctor's place among the ranks. See place.h.
#include "tool/place.h"

#include <string_view>

#include "transport/rendezvous/launcher.h"

namespace parallax::tool {

Status find_place(const GivenPlace& given, const Settings& settings, const Environment& environment,
                  RankPlace* place) {
  const std::string& set = settings.value("rendezvous").text;
  place->rendezvous = given.rendezvous.empty() ? set : given.rendezvous;
  place->host = settings.value("host").text;
  const bool placed = given.rank.has_value() || given.world.has_value();
  if (place->rendezvous != "env" && (placed || !is_launched(environment))) {
    place->world = given.world.value_or(static_cast<uint32_t>(settings.value("world").number));
    // "--world 1" is this machine alone, whatever number a launcher gave this process.
    const bool alone = given.world == 1u && !given.rank.has_value();
    place->rank =
        alone ? 0 : given.rank.value_or(static_cast<uint32_t>(settings.value("rank").number));
    if (place->rank < place->world) return {};
    return invalid("--rank " + std::to_string(place->rank) + " is not among --world " +
                   std::to_string(place->world));
  }
  // What the command line says of the rendezvous counts as PARALLAX_RENDEZVOUS does.
  const Environment as_given = [&](const char* name) {
    const bool asked = std::string_view(name) == "PARALLAX_RENDEZVOUS" && !given.rendezvous.empty();
    return asked ? given.rendezvous : environment(name);
  };
  parallax_options_t options = {};
  options.size = sizeof options;
  options.rendezvous = "env";
  options.rank = given.rank.value_or(0);
  options.world = given.world.value_or(0);
  Launched launched;
  Status status = apply_launcher(as_given, false, &launched, &options);
  place->launcher = launched.launcher.empty() ? "no launcher" : launched.launcher;
  place->rank = launched.rank;
  place->world = launched.world;
  place->rendezvous = launched.rendezvous;
  if (place->host.empty()) place->host = launched.host;
  return status;
}

}  // namespace parallax::tool
