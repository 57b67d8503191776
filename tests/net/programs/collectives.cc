// SPDX-License-Identifier: Apache-2.0
// One rank's program: collectives on its own buffers, without a variable, some under way at a time
// with tags that each rank takes in its own order; checks every number. Linked with libparallax.so
// alone.
//
// Lines: "phase round step N" as it begins one, "right N" collectives in the end, or "refused
// SENTENCE". Exit statuses: 0, 1 for wrong numbers, 2 for wrong usage, 3 for a call that failed.
#include <array>
#include <string>
#include <vector>

#include "parallax/parallax.hpp"
#include "rank_program.h"

namespace {

using parallax::sized;
using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_collectives [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --rounds N       of seven collectives\n"
    "  --die-at P:S  --die-how kill|stop\n";

// What rank `of` gives as its i-th number in a round.
int64_t given(uint32_t of, uint64_t i, uint64_t round) {
  return static_cast<int64_t>(of * 1000 + i % 97 + round);
}

class Round {
 public:
  Round(parallax::Job& job, uint32_t rank, uint32_t world, uint64_t number)
      : job_(job), rank_(rank), world_(world), number_(number) {
    // From 8 bytes to many messages.
    count_ = std::array<uint64_t, 4>{1, 30, 5000, 60000}[number % 4];
  }

  // True if all numbers are right.
  bool run() {
    std::vector<parallax::Request> requests;
    for (uint32_t i = 0; i < 7; ++i) requests.push_back(post((i + rank_ + number_) % 7));
    for (parallax::Request& request : requests) request.wait();
    for (uint32_t which = 0; which < 7; ++which) {
      for (uint64_t i = 0; i < recv_[which].size(); ++i) {
        if (recv_[which][i] == expected(which, i)) continue;
        say("wrong: round %llu, collective %u, number %llu",
            static_cast<unsigned long long>(number_), which, static_cast<unsigned long long>(i));
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::array<uint32_t, 7> kKinds = {
      PARALLAX_ALLREDUCE, PARALLAX_REDUCE_SCATTER, PARALLAX_ALLGATHER, PARALLAX_ALLGATHERV,
      PARALLAX_ALLTOALLV, PARALLAX_BROADCAST,      PARALLAX_REDUCE};

  uint64_t of_pair(uint32_t from, uint32_t to) const { return (from * 3 + to) % 5 * count_ / 8; }
  uint32_t root() const { return static_cast<uint32_t>(number_ % world_); }

  parallax::Request post(uint32_t which) {
    auto call = sized<parallax_collective_t>();
    call.kind = kKinds[which];
    call.dtype = PARALLAX_I64;
    call.op = call.kind == PARALLAX_REDUCE ? PARALLAX_OP_MAX : PARALLAX_OP_SUM;
    call.root = root();
    call.count = count_;
    call.tag = which + 1;
    uint64_t sent = count_, received = count_;
    sent_[which].clear();
    for (uint32_t peer = 0; peer < world_; ++peer) {
      sent_counts_[which].push_back(of_pair(rank_, peer));
      recv_counts_[which].push_back(call.kind == PARALLAX_ALLGATHERV ? of_pair(peer, 0)
                                                                     : of_pair(peer, rank_));
    }
    call.send_counts = sent_counts_[which].data();
    call.recv_counts = recv_counts_[which].data();
    if (call.kind == PARALLAX_REDUCE_SCATTER) sent = count_ * world_;
    if (call.kind == PARALLAX_ALLGATHER) received = count_ * world_;
    if (call.kind == PARALLAX_ALLGATHERV) call.count = sent = of_pair(rank_, 0);
    if (call.kind == PARALLAX_ALLTOALLV) sent = total(sent_counts_[which]);
    if (call.kind == PARALLAX_ALLTOALLV || call.kind == PARALLAX_ALLGATHERV) {
      received = total(recv_counts_[which]);
    }
    if (call.kind == PARALLAX_REDUCE && rank_ != root()) received = 0;
    for (uint64_t i = 0; i < sent; ++i) sent_[which].push_back(given(rank_, i, number_));
    recv_[which].assign(received, -1);
    call.send = sent_[which].data();
    call.recv = recv_[which].data();
    return job_.collective(call);
  }

  static uint64_t total(const std::vector<uint64_t>& counts) {
    uint64_t sum = 0;
    for (const uint64_t count : counts) sum += count;
    return sum;
  }
  int64_t summed(uint64_t i) const {
    int64_t sum = 0;
    for (uint32_t of = 0; of < world_; ++of) sum += given(of, i, number_);
    return sum;
  }
  int64_t expected(uint32_t which, uint64_t i) const {
    switch (kKinds[which]) {
      case PARALLAX_REDUCE_SCATTER:
        return summed(rank_ * count_ + i);
      case PARALLAX_ALLGATHER:
        return given(static_cast<uint32_t>(i / count_), i % count_, number_);
      case PARALLAX_BROADCAST:
        return given(root(), i, number_);
      case PARALLAX_REDUCE:
        return given(world_ - 1, i, number_);
      case PARALLAX_ALLGATHERV:
      case PARALLAX_ALLTOALLV: {
        uint32_t from = 0;
        for (; i >= recv_counts_[which][from]; ++from) i -= recv_counts_[which][from];
        uint64_t before = 0;
        const bool pairs = kKinds[which] == PARALLAX_ALLTOALLV;
        for (uint32_t to = 0; pairs && to < rank_; ++to) before += of_pair(from, to);
        return given(from, before + i, number_);
      }
      default:
        return summed(i);
    }
  }

  parallax::Job& job_;
  const uint32_t rank_, world_;
  const uint64_t number_;
  uint64_t count_ = 0;
  std::array<std::vector<int64_t>, 7> sent_, recv_;
  std::array<std::vector<uint64_t>, 7> sent_counts_, recv_counts_;
};

int run(const program::Settings& settings) {
  program::Rank rank(settings);
  const program::Fate fate(settings);
  parallax::Job job(rank.options());
  job.commit();
  const uint64_t rounds = settings.number("rounds", 8);
  for (uint64_t round = 0; round < rounds; ++round) {
    fate.enter("round", round);
    if (!Round(job, rank.number, rank.world(), round).run()) return 1;
  }
  say("right %llu", static_cast<unsigned long long>(rounds * 7));
  job.close();
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, run); }
