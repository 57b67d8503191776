// SPDX-License-Identifier: Apache-2.0
// SeededRandom: the simulator's only source of chance (splitmix64, Steele et al. 2014). The
// distributions of the standard library differ between implementations; these do not, so a seed
// replays anywhere. Value type, one owner.
#ifndef PARALLAX_BASE_SEEDED_RANDOM_H_
#define PARALLAX_BASE_SEEDED_RANDOM_H_

#include <cstdint>

namespace parallax {

class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // 0 <= result < bound; 0 when bound is 0. The bias of the modulo does not matter here.
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }

  // low <= result <= high.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
  }

  bool chance(uint32_t percent) { return below(100) < percent; }

  // In [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  // An independent stream for a part of the simulation, so that adding draws in one part does not
  // shift those of another.
  SeededRandom fork(uint64_t stream) const {
    SeededRandom child(state_ ^ (stream * 0xd1342543de82ef95u + 0x2545f4914f6cdd1du));
    child.next();
    return child;
  }

 private:
  uint64_t state_;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_SEEDED_RANDOM_H_
