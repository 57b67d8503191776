// SPDX-License-Identifier: Apache-2.0
// The phases of a commit. See commit_protocol.h.
#include "engine/commit_protocol.h"

#include <utility>

#include "message/told_failure.h"

namespace parallax {

namespace {

// FNV-1a, to tell equal registries from different ones; what differs is then looked up in full.
uint64_t digest_of(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  return hash;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

void CommitProtocol::start() {
  phase_ = Phase::kCompare;
  costs_ = costs_agreed_ = {};
  detail_.clear();
  trees_[TreeKind::kCommit].join();
}

void CommitProtocol::start(DeviceTerms devices, const CostTerms& costs, MakeId make_id) {
  devices_ = std::move(devices);
  devices_agreed_ = {};
  make_id_ = std::move(make_id);
  start();
  costs_ = costs;
}

CommitReport CommitProtocol::my_report() const {
  CommitReport report;
  report.digest = digest_of(encode_registry(registry_.newest_registered()));
  report.terms = terms_;
  report.devices = devices_;
  report.costs = costs_;
  if (phase_ == Phase::kDetailReport && !detail_.empty()) {
    report.verdict = CommitVerdict::kDiffer;
    report.text = detail_;
  }
  return report;
}

JobFailure CommitProtocol::advance() {
  JobFailure failure = advance_detail();
  if (!failure.status.ok() || !trees_[TreeKind::kCommit].take_complete()) return failure;
  CommitReport report = my_report();
  // Kept until now, since merging compares them with this rank's own.
  for (const CommitReport& child : reports_) report.merge(child, hosts_);
  reports_.clear();
  // All of this host's are compared, and of no other is one like them: nothing of it goes further,
  // since control has a bound whatever the world.
  if (hosts_.local_of[terms_.rank] == 0) report.devices.places.clear();
  add_id(&report);
  const bool root = trees_[TreeKind::kCommit].is_root();
  if (root && report.costs.wanted) report.costs.agree(given_);
  const std::string encoded = report.encode();
  if (!trees_.pass_on(TreeKind::kCommit, bytes_of(encoded))) return {};
  return on_answer(bytes_of(encoded));
}

// The root's, of an answer that agrees.
void CommitProtocol::add_id(CommitReport* report) {
  DeviceTerms& devices = report->devices;
  if (!trees_[TreeKind::kCommit].is_root() || report->verdict != CommitVerdict::kAgree) return;
  if (!devices.wanted || !devices.able || make_id_ == nullptr) return;
  if (devices.out_of_job != OutOfJob::kNo) return;
  devices.has_id = true;
  devices.id = devices_agreed_.id;
  if (devices_agreed_.has_id) return;
  const Status made = make_id_(&devices.id);
  if (made.ok()) return;
  devices.has_id = devices.able = false;
  devices.why = rank_name(hosts_, terms_.rank) + ": " + made.message();
}

JobFailure CommitProtocol::advance_detail() {
  if (phase_ == Phase::kDetailSize && broadcast_.finished()) {
    broadcast_.finish();
    constexpr uint64_t kRegistryBytesMax = 16 << 20;
    // The size is a peer's number: bounded before it is allocated.
    if (detail_bytes_ > kRegistryBytesMax) {
      return {.status = internal("commit: " + rank_name(hosts_, 0) + " announces a registry of " +
                                 std::to_string(detail_bytes_) + " bytes"),
              .culprit = 0};
    }
    detail_.resize(detail_bytes_);
    phase_ = Phase::kDetailBlob;
    broadcast_.start(0, reinterpret_cast<std::byte*>(detail_.data()), detail_bytes_);
  }
  if (phase_ == Phase::kDetailBlob && broadcast_.finished()) {
    broadcast_.finish();
    RegistryDifference difference =
        compare_registries(detail_, registry_.newest_registered(), rank_name(hosts_, 0),
                           rank_name(hosts_, terms_.rank));
    ToldFailure told = {.sentence = std::move(difference.sentence),
                        .facts = {},
                        .variable = std::move(difference.variable)};
    told.facts.rank = terms_.rank;
    told.facts.peer = 0;
    told.facts.field = std::move(difference.field);
    detail_ = told.sentence.empty() ? "" : told.encode();
    phase_ = Phase::kDetailReport;
    trees_[TreeKind::kCommit].join();
  }
  return {};
}

// A variable by its name: where ranks disagree, they may not number it alike.
JobFailure CommitProtocol::differing(const std::string& told) const {
  ToldFailure failure = ToldFailure::decode(told);
  return {.status = Status(PARALLAX_MISMATCH, "commit: ranks disagree: " + failure.sentence)
                        .about(std::move(failure.facts))
                        .about_variable(registry_.id_named(failure.variable)),
          .culprit = terms_.rank,
          .variable = std::move(failure.variable)};
}

bool CommitProtocol::merge_report(std::span<const std::byte> payload) {
  return reports_.emplace_back().decode(payload, world());
}

JobFailure CommitProtocol::on_answer(std::span<const std::byte> payload) {
  CommitReport verdict;
  if (!verdict.decode(payload, world())) {
    return {.status = internal("commit: the answer of " + rank_name(hosts_, 0) + " cannot be read"),
            .culprit = 0};
  }
  switch (verdict.verdict) {
    case CommitVerdict::kAgree:
      if (phase_ == Phase::kDetailReport) {
        return {.status = internal("commit: digests differ but registries do not"), .culprit = 0};
      }
      phase_ = Phase::kAgreed;
      devices_agreed_ = verdict.devices;
      costs_agreed_ = verdict.costs;
      return {};
    case CommitVerdict::kDiffer:
      return differing(verdict.text);
    case CommitVerdict::kLookCloser:
      if (terms_.rank == 0) detail_ = encode_registry(registry_.newest_registered());
      // Members, since a broadcast borrows its buffer.
      detail_bytes_ = detail_.size();
      phase_ = Phase::kDetailSize;
      broadcast_.start(0, reinterpret_cast<std::byte*>(&detail_bytes_), sizeof detail_bytes_);
      return {};
  }
  return {};
}

}  // namespace parallax
