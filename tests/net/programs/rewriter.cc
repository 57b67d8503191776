// SPDX-License-Identifier: Apache-2.0
// One rank's program: allreduces in place, of every type of number that is combined as it is and
// every operation, in a buffer that the ranks of its host write; of lengths about pages and blocks,
// from places that are no multiple of a page, nor of a number. Looks at every number of every
// total, and at every byte of the buffer beside them. Linked with libparallax.so alone.
//
// Lines: "right N" collectives, and "wrote N", bytes of others where they lay; or "wrong ...".
// Exit statuses: 0, 1 for wrong bytes, 2 for wrong usage, 3 for a call that failed.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "parallax/parallax.hpp"
#include "rank_program.h"

namespace {

using parallax::sized;
using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_rewriter [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n";

constexpr size_t kPageBytes = 4096;
constexpr size_t kBytesMax = 600'000;                // of one call
constexpr size_t kBesideBytes = 3 * kPageBytes + 8;  // before it and behind, at least
constexpr unsigned char kBeside = 0x5a;

// Small whole numbers: exact in any order, products of eight too.
template <typename T>
T given(uint32_t rank, uint64_t i) {
  return static_cast<T>(1 + (i * 7 + rank * 3 + i / 64) % 3);
}

template <typename T>
T combined(uint32_t op, uint32_t world, uint64_t i) {
  T all = given<T>(0, i);
  for (uint32_t rank = 1; rank < world; ++rank) {
    const T next = given<T>(rank, i);
    const auto a = static_cast<int64_t>(all), b = static_cast<int64_t>(next);
    if (op == PARALLAX_OP_MIN) all = std::min(all, next);
    if (op == PARALLAX_OP_MAX) all = std::max(all, next);
    if (op == PARALLAX_OP_PRODUCT) all *= next;
    if (op == PARALLAX_OP_AND) all = static_cast<T>(a & b);
    if (op == PARALLAX_OP_OR) all = static_cast<T>(a | b);
    if (op == PARALLAX_OP_XOR) all = static_cast<T>(a ^ b);
    if (op == PARALLAX_OP_SUM || op == PARALLAX_OP_MEAN) all += next;
  }
  if (op != PARALLAX_OP_MEAN) return all;
  return all * static_cast<T>(1.0 / world);
}

class Sweep {
 public:
  Sweep(parallax::Job& job, uint32_t rank, uint32_t world)
      : job_(job),
        rank_(rank),
        world_(world),
        buffer_(job.buffer(kBytesMax + 2 * kBesideBytes)),
        bytes_(static_cast<unsigned char*>(buffer_.data()), kBytesMax + 2 * kBesideBytes) {}

  // True if all is right.
  template <typename T>
  bool run(uint32_t dtype, uint32_t ops) {
    // Numbers of a rank's share: about pages, blocks of 64 KiB, and what is lent at all.
    constexpr std::array<size_t, 8> kShareBytes = {8,     kPageBytes, 2 * kPageBytes, 8192 + 16,
                                                   20000, 65536,      65536 + 8,      70000};
    constexpr std::array<size_t, 4> kShifts = {0, 8, 3, kPageBytes - 24};
    for (uint32_t op = 0; op < ops; ++op) {
      if (op == PARALLAX_OP_MEAN && dtype >= PARALLAX_I32) continue;
      for (size_t i = 0; i < kShareBytes.size(); ++i) {
        const size_t count = kShareBytes[i] * world_ / sizeof(T) + (i + op) % 3;
        if (!one<T>(dtype, op, std::min(count, kBytesMax / sizeof(T)), kShifts[(i + op) % 4])) {
          return false;
        }
      }
    }
    return true;
  }

  unsigned long long right() const { return right_; }

 private:
  template <typename T>
  bool one(uint32_t dtype, uint32_t op, size_t count, size_t shift) {
    std::fill(bytes_.begin(), bytes_.end(), kBeside);
    unsigned char* const first = bytes_.data() + kPageBytes + shift;
    unsigned char* const end = first + count * sizeof(T);
    for (size_t i = 0; i < count; ++i) {
      const T number = given<T>(rank_, i);
      std::memcpy(first + i * sizeof(T), &number, sizeof number);
    }
    auto call = sized<parallax_collective_t>();
    call.kind = PARALLAX_ALLREDUCE;
    call.dtype = dtype;
    call.op = op;
    call.send = first;
    call.recv = first;
    call.count = count;
    job_.collective(call).wait();
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) {
      const T want = combined<T>(op, world_, i);
      wrong += std::memcmp(first + i * sizeof(T), &want, sizeof want) != 0 ? 1 : 0;
    }
    const auto is_other = [](unsigned char byte) { return byte != kBeside; };
    const auto beside = std::count_if(bytes_.data(), first, is_other) +
                        std::count_if(end, bytes_.data() + bytes_.size(), is_other);
    if (wrong == 0 && beside == 0) {
      ++right_;
      return true;
    }
    say("wrong: %zu numbers of dtype %u, op %u, %zu of them from %zu on, and %lld bytes beside",
        wrong, dtype, op, count, shift, static_cast<long long>(beside));
    return false;
  }

  parallax::Job& job_;
  const uint32_t rank_, world_;
  parallax::Buffer buffer_;
  std::span<unsigned char> bytes_;
  unsigned long long right_ = 0;
};

int run(const program::Settings& settings) {
  program::Rank rank(settings);
  parallax::Job job(rank.options());
  job.commit();
  {
    Sweep sweep(job, rank.number, rank.world());
    const uint32_t real = PARALLAX_OP_PRODUCT + 1, all = PARALLAX_OP_XOR + 1;
    if (!sweep.run<float>(PARALLAX_F32, real) || !sweep.run<double>(PARALLAX_F64, real) ||
        !sweep.run<int32_t>(PARALLAX_I32, all) || !sweep.run<int64_t>(PARALLAX_I64, all)) {
      return 1;
    }
    const auto stats = nlohmann::json::parse(job.report(PARALLAX_REPORT_STATS));
    say("right %llu", sweep.right());
    say("wrote %llu", stats["local"]["written_bytes"].get<unsigned long long>());
  }
  job.close();
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, run); }
