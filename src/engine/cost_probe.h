// SPDX-License-Identifier: Apache-2.0
// CostProbe: measures what messages, bytes, sums and copies take on this rank's links and machine,
// in a commit, before the ranks tell one another (CostTerms). On a clock: under the simulator its
// virtual one.
//
// The ranks of a host measure in pairs, all pairs at once, as they will reduce at once: the first
// and the second, the third and the fourth. Between hosts the first ranks of the first and second
// host, and so on: what one of them gets is the host's. The lower of a pair asks, the other
// answers, in whatever phase it is, so that nobody has to know who measures. Of a link: round trips
// of nothing, of which one that was held up little counts; bursts of messages, for what each costs
// its ends; some bytes, more until they take a while. Then memory: sums of each type, and a copy,
// in the cache; and rows, that are added or put in order (RowProbe). Who is held up for a moment
// would be taken for slow: of bursts and bytes the least of kTriesMin counts, and of bytes it has
// to come nearly twice, of kTriesMax at most. All of it takes milliseconds, and no more than
// kBudgetNs of a link from the first answer on.
//
// Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_COST_PROBE_H_
#define PARALLAX_ENGINE_COST_PROBE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/compute.h"
#include "engine/cost_terms.h"
#include "engine/row_probe.h"
#include "message/outbox.h"
#include "message/wire.h"
#include "world/patterns.h"

namespace parallax {

class CostProbe {
 public:
  struct Parts {
    const Columns& columns;
    Outbox& outbox;
    Compute& compute;
    const Clock& clock;
  };

  // All parts outlive this.
  explicit CostProbe(const Parts& parts) : parts_(parts) {}
  CostProbe(const CostProbe&) = delete;
  CostProbe& operator=(const CostProbe&) = delete;

  void begin();
  bool begun() const { return phase_ != Phase::kIdle; }
  bool finished() const { return phase_ == Phase::kFinished; }
  // Once finished.
  const CostTerms& terms() const { return terms_; }
  // Whose answer it waits for; kNoRank: nobody's.
  uint32_t waits_for() const { return asked_ ? links_[link_].peer : kNoRank; }

  // A run of the engine begins, in which one piece of memory is measured.
  void start_run() { measured_ = false; }
  // The next piece is due at once.
  bool computing() const { return phase_ == Phase::kMemory; }
  // Moves on what can be moved.
  void advance();
  // Of Layer::kProbe, in every phase. False: no answer that this rank waits for.
  [[nodiscard]] bool on_section(uint32_t from, const Section& section);

 private:
  static constexpr uint32_t kRoundTrips = 12;
  static constexpr uint32_t kBurst = 16;
  static constexpr uint32_t kTriesMin = 3, kTriesMax = 12;
  static constexpr uint64_t kBytesMin = 256 << 10, kBytesMax = 4 << 20;
  static constexpr int64_t kLongEnoughNs = kNanosecondsPerMillisecond;
  static constexpr int64_t kBudgetNs = 80 * kNanosecondsPerMillisecond;  // of a link
  static constexpr size_t kBufferBytes = 128 << 10;
  static constexpr uint64_t kPasses = 4;  // over the buffers or rows, for a rate

  enum class Phase : uint8_t { kIdle, kRoundTrips, kBurst, kBytes, kMemory, kFinished };
  struct Link {
    uint32_t peer;
    size_t row;  // the first of its three constants
  };

  void find_links();
  void ask(bool wants_answer);
  void ask_bytes();
  void answered();
  void begin_tries(Phase phase);
  bool try_again(int64_t took_ns);
  void next_link();
  void measure_memory();
  bool out_of_time() const {
    return first_answer_ns_ != 0 && now_ns() > first_answer_ns_ + kBudgetNs;
  }
  int64_t now_ns() const { return parts_.clock.now_ns(); }
  uint64_t piece_bytes() const;
  void run_piece();

  const Parts parts_;
  Phase phase_ = Phase::kIdle;
  std::vector<Link> links_;
  size_t link_ = 0;
  bool asked_ = false;  // an answer is to come
  uint32_t number_ = 0;
  int64_t asked_ns_ = 0, first_answer_ns_ = 0;
  std::vector<int64_t> trips_ns_;
  int64_t trip_ns_ = 0;
  uint32_t tries_ = 0;  // of what is being measured, and the least that one took
  int64_t least_ns_ = 0;
  bool confirmed_ = false;  // another took about as long
  uint32_t in_burst_ = 0;
  uint64_t bytes_ = 0;
  std::vector<std::byte> buffer_, other_buffer_;
  std::optional<RowProbe> rows_;
  ComputeJob job_;
  uint32_t piece_ = 0;  // of memory
  bool piece_begun_ = false, piece_done_ = false, measured_ = false;
  int64_t piece_ns_ = 0;
  CostTerms terms_;
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_COST_PROBE_H_
