// SPDX-License-Identifier: Apache-2.0
// The first failure and its notice. See first_failure.h.
#include "engine/first_failure.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"

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

ErrorFacts facts_with(const ErrorFacts& facts, uint32_t rank, uint32_t peer) {
  ErrorFacts told = facts;
  told.rank = rank;
  told.peer = peer;
  return told;
}

ErrorFacts facts_in_job(const ErrorFacts& facts, const HostMap& part) {
  const auto in_job = [&](uint32_t rank) {
    return rank < part.host_of.size() ? job_rank(part, rank) : PARALLAX_NO_RANK;
  };
  return facts_with(facts, in_job(facts.rank), in_job(facts.peer));
}

ErrorFacts facts_in_part(const ErrorFacts& facts, const HostMap& part) {
  const auto in_part = [&](uint32_t job) {
    const auto found = std::find(part.job_rank_of.begin(), part.job_rank_of.end(), job);
    return found == part.job_rank_of.end()
               ? PARALLAX_NO_RANK
               : static_cast<uint32_t>(found - part.job_rank_of.begin());
  };
  return facts_with(facts, in_part(facts.rank), in_part(facts.peer));
}

}  // namespace

void FirstFailure::fail(const Status& failure, SectionKind notice, uint32_t culprit,
                        const std::string& variable) {
  ToldFailure told = {
      .sentence = failure.message(), .facts = failure.facts(), .group = parts_.part};
  told.variable = variable;
  const uint32_t id = told.facts.variable;
  if (id < parts_.registry.size()) told.variable = parts_.registry[id].name;
  fail(std::move(told), failure.code(), notice, culprit);
}

void FirstFailure::fail(ToldFailure told, parallax_status_t code, SectionKind notice,
                        uint32_t culprit) {
  follow();
  if (!job_goes_on()) return;
  constexpr size_t kSentenceMax = 512;
  const Columns& columns = parts_.columns;
  // It may be a peer's, and goes on to every rank's log and parallax_request_error.
  told.sentence = printable(told.sentence.substr(0, kSentenceMax));
  if (told.facts.rank == PARALLAX_NO_RANK) told.facts.rank = columns.rank();
  if (notice == SectionKind::kLost) told.facts.peer = culprit;
  const bool mine = culprit == columns.rank() && notice == SectionKind::kLost;
  take(told, code, mine ? " (this rank)" : "");
  if (parts_.whole != nullptr) {
    parts_.outbox.drop_all();
    told.facts = facts_in_job(told.facts, columns.map());
    return parts_.whole->fail(
        std::move(told), code, notice,
        culprit < columns.world() ? job_rank(columns.map(), culprit) : culprit);
  }
  PARALLAX_LOG(kInfo, kMember, rank_name(columns.map(), columns.rank()) + ": " + status_.message());
  tell(told.encode(), notice, culprit);
}

// What this group adds to a failure: its last step, whom that names by its own numbers, and the
// variable. What another group's variable and step are is nothing to this one.
void FirstFailure::take(ToldFailure cause, parallax_status_t code, const std::string& who) {
  const HostMap& map = parts_.columns.map();
  ErrorFacts here = cause.facts;
  here.variable = PARALLAX_NO_VARIABLE;
  if (cause.group == parts_.part) {
    here.variable = parts_.registry.id_named(cause.variable);
  } else {
    here.slice = PARALLAX_NO_SLICE;
    here.step = PARALLAX_NO_STEP;
    here.row = PARALLAX_NO_ROW;
  }
  here.step_committed = parts_.window.finished();
  note_peer(map, here.peer, here);
  status_ = Status(code, cause.sentence + who + "; last step committed here: " +
                             std::to_string(parts_.window.finished()) + remedy_of(code))
                .about(std::move(here));
  cause_ = std::move(cause);
}

void FirstFailure::follow() {
  if (parts_.whole == nullptr || !job_goes_on() || parts_.whole->status().ok()) return;
  ToldFailure told = parts_.whole->cause_;
  if (told.sentence.empty()) told.sentence = parts_.whole->status().message();  // see give_up()
  told.facts = facts_in_part(told.facts, parts_.columns.map());
  // Named by the host at least, where the rank is not of this part.
  told.facts.host = parts_.whole->status().facts().host;
  take(std::move(told), parts_.whole->status().code(), "");
  parts_.outbox.drop_all();
}

void FirstFailure::tell(const std::string& told, SectionKind notice, uint32_t culprit) {
  Outbox& outbox = parts_.outbox;
  // Frees what data sends borrow, and leaves send buffers and credits to the notice.
  outbox.drop_data();
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
  std::vector<uint32_t> others = parts_.membership.watched();
  // They see this rank's connection break if it ends now, and may see it before the culprit's.
  for (const uint32_t peer : wired_peers(parts_.columns.map(), parts_.columns.rank())) {
    if (std::find(others.begin(), others.end(), peer) == others.end()) others.push_back(peer);
  }
  for (const uint32_t other : others) {
    outbox.send_bytes(other, header, std::as_bytes(std::span(told)));
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

void FirstFailure::lack(uint32_t rank, const std::string& why) {
  const Columns& columns = parts_.columns;
  abort(limit(rank_name(columns.map(), columns.rank()) + " cannot connect to " +
              rank_name(columns.map(), rank) + ": " + why));
}

void FirstFailure::give_up() noexcept {
  if (status_.ok()) status_ = Status::out_of_memory();
  if (parts_.whole != nullptr) parts_.whole->give_up();
}

}  // namespace parallax
