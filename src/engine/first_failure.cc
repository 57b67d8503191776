// SPDX-License-Identifier: Apache-2.0
// The first failure and its notice. See first_failure.h.
#include "engine/first_failure.h"

#include <algorithm>
#include <span>

#include "base/log.h"
#include "base/text.h"
#include "message/told_failure.h"

namespace parallax {

namespace {

// What to do about a job that ended so.
const char* remedy_of(parallax_status_t code) {
  if (code == PARALLAX_PEER_LOST) {
    return ". Close the job; open a new one with the ranks that are left";
  }
  if (code == PARALLAX_MISMATCH) return ". Close the job; open it alike on every rank";
  return ". Close the job";
}

}  // namespace

void FirstFailure::fail(const Status& failure, SectionKind notice, uint32_t culprit) {
  if (!job_goes_on()) return;
  constexpr size_t kSentenceMax = 512;
  // It may be a peer's, and goes on to every rank's log and parallax_request_error.
  ToldFailure told = {printable(failure.message().substr(0, kSentenceMax)), failure.facts()};
  const Columns& columns = parts_.columns;
  const bool mine = culprit == columns.rank() && notice == SectionKind::kLost;
  if (told.facts.rank == PARALLAX_NO_RANK) told.facts.rank = columns.rank();
  if (notice == SectionKind::kLost) told.facts.peer = culprit;
  if (told.facts.peer < columns.world()) note_peer(columns.map(), told.facts.peer, told.facts);
  cause_ = Status(failure.code(), told.sentence).about(told.facts);
  ErrorFacts here = told.facts;
  here.step_committed = parts_.window.finished();
  status_ = Status(failure.code(),
                   told.sentence + (mine ? " (this rank)" : "") + "; last step committed here: " +
                       std::to_string(parts_.window.finished()) + remedy_of(failure.code()))
                .about(std::move(here));
  PARALLAX_LOG(kInfo, kMember, rank_name(columns.map(), columns.rank()) + ": " + status_.message());
  tell(told.encode(), notice, culprit);
}

void FirstFailure::tell(const std::string& told, SectionKind notice, uint32_t culprit) {
  Outbox& outbox = parts_.outbox;
  // Frees what data sends borrow, and leaves send buffers and credits to the notice.
  outbox.drop_data();
  if (!parts_.tells_others) return;
  if (notice == SectionKind::kLost && culprit != parts_.columns.rank() &&
      culprit < parts_.columns.world()) {
    // A lost rank takes nothing any more, and requests wait until all that is queued has left.
    outbox.drop(culprit);
    parts_.transport.forget(culprit);
  }
  SectionHeader header;
  header.kind = notice;
  header.tag = culprit;
  header.first = static_cast<uint32_t>(status_.code());
  for (const uint32_t watched : parts_.membership.watched()) {
    outbox.send_bytes(watched, header, std::as_bytes(std::span(told)));
  }
  unsaid_ = true;
  words_end_ns_ = parts_.clock.now_ns() + std::min(kLastWordsNs, parts_.membership.lease_ns() / 4);
}

void FirstFailure::lose(uint32_t rank, const std::string& why) {
  if (!status_.ok()) return;
  const Columns& columns = parts_.columns;
  fail(peer_lost(rank_name(columns.map(), rank) + " is lost: " + why + "; seen by " +
                 rank_name(columns.map(), columns.rank())),
       SectionKind::kLost, rank);
}

void FirstFailure::give_up() noexcept {
  if (status_.ok()) status_ = cause_ = Status::out_of_memory();
}

}  // namespace parallax
