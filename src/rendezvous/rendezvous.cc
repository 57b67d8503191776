// SPDX-License-Identifier: Apache-2.0
// make_rendezvous: which kind of rendezvous the options of parallax_open ask for. Blocks on the
// file system at most.
#include "rendezvous/rendezvous.h"

#include <string_view>

#include "rendezvous/callback_rendezvous.h"
#include "rendezvous/ended_ranks.h"
#include "rendezvous/file_rendezvous.h"
#include "rendezvous/inproc_rendezvous.h"
#include "rendezvous/tcp_rendezvous.h"

namespace parallax {

namespace {

// One rank alone.
class SoloRendezvous final : public Rendezvous {
 public:
  std::string_view name() const override { return "solo"; }
  Status allgather(std::span<const std::byte> mine, int64_t,
                   std::vector<std::string>* all) override {
    all->assign(1, std::string(reinterpret_cast<const char*>(mine.data()), mine.size()));
    return {};
  }
  void leave(const Status&) override {}
  Status verdict() override { return {}; }
  void finish_bootstrap() override {}
  Status finish() override { return {}; }
};

bool take_prefix(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// Whether options.rendezvous begins like one of its forms. What follows tcp: is checked where it is
// parsed (tcp_address.h).
bool is_rendezvous(std::string_view text) {
  return take_prefix(&text, "tcp:") ||
         ((take_prefix(&text, "inproc:") || take_prefix(&text, "file:")) && !text.empty());
}

template <typename T>
Status make(Status status, std::unique_ptr<T> made, std::unique_ptr<Rendezvous>* rendezvous) {
  if (status.ok()) *rendezvous = std::move(made);
  return status;
}

}  // namespace

Status make_rendezvous(const parallax_options_t& options, const std::string& host,
                       const Clock& clock, std::unique_ptr<Rendezvous>* rendezvous) {
  const RendezvousOptions common{
      .rank = options.rank,
      .world = options.world == 0 ? 1 : options.world,
      .host = host,
      .lease_ms = options.lease_ms == 0 ? kLeaseMillisecondsDefault : options.lease_ms,
      .clock = &clock,
      .ended_ranks = ended_ranks_file(process_variable, options.rank, options.world)};
  if (common.rank >= common.world) {
    return invalid("options.rank is " + std::to_string(common.rank) + ", but options.world is " +
                   std::to_string(common.world));
  }
  const int ways = (options.rendezvous != nullptr) + (options.allgather != nullptr) +
                   (options.unique_id != nullptr);
  if (ways > 1) {
    return invalid(
        "of options.rendezvous, options.allgather and options.unique_id more than one is set: "
        "give one");
  }
  if (options.rendezvous != nullptr && !is_rendezvous(options.rendezvous)) {
    return invalid("options.rendezvous is '" + std::string(options.rendezvous) +
                   "': give inproc:NAME, file:DIR, tcp:HOST:PORT or env");
  }
  if (common.world == 1) {
    *rendezvous = std::make_unique<SoloRendezvous>();
    return {};
  }
  if (options.allgather != nullptr) {
    *rendezvous =
        std::make_unique<CallbackRendezvous>(common, options.allgather, options.allgather_context);
    return {};
  }
  if (options.unique_id != nullptr) {
    return make_unique_id_rendezvous(common, *options.unique_id, rendezvous);
  }
  if (options.rendezvous == nullptr) {
    return invalid("options.world is " + std::to_string(common.world) +
                   ", but none of options.rendezvous, options.allgather and options.unique_id says "
                   "how ranks meet");
  }
  std::string_view where = options.rendezvous;
  if (take_prefix(&where, "inproc:")) {
    std::unique_ptr<InprocRendezvous> made;
    Status status = InprocRendezvous::create(common, std::string(where), &made);
    return make(std::move(status), std::move(made), rendezvous);
  }
  if (take_prefix(&where, "file:")) {
    std::unique_ptr<FileRendezvous> made;
    Status status = FileRendezvous::create(common, std::string(where), &made);
    return make(std::move(status), std::move(made), rendezvous);
  }
  take_prefix(&where, "tcp:");
  return make_tcp_rendezvous(common, where, options.secret_file, process_variable, rendezvous);
}

}  // namespace parallax
