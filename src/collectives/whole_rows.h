// SPDX-License-Identifier: Apache-2.0
// WholeRows: an exchange of rows that go all at once, by one of the methods of rows. Its memory may
// be of an arena of its own, or of one that has more: of who runs it once for each chunk of the
// rows (chunked_rows.h).
#ifndef PARALLAX_COLLECTIVES_WHOLE_ROWS_H_
#define PARALLAX_COLLECTIVES_WHOLE_ROWS_H_

#include <cstddef>
#include <memory>

#include "base/arena.h"
#include "base/compute.h"
#include "base/status.h"
#include "collectives/exchange.h"
#include "message/outbox.h"
#include "variable/partition.h"
#include "world/patterns.h"

namespace parallax {

class WholeRows : public Exchange {
 public:
  // Who runs it, and asks state() behind each section.
  class Runner {
   public:
    // A step may have gone on by something else: a turn, or this rank's own slice.
    virtual void on_moved() = 0;

   protected:
    ~Runner() = default;
  };
  Status reserve() final;
  size_t needed_bytes() final;
  const Arena& arena() const final { return arena_; }

  // Instead of reserve(), in an arena of the caller's, and the scratch then (ExchangeOptions).
  virtual void lay_out(Arena& arena) = 0;
  virtual Status reserve_scratch() { return {}; }
  // Outlives the exchange. Not told of steps that a section ends anyway.
  void set_runner(Runner* runner) { runner_ = runner; }

 protected:
  void tell_runner() const {
    if (runner_ != nullptr) runner_->on_moved();
  }

 private:
  Arena arena_;  // empty where another's is used
  Runner* runner_ = nullptr;
};

// By options.method: a RowExchange, or a MadeDense. All references outlive the exchange.
std::unique_ptr<WholeRows> make_whole_rows(const Columns& columns, const Partition& partition,
                                           Outbox& outbox, Compute& compute,
                                           const ExchangeOptions& options);

}  // namespace parallax

#endif  // PARALLAX_COLLECTIVES_WHOLE_ROWS_H_
