// SPDX-License-Identifier: Apache-2.0
// One rank's program: reduces a dense variable in place and says how many bytes this process copied
// meanwhile. By standing in for memcpy and memmove, of which it counts calls of some length: that
// is how the library copies payload. Linked with libparallax.so alone.
//
// Lines: "copied N", bytes of the one reduce that is counted, or "uncounted" under a sanitizer,
// which stands there itself. Exit statuses: 0, 1 for wrong values, 2 for wrong usage, 3 for a call
// that failed.
#include <dlfcn.h>

#include <atomic>
#include <string>
#include <vector>

#include "parallax/parallax.hpp"
#include "rank_program.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PARALLAX_TEST_COUNTS_COPIES 0
#else
#define PARALLAX_TEST_COUNTS_COPIES 1
#endif

namespace {

constexpr size_t kCountedBytesMin = 1024;  // shorter ones are headers
constinit std::atomic<bool> counting = false;
constinit std::atomic<uint64_t> copied_bytes = 0;

#if PARALLAX_TEST_COUNTS_COPIES
using Copy = void* (*)(void* to, const void* from, size_t bytes);
constinit std::atomic<Copy> libc_memmove = nullptr;

// Until the C library's own is found; not to be recognised as what it is.
void* copy_bytes(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  const bool backwards = out > in && out < in + bytes;
  for (size_t i = 0; i < bytes; ++i) {
    const size_t at = backwards ? bytes - 1 - i : i;
    out[at] = in[at];
    asm volatile("" ::: "memory");
  }
  return to;
}

void* counted_copy(void* to, const void* from, size_t bytes) {
  if (bytes >= kCountedBytesMin && counting.load(std::memory_order_relaxed)) {
    copied_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  const Copy copy = libc_memmove.load(std::memory_order_relaxed);
  return copy == nullptr ? copy_bytes(to, from, bytes) : copy(to, from, bytes);
}
#endif

}  // namespace

#if PARALLAX_TEST_COUNTS_COPIES
extern "C" {
void* memcpy(void* to, const void* from, size_t bytes) { return counted_copy(to, from, bytes); }
void* memmove(void* to, const void* from, size_t bytes) { return counted_copy(to, from, bytes); }
}
#endif

namespace {

using parallax::sized;
using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_copies [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --elements N     of the dense variable, float32\n";

// True if every element is the sum over ranks.
bool reduce_once(parallax::Job& job, const parallax_slice_t& slice, std::vector<float>& values,
                 uint32_t rank, uint32_t world) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7 + rank);
  const uint64_t step = job.step_begin();
  auto request = job.reduce(step, {slice});
  auto ended = job.step_end(step, sized<parallax_step_end_options_t>());
  request.wait();
  ended.wait();
  const uint32_t ranks_sum = world * (world - 1) / 2;
  bool right = true;
  for (size_t i = 0; i < values.size(); ++i) {
    right &= values[i] == static_cast<float>(i % 7 * world + ranks_sum);
  }
  return right;
}

int run(const program::Settings& settings) {
  program::Rank rank(settings);
  parallax::Job job(rank.options());
  std::vector<float> values(settings.number("elements"));
  auto variable = sized<parallax_variable_t>();
  variable.name = "dense";
  variable.rows = values.size();
  variable.row_elements = 1;
  variable.tag = PARALLAX_DENSE;
  auto slice = sized<parallax_slice_t>();
  slice.variable = job.register_variable(variable);
  slice.values = values.data();
  job.commit();
  bool right = reduce_once(job, slice, values, rank.number, rank.world());
  job.barrier();  // what the warm-up left is gone everywhere
  counting = true;
  right &= reduce_once(job, slice, values, rank.number, rank.world());
  job.barrier();
  counting = false;
#if PARALLAX_TEST_COUNTS_COPIES
  say("copied %llu", static_cast<unsigned long long>(copied_bytes.load()));
#else
  say("uncounted");
#endif
  job.close();
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
#if PARALLAX_TEST_COUNTS_COPIES
  libc_memmove = reinterpret_cast<Copy>(dlsym(RTLD_NEXT, "memmove"));
#endif
  return program::run_rank(count, arguments, kUsage, run);
}
