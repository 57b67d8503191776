// SPDX-License-Identifier: Apache-2.0
// Fuzz: what ranks tell each other of the plan, apart from the messages that carry it: the registry
// that plans are made for, the votes with the counted rows, the decisions with the entries of a new
// plan, and the rates by group. What is taken says the same again once it was encoded.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "group/rates_ballot.h"
#include "group/vote.h"
#include "variable/variable.h"

namespace {

using Encoded = std::array<std::byte, parallax::kVoteBytesMax>;
constexpr uint32_t kWorld = 1 << 16;

// Twice decoded and encoded, it is the same bytes.
template <typename Value, typename Encode, typename Decode>
bool take(std::span<const std::byte> in, Value* value, Encode encode, Decode decode) {
  if (!decode(in, kWorld, value)) return false;
  Encoded first, second;
  const size_t bytes = encode(*value, first);
  Value again;
  if (bytes != in.size() || !decode(std::span(first).first(bytes), kWorld, &again)) std::abort();
  if (encode(again, second) != bytes ||
      !std::equal(first.begin(), first.begin() + static_cast<ptrdiff_t>(bytes), second.begin())) {
    std::abort();
  }
  return true;
}

// The bytes are two votes that meet on their way.
void merge(std::span<const std::byte> in) {
  static parallax::Vote one, other;
  const size_t half = in.size() / 2;
  if (!take(in.first(half), &one, parallax::encode_vote, parallax::decode_vote) ||
      !take(in.subspan(half), &other, parallax::encode_vote, parallax::decode_vote)) {
    return;
  }
  one.merge(other);
  Encoded out;
  (void)parallax::encode_vote(one, out);
}

// Of what was merged the parts can be read again.
void merge_part(std::span<const std::byte> in) {
  parallax::RatesBallot ballot, again;
  for (parallax::RatesBallot* each : {&ballot, &again}) {
    for (uint32_t group = 0; group < 4; ++group) each->reserve(group, group % 3);
  }
  if (!ballot.merge_part(in, kWorld)) return;
  ballot.for_each_part([&](std::span<const std::byte> part) {
    if (!again.merge_part(part, kWorld)) std::abort();
  });
}

void compare(std::span<const std::byte> in) {
  static const std::vector<parallax::Variable> mine = [] {
    std::vector<parallax::Variable> variables(2);
    variables[0].name = "a";
    variables[1].name = "b";
    return variables;
  }();
  static const std::vector<const parallax::Variable*> by_name = {&mine[0], &mine[1]};
  static const std::string same = parallax::encode_registry(by_name);
  const std::string theirs(reinterpret_cast<const char*>(in.data()), in.size());
  const auto found = parallax::compare_registries(theirs, by_name, "rank 0", "rank 1");
  if (found.sentence.empty() != (theirs == same)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const auto in = std::as_bytes(std::span(data, bytes)).subspan(1);
  static parallax::Vote vote;
  static parallax::Decision decision;
  switch (data[0] % 5) {
    case 0:
      (void)take(in, &vote, parallax::encode_vote, parallax::decode_vote);
      break;
    case 1:
      (void)take(in, &decision, parallax::encode_decision, parallax::decode_decision);
      break;
    case 2:
      merge(in);
      break;
    case 4:
      merge_part(in);
      break;
    default:
      compare(in);
  }
  return 0;
}
