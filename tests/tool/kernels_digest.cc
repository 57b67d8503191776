// SPDX-License-Identifier: Apache-2.0
// A digest of what the kernels make of drawn numbers, for each level of vector code of the machine:
// every dtype's sums and other operations, the conversions, and the update rules. A line is
// "LEVEL OF BITS"; the bits are the same on every architecture. Linked with src/base alone, so that
// a cross compiler makes it without the libraries that the rest needs.
#include <bit>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "aggregate/combine.h"
#include "base/seeded_random.h"
#include "base/vector_code.h"
#include "server/update_rules.h"

namespace parallax {
namespace {

constexpr size_t kCount = 1003;

class Digest {
 public:
  void add(const void* bytes, size_t count) {  // FNV-1a
    const auto* each = static_cast<const unsigned char*>(bytes);
    for (size_t i = 0; i < count; ++i) bits_ = (bits_ ^ each[i]) * 0x100000001b3;
  }
  void print(const std::string& of) const {
    std::printf("%s %s %016llx\n", vector_level_name(vector_level()), of.c_str(),
                static_cast<unsigned long long>(bits_));
  }

 private:
  uint64_t bits_ = 0xcbf29ce484222325;
};

// Every pattern of bits but NaNs, whose payload an addition may choose.
template <typename T>
std::vector<std::byte> drawn(SeededRandom& random, size_t count) {
  std::vector<std::byte> bytes(1 + count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    T number;
    do {
      const uint64_t bits = random.next();
      std::memcpy(&number, &bits, sizeof number);
      std::memcpy(&bytes[1 + i * sizeof number], &number, sizeof number);
    } while (!std::isfinite(static_cast<double>(load<T>(&bytes[1 + i * sizeof number]))));
  }
  return bytes;
}

template <typename In>
void combine_all(const char* name) {
  using Sum = sum_of_t<In>;
  Digest digest;
  SeededRandom random(1);
  for (const Combine how : {Combine::kSum, Combine::kMin, Combine::kMax}) {
    std::vector<Sum> to(kCount);
    start_combine<In, Sum>(how, to.data(), &drawn<In>(random, kCount)[1], kCount);
    combine_into<In, Sum>(how, to.data(), &drawn<In>(random, kCount)[1], kCount);
    digest.add(to.data(), kCount * sizeof(Sum));
  }
  digest.print(std::string("combine ") + name);
}

void convert_all() {
  Digest digest;
  SeededRandom random(2);
  const std::vector<std::byte> floats = drawn<float>(random, kCount);
  for (const uint32_t dtype : {PARALLAX_F16, PARALLAX_BF16, PARALLAX_F64}) {
    std::vector<std::byte> to(kCount * 8), back(kCount * 4);
    converter(PARALLAX_F32, dtype)(&floats[1], to.data(), kCount);
    converter(dtype, PARALLAX_F32)(to.data(), back.data(), kCount);
    digest.add(to.data(), kCount * bytes_of_dtype(dtype));
    digest.add(back.data(), back.size());
  }
  digest.print("convert");
}

template <typename T>
void update_all(const char* name) {
  Digest digest;
  for (uint32_t rule = PARALLAX_RULE_SGD; rule <= PARALLAX_RULE_FTRL; ++rule) {
    SeededRandom random(rule);
    std::vector<T> value(kCount), state0(kCount), state1(kCount), gradient(kCount);
    for (T& each : value) each = static_cast<T>(random.unit() - 0.5);
    UpdateArguments with = {.rule = rule,
                            .learning_rate = 0.1,
                            .weight_decay = 0.01,
                            .decoupled = rule % 2 == 0,
                            .epsilon = 1e-8,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .momentum = 0.9,
                            .l1 = 0.01,
                            .l2 = 0.1};
    for (with.updates = 1; with.updates <= 3; ++with.updates) {
      for (T& each : gradient) each = static_cast<T>(random.unit() - 0.5);
      with_rule<T>(with, [&](const auto& apply) {
        const RowParts<T> row = {value.data(), state0.data(), state1.data(), gradient.data(),
                                 kCount};
        update_in_vectors(apply, [&] { update_row(apply, Decay<T>(with), row, T{0.5}); });
      });
    }
    digest.add(value.data(), kCount * sizeof(T));
    digest.add(state0.data(), kCount * sizeof(T));
    digest.add(state1.data(), kCount * sizeof(T));
  }
  digest.print(std::string("update ") + name);
}

void all() {
  combine_all<float>("f32");
  combine_all<double>("f64");
  combine_all<Half>("f16");
  combine_all<BFloat>("bf16");
  combine_all<int32_t>("i32");
  combine_all<int64_t>("i64");
  convert_all();
  update_all<float>("f32");
  update_all<double>("f64");
}

}  // namespace
}  // namespace parallax

int main() {
  for (const parallax::VectorLevel level : parallax::vector_levels()) {
    parallax::set_vector_level(level);
    parallax::all();
  }
  return 0;
}
