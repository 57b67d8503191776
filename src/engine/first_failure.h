// SPDX-License-Identifier: Apache-2.0
// FirstFailure: how a job ends before its time. The first failure counts: it becomes the sentence
// of every request and every later call, and its notice goes to all whom this rank watches or is
// connected to, who do the same. Until the notice has left, requests stay pending (speaking), so
// that a program that ends with its first error is not taken for the culprit.
//
// One for each group of a job. A part's hands a failure to the whole job's, in the job's numbers,
// which tells everybody; and takes over what has failed the whole (follow), in its own. So all
// groups of a rank end for one reason, and none completes a request before the others were told.
// Engine's owner only; nothing blocks.
#ifndef PARALLAX_ENGINE_FIRST_FAILURE_H_
#define PARALLAX_ENGINE_FIRST_FAILURE_H_

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "group/step_window.h"
#include "membership/membership.h"
#include "message/outbox.h"
#include "message/told_failure.h"
#include "message/wire.h"
#include "transport/transport.h"
#include "variable/registry.h"
#include "world/patterns.h"

namespace parallax {

class FirstFailure {
 public:
  // How long requests of a failed job stay pending so that its notice gets out: longer than a busy
  // peer takes to return a credit; at most a quarter of a lease, since a stopped peer returns none.
  static constexpr int64_t kLastWordsNs = 200 * kNanosecondsPerMillisecond;

  struct Parts {
    const Columns& columns;
    const Clock& clock;
    const StepWindow& window;
    const Membership& membership;
    Transport& transport;
    Outbox& outbox;
    const Registry& registry;
    // Of a part.
    FirstFailure* whole = nullptr;
    uint32_t part = 0;  // its number
  };

  // All parts outlive this.
  explicit FirstFailure(const Parts& parts) : parts_(parts) {}

  const Status& status() const { return status_; }
  // The job goes on: it has not failed, and was not closed.
  bool job_goes_on() const { return status_.ok() && !closed_; }

  // Of a part: what has failed the whole job fails it too.
  void follow();

  // Ends the job, here and everywhere. The notice is kLost or kAbort; the culprit is any rank that
  // this one or a peer names. After the first, and once the job is closed, nothing happens.
  // A variable that it names may be of other ranks alone: then by its name.
  void fail(const Status& failure, SectionKind notice, uint32_t culprit,
            const std::string& variable = "");
  // The same, as another rank or a part told it.
  void fail(ToldFailure told, parallax_status_t code, SectionKind notice, uint32_t culprit);
  void abort(const Status& failure) { fail(failure, SectionKind::kAbort, parts_.columns.rank()); }
  void lose(uint32_t rank, const std::string& why);
  // LIMIT on all ranks: this one lacks what it takes to connect to that one.
  void lack(uint32_t rank, const std::string& why);
  // There is no memory, not even for a sentence and its notice: allocates nothing.
  void give_up() noexcept;
  // In good order, or by force: nothing fails it any more.
  void close() { closed_ = true; }

  // The notice is still on its way.
  bool speaking() const {
    if (parts_.whole != nullptr) return parts_.whole->speaking();
    return unsaid_ && !parts_.outbox.idle() && parts_.clock.now_ns() < words_end_ns_;
  }
  // It is not, and requests have been told.
  void said() { unsaid_ = false; }
  // When speaking() ends at the latest, of a job that was closed meanwhile too; kNever: nothing is
  // due.
  int64_t next_deadline_ns() const { return unsaid_ ? words_end_ns_ : kNever; }

 private:
  void take(ToldFailure cause, parallax_status_t code, const std::string& who);
  void tell(const std::string& told, SectionKind notice, uint32_t culprit);

  const Parts parts_;
  Status status_;
  ToldFailure cause_;  // before this group added what concerns it alone
  bool closed_ = false;
  bool unsaid_ = false;       // the notice is on its way, and requests wait for it
  int64_t words_end_ns_ = 0;  // until then at most
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_FIRST_FAILURE_H_
