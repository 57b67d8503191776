// SPDX-License-Identifier: Apache-2.0
// One rank's program: reduces a dense variable in place in a buffer that the ranks of its host
// read, step after step, and looks at every element of every total. With --dies R that rank ends or
// stops at a moment by chance, in whatever it does then. Who hears of it writes over its buffer at
// once, and stays: a rank that was stopped and goes on may find there what was never meant, and is
// to write nothing there. Asked by SIGUSR1, it looks whether all is as it wrote it.
//
// Lines: "read N" and "wrote N", bytes of others that it read, and wrote, where they lay; "failed
// STATUS", with "clock MS"; "kept N", so many elements as it wrote them.
// Exit statuses: 0, 1 for a wrong total, 2 for wrong usage, 3 for a call that failed otherwise, 15
// for the rank that was stopped and hears of it.
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "parallax/parallax.hpp"
#include "rank_program.h"

namespace {

using parallax::sized;
using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_reader [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --elements N     of all dense variables, float32\n"
    "  --variables N    that lie one behind the other, and are reduced by one call: 1\n"
    "  --steps N        at most\n"
    "  --lease-ms N     of the job\n"
    "  --part 1         in a part of the job that has all of its ranks, the last one first\n"
    "  --dies R         one rank too many: none\n"
    "  --how kill|stop  --after-us N   from the third step on\n";

constexpr uint64_t kStepsBefore = 3;

// What a rank gives; the total is a whole number, exact in any order.
float given(uint64_t step, uint32_t rank, size_t element) {
  return static_cast<float>(element % 61 + step % 17 + rank);
}

bool is_total(const float* values, size_t count, uint64_t step, uint32_t world) {
  for (size_t i = 0; i < count; ++i) {
    float total = 0;
    for (uint32_t rank = 0; rank < world; ++rank) total += given(step, rank, i);
    if (values[i] == total) continue;
    say("element %zu of step %llu is %g and not %g", i, static_cast<unsigned long long>(step),
        static_cast<double>(values[i]), static_cast<double>(total));
    return false;
  }
  return true;
}

volatile std::sig_atomic_t asked = 0;
void note_question(int) { asked = 1; }

// Once asked, says how many elements are `value`; then stays.
[[noreturn]] void await_question(const float* values, size_t count, float value) {
  while (asked == 0) usleep(1000);
  size_t kept = 0;
  for (size_t at = 0; at < count; ++at) kept += values[at] == value ? 1 : 0;
  say("kept %zu", kept);
  while (true) pause();
}

// Ends this process in whatever it does when the time is over.
class Death {
 public:
  Death(bool stop, uint64_t after_us) {
    std::thread([stop, after_us] {
      std::this_thread::sleep_for(std::chrono::microseconds(after_us));
      say("clock %lld", program::clock_ms());
      kill(getpid(), stop ? SIGSTOP : SIGKILL);
    }).detach();
  }
};

// Slices of variables that have them all, as evenly as may be.
std::vector<parallax_slice_t> register_all(parallax::Job& job, float* values, size_t elements,
                                           size_t variables) {
  std::vector<parallax_slice_t> slices;
  for (size_t i = 0; i < variables; ++i) {
    const std::string name = "dense" + std::to_string(i);
    const size_t first = elements * i / variables;
    auto variable = sized<parallax_variable_t>();
    variable.name = name.c_str();
    variable.rows = elements * (i + 1) / variables - first;
    variable.row_elements = 1;
    variable.dtype = PARALLAX_F32;
    variable.tag = PARALLAX_DENSE;
    variable.reduction = PARALLAX_SUM;
    variable.rule = PARALLAX_RULE_NONE;
    auto& slice = slices.emplace_back(sized<parallax_slice_t>());
    slice.variable = job.register_variable(variable);
    slice.values = values + first;
  }
  return slices;
}

// The ranks of the job from the last to the first.
parallax::Job part_of(parallax::Job& job, uint32_t world) {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = world; rank-- > 0;) ranks.push_back(rank);
  return job.split(ranks.data(), ranks.size());
}

int run(const program::Settings& settings) {
  program::Rank rank(settings);
  parallax_options_t options = rank.options();
  options.lease_ms = static_cast<uint32_t>(settings.number("lease-ms", 2000));
  options.timeout_ms = 60000;
  parallax::Job whole(options);
  std::optional<parallax::Job> part;
  if (settings.number("part", 0) != 0) part = part_of(whole, rank.world());
  parallax::Job& job = part ? *part : whole;
  const size_t elements = settings.number("elements");
  const uint64_t dies = settings.number("dies", rank.world());
  parallax::Buffer buffer = job.buffer(elements * sizeof(float));
  auto* const values = static_cast<float*>(buffer.data());
  const std::vector<parallax_slice_t> slices =
      register_all(job, values, elements, settings.number("variables", 1));
  job.commit();
  std::signal(SIGUSR1, note_question);
  try {
    for (uint64_t i = 0; i < settings.number("steps"); ++i) {
      const uint64_t step = job.step_begin();
      for (size_t at = 0; at < elements; ++at) values[at] = given(step, rank.number, at);
      if (i == kStepsBefore && rank.number == dies) {
        const Death death(settings.text("how") == "stop", settings.number("after-us"));
      }
      job.reduce(step, slices.data(), slices.size()).wait();
      if (!is_total(values, elements, step, rank.world())) return 1;
      job.step_end(step, sized<parallax_step_end_options_t>()).wait();
    }
  } catch (const parallax::Error& error) {
    constexpr float kReused = 1e30f;
    for (size_t at = 0; at < elements; ++at) values[at] = kReused;
    say("failed %s", error.what());
    say("clock %lld", program::clock_ms());
    if (rank.number == dies) return 15;
    await_question(values, elements, kReused);  // its buffer is there for who was stopped
  }
  const auto stats = nlohmann::json::parse(job.report(PARALLAX_REPORT_STATS));
  say("read %llu", stats["local"]["read_bytes"].get<unsigned long long>());
  say("wrote %llu", stats["local"]["written_bytes"].get<unsigned long long>());
  buffer.free();
  if (part) part->close();
  whole.close();
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, run); }
