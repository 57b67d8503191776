// SPDX-License-Identifier: Apache-2.0
// What every rank of every contender of bench/peers does: it reads commands, makes steps as told,
// checks one, times the others, and says what each took. dense.h has what AllReduces of all
// contenders share, sparse.h what steps of row ids do; only the exchange is the contender's own.
//
// Commands come by a FIFO of each rank's own, so that the ranks of whoever is not being measured
// block in read() and take no processor: `VARIANT WORDS ITERATIONS REFILL DEVICE`, a line; WORDS
// say what kind of step, and with REFILL 1 the numbers that a rank gives are written anew before
// each, as a training does. The answer is a line: how many numbers of the checked one were wrong,
// what the interface DEVICE received and sent in the timed ones, in bytes (0 of `-`), and of each
// iteration two times in ns.
#ifndef PARALLAX_BENCH_PEERS_CONTENDER_H_
#define PARALLAX_BENCH_PEERS_CONTENDER_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "links/counters.h"

namespace parallax::peers {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "peers: %s\n", what.c_str());
  std::exit(1);
}

inline int64_t now_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// What one iteration took.
struct Took {
  int64_t result_ns = 0;  // until what was asked for is there: the sum, or the rows
  int64_t step_ns = 0;    // and until the next may begin; the same where there are no steps
};

class Contender {
 public:
  virtual ~Contender() = default;
  // Makes a step of this kind and checks it, and leaves all ready for iterate(): how many numbers
  // are wrong.
  virtual uint64_t check(const std::string& variant, const std::string& words) = 0;
  // Steps before the clock counts, at the least: those that touch memory for the first time.
  virtual uint64_t warm_ups() const { return 1; }
  // Writes what this rank gives anew.
  virtual void refill() = 0;
  virtual Took iterate() = 0;
  // What this rank's host has carried so far, by what interface there is.
  virtual links::Bytes carried(const std::string& device) { return links::counters(device); }
  // Returns when every rank has come here: what the interface has carried is then that of the same
  // steps on every host.
  virtual void meet() {}
  // Returns when nobody waits for this rank any more, which then blocks until the next command:
  // what an exchange sent last may want its sender to make progress.
  virtual void settle() {}
};

// Serves commands until there are none. The FIFOs are `folder`/RANK.in and RANK.out.
void serve(Contender& contender, uint32_t rank, const std::string& folder);

// Argument `at` of a program that bench/peers/run starts; ends it where there is none.
std::string argument(int count, char** all, int at);

// Its first three: FOLDER RANK WORLD.
struct StartedAs {
  std::string folder;
  uint32_t rank = 0, world = 0;
};
StartedAs started_as(int count, char** all);

}  // namespace parallax::peers

#endif  // PARALLAX_BENCH_PEERS_CONTENDER_H_
