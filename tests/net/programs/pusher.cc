// SPDX-License-Identifier: Apache-2.0
// One rank's program: pushes rows of a managed variable out of memory that the ranks of its host
// share, and writes there again as soon as it may: once the push is waited for, which it does
// before its step ends, or behind that, or never, but with the job's descriptor. Rows are whole
// numbers, so that sums have one value. Linked with libparallax.so alone.
//
// Lines: "step 2000" behind that; "lent N", bytes of this rank that others read where they lay.
// Exit statuses: 0, 1 for wrong values, 2 for wrong usage, 3 for a call that failed, 4 for a push
// that does not complete.
#include <poll.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parallax/parallax.hpp"
#include "rank_program.h"

namespace {

using parallax::sized;
using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_pusher [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --waits before|polls|behind|with    the end of its step, each push\n"
    "  --steps N\n";

constexpr uint64_t kRows = 300, kWidth = 40, kCount = 50;
constexpr int kPollMs = 20000;
constexpr uint64_t kSaidStep = 2000;

// Some rows by one rank alone, some by all, some twice.
int64_t id_of(uint32_t rank, uint64_t step, uint64_t at) {
  return static_cast<int64_t>((at * 11 + rank * 53 + step * 7) % (at % 5 == 0 ? 9 : kRows));
}
float number_of(uint32_t rank, uint64_t step, uint64_t at) {
  return static_cast<float>((at * 3 + rank * 5 + step) % 17) - 8;
}

struct Expected {
  std::vector<float> rows = std::vector<float>(kRows, 0);

  void step(uint32_t world, uint64_t step) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      for (uint64_t at = 0; at < kCount; ++at) {
        rows[static_cast<uint64_t>(id_of(rank, step, at))] -= number_of(rank, step, at);
      }
    }
  }
};

class Pusher {
 public:
  Pusher(parallax::Job& job, uint32_t rank, const std::string& waits)
      : job_(job), rank_(rank), waits_(waits), ids_(kCount) {
    auto table = sized<parallax_variable_t>();
    table.name = "table";
    table.rows = kRows;
    table.row_elements = kWidth;
    table.rows_max = kRows;
    table.tag = PARALLAX_SPARSE;
    table.rule = PARALLAX_RULE_SGD;
    slice_.variable = job.register_variable(table);
    slice_.form = PARALLAX_FORM_ROWS;
    job.commit();
    auto options = sized<parallax_buffer_options_t>();
    void* memory = nullptr;
    parallax::check(
        parallax_buffer_alloc(job.get(), kCount * kWidth * sizeof(float), &options, &memory));
    rows_ = static_cast<float*>(memory);
  }

  // False: the push does not complete.
  bool step() {
    const uint64_t step = job_.step_begin();
    for (uint64_t at = 0; at < kCount; ++at) {
      ids_[at] = id_of(rank_, step, at);
      std::fill_n(rows_ + at * kWidth, kWidth, number_of(rank_, step, at));
    }
    slice_.ids = ids_.data();
    slice_.row_count = kCount;
    slice_.values = rows_;
    parallax::Request push = job_.push(step, {slice_});
    if (waits_ == "before") push.wait();
    if (waits_ == "polls" && !completes_by_itself(push)) return false;
    if (waits_ == "before" || waits_ == "polls") spoil();
    auto end = sized<parallax_step_end_options_t>();
    end.learning_rate = 1;
    parallax::Request ended = job_.step_end(step, end);
    if (waits_ == "with") {
      parallax_request_t* const both[] = {push.get(), ended.get()};
      parallax::check(parallax_wait(both, 2, PARALLAX_WAIT_DEFAULT));
    }
    if (waits_ == "behind") push.wait();
    spoil();
    ended.wait();
    return true;
  }
  std::vector<float> table() {
    const uint64_t step = job_.step_begin();
    std::vector<int64_t> ids(kRows);
    for (uint64_t row = 0; row < kRows; ++row) ids[row] = static_cast<int64_t>(row);
    std::vector<float> values(kRows * kWidth);
    parallax_slice_t slice = slice_;
    slice.ids = ids.data();
    slice.row_count = kRows;
    slice.values = values.data();
    job_.pull(step, {slice}).wait();
    auto end = sized<parallax_step_end_options_t>();
    end.learning_rate = 1;
    job_.step_end(step, end).wait();
    return values;
  }

 private:
  // It is this program's again.
  void spoil() { std::fill_n(rows_, kCount * kWidth, 1e9f); }
  // Who sleeps in poll() is woken, though nobody waits and the step has not ended.
  bool completes_by_itself(const parallax::Request& push) {
    auto info = sized<parallax_job_info_t>();
    parallax::check(parallax_query(job_.get(), &info));
    while (parallax_request_test(push.get()) == PARALLAX_PENDING) {
      pollfd readable = {.fd = info.wait_fd, .events = POLLIN, .revents = 0};
      if (poll(&readable, 1, kPollMs) != 1) return false;
      uint64_t count = 0;
      if (read(info.wait_fd, &count, sizeof count) != sizeof count) return false;
    }
    return true;
  }

  parallax::Job& job_;
  const uint32_t rank_;
  const std::string waits_;
  parallax_slice_t slice_ = sized<parallax_slice_t>();
  std::vector<int64_t> ids_;
  float* rows_ = nullptr;
};

int run(const program::Settings& settings) {
  program::Rank rank(settings);
  const auto steps = static_cast<uint64_t>(settings.number("steps"));
  parallax::Job job(rank.options());
  Pusher pusher(job, rank.number, settings.text("waits"));
  Expected expected;
  for (uint64_t step = 1; step <= steps; ++step) {
    if (!pusher.step()) return 4;
    expected.step(rank.world(), step);
    if (step == kSaidStep) say("step %llu", static_cast<unsigned long long>(step));
  }
  bool right = true;
  const std::vector<float> table = pusher.table();
  for (uint64_t at = 0; at < table.size(); ++at) right &= table[at] == expected.rows[at / kWidth];
  const auto stats = nlohmann::json::parse(job.report(PARALLAX_REPORT_STATS));
  say("lent %llu", stats["local"]["lent_bytes"].get<unsigned long long>());
  job.close();
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, run); }
