// SPDX-License-Identifier: Apache-2.0
// InprocHub: see the header for owners, threads and the table of names.
#include "transport/inproc/hub.h"

#include <map>
#include <new>

#include "base/check.h"

namespace parallax {

namespace {

struct Names {
  Mutex mutex;  // taken before a rendezvous's own
  std::map<std::string, std::weak_ptr<InprocHub>> hubs PARALLAX_GUARDED_BY(mutex);
};

// Never destroyed: a rank may outlive static destruction on a detached thread.
Names& names() {
  static Names* table = new Names;
  return *table;
}

}  // namespace

InprocHub::InprocHub(uint32_t world)
    : rendezvous_(world), boards_(world), phases_(world, Phase::kNotYet) {
  mailboxes_.reserve(world);
  for (uint32_t rank = 0; rank < world; ++rank) mailboxes_.push_back(std::make_unique<Mailbox>());
  if (!board_memory_.reserve(world * kBoardBytes).ok()) return;
  for (std::byte*& board : boards_) {
    board = board_memory_.take<std::byte>(kBoardBytes).data();
    new (board) BoardHead();
  }
}

Status InprocHub::join(const std::string& name, uint32_t rank, uint32_t world,
                       const std::string& host, std::shared_ptr<InprocHub>* hub) {
  Names& table = names();
  const MutexLock lock(table.mutex);
  std::erase_if(table.hubs, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<InprocHub> found = table.hubs[name].lock();
  if (!found || found->rendezvous().anyone_left()) {
    found = std::make_shared<InprocHub>(world);
    table.hubs[name] = found;
  }
  if (found->world() != world) {
    return {PARALLAX_MISMATCH, "rank " + std::to_string(rank) + " says world " +
                                   std::to_string(world) + ", others at inproc:" + name + " say " +
                                   std::to_string(found->world())};
  }
  if (!found->rendezvous().enter(rank, host)) {
    return invalid("rank " + std::to_string(rank) + " is at inproc:" + name +
                   " already: give every rank its own number, or the job its own name");
  }
  *hub = std::move(found);
  return {};
}

Status InprocHub::open(uint32_t rank) {
  const MutexLock lock(mutex_);
  PARALLAX_CHECK(phases_[rank] == Phase::kNotYet);
  PARALLAX_RETURN_IF_ERROR(mailboxes_[rank]->open(world()));
  phases_[rank] = Phase::kOpen;
  for (uint32_t other = 0; other < world(); ++other) {
    if (phases_[other] == Phase::kClosed) mailboxes_[rank]->post_loss(other);
  }
  return {};
}

void InprocHub::close(uint32_t rank) {
  const MutexLock lock(mutex_);
  phases_[rank] = Phase::kClosed;
  mailboxes_[rank]->close();
  for (uint32_t other = 0; other < world(); ++other) {
    if (phases_[other] == Phase::kOpen) mailboxes_[other]->post_loss(rank);
  }
}

}  // namespace parallax
