// SPDX-License-Identifier: Apache-2.0
// Row ids by Zipf's law. Values; any thread.
#ifndef PARALLAX_TOOL_BENCH_ZIPF_H_
#define PARALLAX_TOOL_BENCH_ZIPF_H_

#include <cstdint>
#include <vector>

namespace parallax::tool::bench {

// Draws 0..rows-1 with probability proportional to 1 / (id + 1)^exponent, by rejection-inversion
// (Hoermann and Derflinger 1996): no table, whatever the number of rows.
class ZipfSampler {
 public:
  ZipfSampler(uint64_t rows, double exponent, uint64_t seed);
  int64_t next();

 private:
  double uniform();                   // in [0, 1)
  double integral(double x) const;    // of 1 / x^exponent, from 1 to x
  double inverse(double area) const;  // of integral()

  double rows_, exponent_;
  double area_low_, area_high_, accept_;
  uint64_t state_;
};

std::vector<int64_t> draw_ids(uint64_t rows, double exponent, uint64_t seed, uint32_t rank,
                              uint64_t count);

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_ZIPF_H_
