// SPDX-License-Identifier: Apache-2.0
// Which rank the doctor is. See rank_identity.h.
#include "tool/rank_identity.h"

#include <string_view>

#include "rendezvous/launcher.h"

namespace parallax::tool {

Status find_identity(const IdentityFlags& given, const Settings& settings,
                     const Environment& environment, RankIdentity* identity) {
  const std::string& set = settings.value("rendezvous").text;
  identity->rendezvous = given.rendezvous.empty() ? set : given.rendezvous;
  identity->host = settings.value("host").text;
  const bool identified = given.rank.has_value() || given.world.has_value();
  if (identity->rendezvous != "env" && (identified || !is_launched(environment))) {
    identity->world = given.world.value_or(static_cast<uint32_t>(settings.value("world").number));
    // "--world 1" is this machine alone, whatever number a launcher gave this process.
    const bool alone = given.world == 1u && !given.rank.has_value();
    identity->rank =
        alone ? 0 : given.rank.value_or(static_cast<uint32_t>(settings.value("rank").number));
    if (identity->rank < identity->world) return {};
    return invalid("--rank " + std::to_string(identity->rank) + " is not among --world " +
                   std::to_string(identity->world));
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
  identity->launcher = launched.launcher.empty() ? "no launcher" : launched.launcher;
  identity->rank = launched.rank;
  identity->world = launched.world;
  identity->rendezvous = launched.rendezvous;
  if (identity->host.empty()) identity->host = launched.host;
  return status;
}

}  // namespace parallax::tool
