// SPDX-License-Identifier: Apache-2.0
// InprocHub: where the ranks of one job that are threads, or objects, of one process find each
// other: the rendezvous (an allgather), and for each rank a mailbox and a board.
//
// Owners: shared by its ranks (their rendezvous and their transports) by shared_ptr, because they
// end in any order and the mailbox of a closed rank must outlive the senders that still hold queues
// of it. Threads: any thread, for its own rank. Only HubRendezvous::exchange blocks.
//
// By name: join() looks a hub up in a process-wide table, the only global state of the transports,
// since ranks of "inproc:NAME" share nothing but the name. The table holds weak references under a
// mutex: a hub goes with its last rank. As soon as one rank has left, the job is ending and takes
// nobody more; the name then begins a new hub.
#ifndef PARALLAX_TRANSPORT_INPROC_HUB_H_
#define PARALLAX_TRANSPORT_INPROC_HUB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/arena.h"
#include "base/mutex.h"
#include "base/status.h"
#include "transport/boards.h"
#include "transport/inproc/hub_rendezvous.h"
#include "transport/inproc/mailbox.h"

namespace parallax {

class InprocHub {
 public:
  explicit InprocHub(uint32_t world);

  // Enters the rendezvous of the hub called `name` as `rank`. The caller leaves it by
  // rendezvous().leave. MISMATCH: the others said another world. INVALID: this rank is there
  // already.
  static Status join(const std::string& name, uint32_t rank, uint32_t world,
                     const std::string& host, std::shared_ptr<InprocHub>* hub);

  uint32_t world() const { return static_cast<uint32_t>(mailboxes_.size()); }
  HubRendezvous& rendezvous() { return rendezvous_; }
  Mailbox& mailbox(uint32_t rank) { return *mailboxes_[rank]; }
  // A rank's board, which it alone writes: its head, and behind that what is Boards'. Null: there
  // was no memory for the boards.
  std::byte* board(uint32_t rank) const { return boards_[rank]; }

  // Opens a rank's mailbox; losses that happened before are posted into it. Once per rank.
  Status open(uint32_t rank);
  // Closes it, and posts the loss to every open one.
  void close(uint32_t rank);

 private:
  enum class Phase { kNotYet, kOpen, kClosed };

  HubRendezvous rendezvous_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  Arena board_memory_;
  std::vector<std::byte*> boards_;
  Mutex mutex_;  // taken before a mailbox's own
  std::vector<Phase> phases_ PARALLAX_GUARDED_BY(mutex_);
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_INPROC_HUB_H_
