// SPDX-License-Identifier: Apache-2.0
// BetweenHosts: the leg between hosts of a variable that the devices of each host sum: this rank's
// share of its host's sum, in pinned memory, summed with the same share of the other hosts by a
// schedule of the table, each host being one rank of it (share_schedule). The columns of a host
// (world/patterns.h) have a share each and work side by side.
//
//   stage() -> [devices put the host's share there] -> give() -> total() -> [devices take it] ->
//   done()
//
// What the pinned memory has is of the variable's dtype in both directions; what travels, and is
// summed, of its sum type, as of any variable. A mean is taken of the total, which is rounded once.
//
// Engine's owner only; nothing blocks. The pool has to outlive it.
#ifndef PARALLAX_COLLECTIVES_BETWEEN_HOSTS_H_
#define PARALLAX_COLLECTIVES_BETWEEN_HOSTS_H_

#include <array>
#include <cstdint>
#include <memory>

#include "collectives/dense_exchange.h"
#include "device/block_pool.h"

namespace parallax {

// As rank columns.rank(), which leads a column, has to run it: of `elements` of a share, numbered
// from 0.
Schedule share_schedule(const Columns& columns, uint64_t elements, uint32_t variable);

class BetweenHosts {
 public:
  struct Options {
    uint32_t variable = 0;
    uint64_t elements = 0;  // of the variable
    uint32_t dtype = PARALLAX_F32;
    SumType sum = SumType::kF32;
    double factor = 1;  // the total is multiplied by it
    int32_t priority = 0;
  };
  // Columns, outbox and pool outlive it.
  BetweenHosts(const Columns& columns, Outbox& outbox, PinnedPool& pinned, const Options& options);
  BetweenHosts(const BetweenHosts&) = delete;
  BetweenHosts& operator=(const BetweenHosts&) = delete;

  // Of its own, before it is asked for; 0: this rank has no share.
  static uint64_t pinned_bytes(const Columns& columns, const Options& options);
  // Null: this rank has no share, and everything here is there at once.
  DenseExchange* exchange() { return exchange_.get(); }
  const DenseExchange* exchange() const { return exchange_.get(); }

  // Whether the share of another step may be put where that of the last one was.
  bool idle() const { return !busy_ && sending_ == 0; }
  // Where this rank's share of the host's sum is to lie; null: it has none. LIMIT.
  Status stage(std::byte** share);
  // It lies there.
  void give(uint64_t step);
  // The total lies at *share. Moves on what has to be computed for that, a piece at a time.
  bool total(uint64_t step, std::byte** share);
  // Pieces are left: nobody tells when it is worth to ask.
  bool in_pieces() const { return in_pieces_; }
  // The devices have taken it.
  void done() { busy_ = false; }
  // Given, and not there: others are waited for.
  bool waits(uint64_t step) const;

  // The job is over. `quiet`: no device reads or writes the pinned memory any more.
  void release(bool quiet);

 private:
  bool converts() const { return options_.factor != 1 || dtype_of(options_.sum) != options_.dtype; }

  const Options options_;
  PinnedPool& pinned_;
  ShareRange share_;
  std::unique_ptr<DenseExchange> exchange_;
  MemoryBlock block_;  // the share, and behind it the total
  uint64_t total_at_ = 0;
  uint32_t sending_ = 0;  // sends that read it
  bool busy_ = false, in_pieces_ = false;
  std::array<uint64_t, 2> given_ = {};  // by step parity: the step
  uint64_t converted_ = 0;              // elements of the total
};

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_BETWEEN_HOSTS_H_
