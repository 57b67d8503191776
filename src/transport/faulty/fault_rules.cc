// SPDX-License-Identifier: Apache-2.0
// The text form of fault rules. See the header.
#include "transport/faulty/fault_rules.h"

#include <charconv>
#include <string>

namespace parallax {

namespace {

constexpr size_t kTextBytesMax = 64 << 10;
constexpr size_t kRulesMax = 256;
constexpr uint64_t kMillisecondsMax = 1000ull * 3600 * 24 * 365;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The text up to the separator, which is taken off with it.
std::string_view next_piece(std::string_view* text, char separator) {
  const size_t end = text->find(separator);
  const std::string_view piece = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return trimmed(piece);
}

Status wrong(std::string_view rule, const std::string& what) {
  constexpr size_t kQuotedMax = 80;
  return invalid("faults: rule '" + std::string(rule.substr(0, kQuotedMax)) + "': " + what);
}

bool parse_number(std::string_view text, uint64_t most, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value <= most;
}

Status parse_way(std::string_view rule, std::string_view value, Way* way) {
  for (const auto& [name, named] :
       {std::pair{"both", Way::kBoth}, std::pair{"out", Way::kOut}, std::pair{"in", Way::kIn}}) {
    if (value == name) {
      *way = named;
      return {};
    }
  }
  return wrong(rule, "way is '" + std::string(value) + "'; it must be in, out or both");
}

struct Key {
  std::string_view name;
  uint64_t most;
  void (*set)(FaultRule& rule, uint64_t value);
};

constexpr Key kKeys[] = {
    {"peer", kAnyPeer - 1,
     [](FaultRule& rule, uint64_t value) { rule.peer = static_cast<uint32_t>(value); }},
    {"variable", PARALLAX_VARIABLES_MAX - 1,
     [](FaultRule& rule, uint64_t value) { rule.variable = static_cast<uint32_t>(value); }},
    {"at", UINT64_MAX, [](FaultRule& rule, uint64_t value) { rule.at = value; }},
    {"percent", 100,
     [](FaultRule& rule, uint64_t value) { rule.percent = static_cast<uint32_t>(value); }},
    {"ms", kMillisecondsMax,
     [](FaultRule& rule, uint64_t value) {
       rule.amount_ns = static_cast<int64_t>(value) * kNanosecondsPerMillisecond;
     }},
    {"after_ms", kMillisecondsMax,
     [](FaultRule& rule, uint64_t value) {
       rule.after_ns = static_cast<int64_t>(value) * kNanosecondsPerMillisecond;
     }},
    {"for_ms", kMillisecondsMax,
     [](FaultRule& rule, uint64_t value) {
       rule.for_ns = static_cast<int64_t>(value) * kNanosecondsPerMillisecond;
     }},
};

struct Kind {
  std::string_view name;
  InjectedFault fault;
  std::string_view keys;  // those that it takes, each followed by a blank
};

constexpr Kind kKinds[] = {
    {"delay", InjectedFault::kDelay, "peer variable at percent ms after_ms for_ms "},
    {"silence", InjectedFault::kSilence, "peer variable way at after_ms for_ms "},
    {"stall", InjectedFault::kStall, "peer variable at after_ms for_ms "},
    {"close", InjectedFault::kClose, "peer variable at after_ms "},
};

Status parse_part(std::string_view text, const Kind& kind, std::string_view part, FaultRule* rule) {
  const size_t equals = part.find('=');
  const std::string_view name = trimmed(part.substr(0, equals));
  const std::string_view value =
      equals == std::string_view::npos ? "" : trimmed(part.substr(equals + 1));
  const bool taken =
      !name.empty() &&
      (" " + std::string(kind.keys)).find(" " + std::string(name) + " ") != std::string::npos;
  if (!taken) {
    return wrong(text, "'" + std::string(part) + "' is not a part of " + std::string(kind.name) +
                           "; it takes " + std::string(trimmed(kind.keys)) + ", as key=value");
  }
  if (name == "way") return parse_way(text, value, &rule->way);
  for (const Key& key : kKeys) {
    if (key.name != name) continue;
    uint64_t number = 0;
    if (!parse_number(value, key.most, &number)) {
      return wrong(text, std::string(name) + " is '" + std::string(value) +
                             "'; it must be a whole number up to " + std::to_string(key.most));
    }
    key.set(*rule, number);
  }
  return {};
}

// A rule about nobody would be taken for a fault that the job got over.
Status check_peer(std::string_view text, uint32_t world, const FaultRule& rule) {
  if (rule.peer == kAnyPeer || rule.peer < world) return {};
  return wrong(text, "peer is " + std::to_string(rule.peer) + ", but the world is " +
                         std::to_string(world) +
                         (world == 1 ? ": rank 0 is alone, and has no peer"
                                     : ": its ranks are 0 to " + std::to_string(world - 1)));
}

Status parse_rule(std::string_view text, uint32_t world, FaultRule* rule) {
  std::string_view rest = text;
  const std::string_view name = next_piece(&rest, ':');
  for (const Kind& kind : kKinds) {
    if (kind.name != name) continue;
    rule->fault = kind.fault;
    while (!rest.empty()) {
      PARALLAX_RETURN_IF_ERROR(parse_part(text, kind, next_piece(&rest, ','), rule));
    }
    if (rule->fault == InjectedFault::kDelay && rule->amount_ns == 0) {
      return wrong(text, "a delay needs ms=N, the longest");
    }
    if (rule->fault == InjectedFault::kStall && rule->for_ns == kNever) {
      return wrong(text, "a stall needs for_ms=N");
    }
    return check_peer(text, world, *rule);
  }
  return wrong(text, "it must open with delay:, silence:, stall: or close:, or be seed=N");
}

}  // namespace

Status parse_faults(std::string_view text, uint32_t world, FaultyOptions* options) {
  if (text.size() > kTextBytesMax) return invalid("faults: more than 64 KiB of rules");
  FaultyOptions parsed;
  while (!text.empty()) {
    const std::string_view piece = next_piece(&text, ';');
    if (piece.empty()) continue;
    if (piece.starts_with("seed=")) {
      if (!parse_number(piece.substr(5), UINT64_MAX, &parsed.seed)) {
        return wrong(piece, "seed must be a whole number");
      }
      continue;
    }
    if (parsed.rules.size() == kRulesMax) {
      return invalid("faults: more than " + std::to_string(kRulesMax) + " rules");
    }
    PARALLAX_RETURN_IF_ERROR(parse_rule(piece, world, &parsed.rules.emplace_back()));
  }
  *options = std::move(parsed);
  return {};
}

}  // namespace parallax
