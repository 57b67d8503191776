// SPDX-License-Identifier: Apache-2.0
// Reading messages by the library's own decoders. See message_text.h.
#include "transcripts/message_text.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "base/bits.h"
#include "collectives/tree_sync.h"
#include "engine/commit_report.h"
#include "group/vote.h"
#include "message/kinds.h"
#include "message/told_failure.h"

namespace parallax::transcripts {
namespace {

constexpr size_t kNumbersShown = 8;  // more are only counted

std::string text_of(uint64_t number) { return std::to_string(number); }

std::string text_of(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", number);
  return text;
}

std::string text_of_bits(uint32_t float_bits) { return text_of(std::bit_cast<float>(float_bits)); }

std::string span_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The bytes of a payload lie anywhere.
template <typename T>
std::vector<T> read(std::span<const std::byte> bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

std::string range_text(const char* what, const SectionHeader& header) {
  if (header.count == 0) return std::string(" no ") + what;
  return std::string(" ") + what + " " + text_of(header.first) + ".." +
         text_of(header.first + header.count - 1);
}

std::string few(std::span<const float> numbers) {
  const bool some = !numbers.empty() && numbers.size() <= kNumbersShown;
  return some ? ": " + numbers_text(numbers) : "";
}

// ": 1 1, 2 2"
std::string few_rows(std::span<const float> numbers, uint32_t count) {
  const size_t width = numbers.size() / count;
  std::string text;
  if (width == 0 || numbers.size() > kNumbersShown) return text;
  for (uint32_t i = 0; i < count; ++i) {
    text += (i == 0 ? ": " : ", ") + numbers_text({&numbers[i * width], width});
  }
  return text;
}

const char* tree_name(uint32_t kind) {
  switch (static_cast<TreeKind>(kind)) {
    case TreeKind::kCommit:
      return "commit";
    case TreeKind::kVote:
      return "vote";
    case TreeKind::kBarrier:
      return "barrier";
    case TreeKind::kClose:
      return "close";
    case TreeKind::kCloseConfirm:
      return "close_confirm";
  }
  return "of no kind";
}

std::string commit_report(std::span<const std::byte> payload) {
  CommitReport report;
  if (!report.decode(payload, UINT32_MAX)) return "cannot be read";
  char text[80];
  // Half of the digest tells registries apart as well.
  std::snprintf(text, sizeof text, "registry %08x, ",
                static_cast<unsigned>(report.digest & 0xffffffff));
  switch (report.verdict) {
    case CommitVerdict::kAgree:
      return text + std::string("agree");
    case CommitVerdict::kLookCloser:
      return text + std::string("registries differ, look closer");
    case CommitVerdict::kDiffer:
      return text + std::string("differ: ") + ToldFailure::decode(report.text).sentence;
  }
  return text;
}

std::string scalars_text(const StepScalars& scalars) {
  std::string text = "rate " + text_of_bits(scalars.learning_rate_bits);
  if (scalars.clip_norm_bits != 0) text += ", clip " + text_of_bits(scalars.clip_norm_bits);
  return text;
}

std::string who_said(const StepScalars& scalars) {
  return "rank " + text_of(uint64_t{scalars.rank}) + " says " + scalars_text(scalars);
}

}  // namespace

std::string numbers_text(std::span<const float> numbers) {
  std::string text;
  for (const float number : numbers) text += (text.empty() ? "" : " ") + text_of(number);
  return text;
}

const char* status_name(int status) {
  constexpr const char* kNames[] = {"OK",       "INVALID",   "UNSUPPORTED", "STATE",
                                    "TIMEOUT",  "PEER_LOST", "CANCELED",    "ABORTED",
                                    "MISMATCH", "LIMIT",     "IO",          "INTERNAL"};
  const bool known = status <= PARALLAX_OK && status >= PARALLAX_INTERNAL;
  return known ? kNames[-status] : "of no name";
}

std::string plan_text(const VariablePlan& plan) {
  return placement_name(plan.placement) + " " + method_name(plan.method);
}

std::string MessageText::name(uint32_t variable) const {
  return variable < variables_.size() ? variables_[variable].name : "no variable";
}

MessageText::Lines MessageText::lines(std::span<const std::byte> message) const {
  Lines lines;
  SectionReader reader(message);
  Section section;
  while (reader.next(&section)) {
    if (section.header.kind == SectionKind::kHeartbeat) {
      ++lines.heartbeats;
    } else {
      lines.sections.push_back(line(section));
    }
  }
  if (reader.malformed()) lines.sections.push_back("malformed");
  return lines;
}

std::string MessageText::line(const Section& section) const {
  const SectionHeader& header = section.header;
  const std::string kind = name_of(header.kind);
  switch (layer_of(header.kind)) {
    case Layer::kMembership:
      return kind + " " + membership(section);
    case Layer::kTree:
      return kind + " " + tree(section);
    case Layer::kBroadcast: {
      const std::string which =
          kind + " " + text_of(header.step) + " of rank " + text_of(uint64_t{header.tag});
      if (header.kind == SectionKind::kBroadcastData) return which + range_text("bytes", header);
      const auto bytes = read<uint64_t>(section.payload);
      return which + ": " + text_of(bytes.empty() ? 0 : bytes.front()) + " bytes";
    }
    case Layer::kStep:
      return kind + " step " + text_of(header.step);
    default:
      return kind + " " + data(section);
  }
}

std::string MessageText::membership(const Section& section) const {
  const SectionHeader& header = section.header;
  std::string text = "rank " + text_of(uint64_t{header.tag});
  if (header.kind == SectionKind::kAbort) {
    text += std::string(" ") + status_name(static_cast<int32_t>(header.first));
  }
  return text + ": " + ToldFailure::decode(span_text(section.payload)).sentence;
}

std::string MessageText::tree(const Section& section) const {
  const SectionHeader& header = section.header;
  const std::string round = std::string(tree_name(header.tag)) + " " + text_of(header.step);
  const bool up = header.kind == SectionKind::kTreeUp;
  switch (static_cast<TreeKind>(header.tag)) {
    case TreeKind::kCommit:
      return round + ": " + commit_report(section.payload);
    case TreeKind::kVote:
      if (header.part != 0) return round + ": rates and norms by group";
      return round + ": " + (up ? vote(section.payload) : decision(section.payload));
    case TreeKind::kClose: {
      const auto leaving = read<uint64_t>(section.payload);
      if (!up || leaving.size() != 2) return round;
      return round + ": rank " + text_of(leaving[1]) + " has ended " + text_of(leaving[0]) +
             " steps";
    }
    default:
      return round;
  }
}

std::string MessageText::vote(std::span<const std::byte> payload) const {
  Vote vote;
  if (!decode_vote(payload, UINT32_MAX, &vote)) return "cannot be read";
  std::string text = text_of(uint64_t{vote.contributors}) + " contributors, ";
  text += vote.disagree ? who_said(vote.scalars) + ", " + who_said(vote.other)
                        : scalars_text(vote.scalars);
  if (vote.found_inf > 0) text += ", found_inf on " + text_of(uint64_t{vote.found_inf});
  for (uint32_t kind = 0; kind < kReductionKinds; ++kind) {
    if ((vote.norm_kinds >> kind & 1) == 0) continue;
    text += ", squares " + text_of(vote.norms[kind].value());
  }
  for (uint32_t i = 0; i < vote.counts_size; ++i) {
    const RowCounts& counts = vote.counts[i];
    text += ", rows: " + text_of(counts.touched) + " touched, " + text_of(counts.union_rows) +
            " distinct, " + text_of(counts.pulled) + " pulled";
  }
  return text;
}

std::string MessageText::decision(std::span<const std::byte> payload) const {
  Decision decision;
  if (!decode_decision(payload, UINT32_MAX, &decision)) return "cannot be read";
  if (decision.outcome == Outcome::kMismatch) {
    return decision.difference.any != 0
               ? std::string("mismatch of rates")
               : "mismatch: " + who_said(decision.first) + ", " + who_said(decision.second);
  }
  std::string text = decision.outcome == Outcome::kCommit ? "commit" : "discard";
  text += ", " + text_of(uint64_t{decision.contributors}) + " contributors";
  if (decision.gradient_norm != 0) text += ", norm " + text_of(decision.gradient_norm);
  if (decision.clip_scale != 1) text += ", scale " + text_of(decision.clip_scale);
  for (uint32_t i = 0; i < decision.entry_count; ++i) {
    const PlanEntry& entry = decision.entries[i];
    text += ", " + name(entry.variable) + " becomes " + plan_text(entry.plan);
  }
  if (decision.settled) text += ", plan settled";
  return text;
}

std::string MessageText::data(const Section& section) const {
  const SectionHeader& header = section.header;
  std::string text;
  if (header.tag != kNoVariable) text = name(header.tag) + " ";
  const Layer layer = layer_of(header.kind);
  text += (layer == Layer::kRowAccess ? "call " : "step ") + text_of(header.step);
  // Elements of tables are floats here, and counts of updates are not.
  if (layer == Layer::kMigration && section.payload.size() == header.count * sizeof(uint64_t)) {
    text += " updates";
    for (const uint64_t each : read<uint64_t>(section.payload)) text += " " + text_of(each);
    return text;
  }
  if (layer == Layer::kMigration) text += " array " + text_of(uint64_t{header.part});
  switch (header.encoding) {
    case Encoding::kBytes:
      if (header.kind == SectionKind::kEarlyRows) return text + early(section);
      if (header.count > 0) text += range_text("bytes", header);
      break;
    case Encoding::kDense:
      text += range_text("elements", header) + few(read<float>(section.payload));
      break;
    case Encoding::kRows:
    case Encoding::kIds:
      text += rows(section);
      break;
    case Encoding::kValues:
      text += range_text("items", header) + few(read<float>(section.payload));
      break;
    case Encoding::kPlaced:
      text += range_text("elements placed", header);
      break;
    case Encoding::kLent:
      text += range_text("elements lent", header);
      break;
    case Encoding::kListedRows:
      text += listed_rows(section);
      break;
    case Encoding::kEncodingCount:
      break;
  }
  const bool contributed = (header.flags & kSectionContributed) != 0;
  if ((header.flags & kSectionLast) != 0) text += contributed ? " (last, contributed)" : " (last)";
  return text;
}

// Which items come next.
std::string MessageText::early(const Section& section) {
  std::string text = " items";
  for (size_t i = 0; i < section.payload.size() * 8; ++i) {
    if (bit_at(section.payload, i)) text += " " + text_of(section.header.first + i);
  }
  return text + " first";
}

// " rows 3 7: 1 1, 2 2"; of row keys alone " rows 3 7".
std::string MessageText::rows(const Section& section) const {
  const SectionHeader& header = section.header;
  const size_t keys_bytes = sizeof(uint32_t) * header.count;
  if (header.count == 0 || section.payload.size() < keys_bytes) return " no rows";
  std::string text = " rows";
  for (const uint32_t row_key : read<uint32_t>(section.payload.first(keys_bytes))) {
    const bool known = header.tag < variables_.size();
    text += " " + text_of(known ? variables_[header.tag].partition.row_of(row_key) : row_key);
  }
  return text + few_rows(read<float>(section.payload.subspan(keys_bytes)), header.count);
}

// " listed rows 0 2: 1 1, 2 2": by their places among those that were pulled.
std::string MessageText::listed_rows(const Section& section) const {
  const SectionHeader& header = section.header;
  const size_t width = variables_[header.tag].partition.row_elements();
  const size_t rows_bytes = header.count * width * sizeof(float);
  if (section.payload.size() < rows_bytes) return " listed rows";
  const auto bits = section.payload.first(section.payload.size() - rows_bytes);
  std::string text = " listed rows";
  for (size_t i = 0; i < (bits.empty() ? header.count : bits.size() * 8); ++i) {
    if (bits.empty() || bit_at(bits, i)) text += " " + text_of(header.first + i);
  }
  return text + few_rows(read<float>(section.payload.subspan(bits.size())), header.count);
}

}  // namespace parallax::transcripts
