// SPDX-License-Identifier: Apache-2.0
// What raw ways share: the two timings over messages, and what fills them.
#include "tool/bench/wire_way.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace parallax::tool::bench {

namespace {

using WireClock = std::chrono::steady_clock;

double us_each(WireClock::time_point since, uint32_t count) {
  const auto passed = std::chrono::duration<double, std::micro>(WireClock::now() - since);
  return passed.count() / count;
}

}  // namespace

Status MessageWay::ping_pong(const Transfer& transfer, double* us) {
  const auto start = WireClock::now();
  for (uint32_t i = 0; i < transfer.count; ++i) {
    if (transfer.leads) PARALLAX_RETURN_IF_ERROR(send(transfer.out));
    PARALLAX_RETURN_IF_ERROR(receive(transfer.in));
    if (!transfer.leads) PARALLAX_RETURN_IF_ERROR(send(transfer.out));
  }
  *us = us_each(start, 2 * transfer.count);
  return flush();
}

Status MessageWay::stream(const Transfer& transfer, double* us) {
  std::byte done{};  // its arrival says that all before it arrived
  const auto start = WireClock::now();
  if (transfer.leads) {
    for (uint32_t i = 0; i < transfer.count; ++i) PARALLAX_RETURN_IF_ERROR(send(transfer.out));
    PARALLAX_RETURN_IF_ERROR(receive({&done, 1}));
    *us = us_each(start, transfer.count);
  } else {
    for (uint32_t i = 0; i < transfer.count; ++i) PARALLAX_RETURN_IF_ERROR(receive(transfer.in));
    PARALLAX_RETURN_IF_ERROR(send({&done, 1}));
  }
  return flush();
}

Status exchange_cards(Group& group, const std::string& own, std::string* other) {
  std::vector<char> mine(kWireCardBytes), all(2 * kWireCardBytes);
  const bool fits = own.size() < kWireCardBytes - 1;
  if (fits) std::memcpy(mine.data() + 1, own.data(), own.size());
  mine[0] = 1;
  group.allgather(mine.data(), all.data(), kWireCardBytes);
  const char* theirs = all.data() + (1 - group.rank()) * kWireCardBytes;
  other->assign(theirs + 1, strnlen(theirs + 1, kWireCardBytes - 1));
  if (!fits) return internal("a rank's card has " + std::to_string(own.size()) + " bytes");
  return {};
}

// Differs between neighbours, between messages, and between pieces of any power of two.
std::byte wire_pattern(uint32_t seed, size_t at) {
  const uint64_t mixed = (uint64_t{seed} + 1) * 0x9e3779b97f4a7c15 + at * 0xd1342543de82ef95;
  return static_cast<std::byte>(mixed >> 56);
}

void fill_pattern(uint32_t seed, std::span<std::byte> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = wire_pattern(seed, i);
}

uint64_t count_wrong(uint32_t seed, std::span<const std::byte> in) {
  uint64_t wrong = 0;
  for (size_t i = 0; i < in.size(); ++i) wrong += in[i] != wire_pattern(seed, i) ? 1 : 0;
  return wrong;
}

}  // namespace parallax::tool::bench
