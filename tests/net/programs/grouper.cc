// SPDX-License-Identifier: Apache-2.0
// One rank's program: trains in the whole job and, at the same time and each by a thread of its
// own, in the parts that it is of. In step t every rank of a group gives t + its number in the job
// + 1 to a dense variable that it holds, to another that is too large for boards, and to a row of a
// managed table, and checks what it gets.
// Linked with libparallax.so alone.
//
// Lines: "step N", of the whole job; "done GROUP steps N" and "failed GROUP STATUS PEER sentence",
// GROUP by the order of the lists, 0 for the whole, PEER by its number in the job or -1; "wrong
// ...". Exit statuses: 0, 1 for wrong values, 2 for wrong usage, 3 for a group that failed.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "parallax/parallax.hpp"
#include "rank_program.h"

namespace {

using parallax::sized;
using program::say;

constexpr char kUsage[] =
    "usage: parallax_net_grouper [--option value]...\n"
    "  --rendezvous file:DIR  --rank R  --hosts H0,H1,...   host number of each rank\n"
    "  --groups L0;L1;...  lists of ranks, as in 0,1;2,1\n"
    "  --steps N  --lease-ms N  --timeout-ms N\n";

std::vector<std::vector<uint32_t>> lists_of(const std::string& text) {
  std::vector<std::vector<uint32_t>> lists;
  std::string rest = text + ";";
  for (size_t end; (end = rest.find(';')) != std::string::npos; rest.erase(0, end + 1)) {
    lists.push_back(program::numbers_of(rest.substr(0, end)));
  }
  return lists;
}

// One group as this rank trains in it.
class Group {
  static constexpr uint64_t kLarge = 16 * 1024;

 public:
  Group(parallax::Job& job, size_t number, std::vector<uint32_t> ranks)
      : job_(job), number_(number), ranks_(std::move(ranks)), random_(job.query().job_rank) {}

  // 0, 1 or 3: see above.
  int train(uint64_t steps) {
    try {
      walk(steps);
    } catch (const parallax::Error& error) {
      const uint32_t peer = error.info().peer;
      say("failed %zu %s %d %s", number_, parallax_status_string(error.status()),
          peer < ranks_.size() ? static_cast<int>(ranks_[peer]) : -1, error.what());
      return 3;
    }
    say("done %zu steps %llu", number_, static_cast<unsigned long long>(steps));
    return wrong_ ? 1 : 0;
  }

 private:
  int64_t sum_of(uint64_t step) const {
    int64_t sum = 0;
    for (const uint32_t rank : ranks_) sum += static_cast<int64_t>(step + rank + 1);
    return sum;
  }
  void expect(const char* what, uint64_t step, int64_t is, int64_t should_be) {
    if (is == should_be) return;
    say("wrong %s of group %zu, step %llu: %lld, not %lld", what, number_,
        static_cast<unsigned long long>(step), static_cast<long long>(is),
        static_cast<long long>(should_be));
    wrong_ = true;
  }

  void register_all() {
    auto variable = sized<parallax_variable_t>();
    variable.dtype = PARALLAX_I64;
    variable.rows = 2;
    variable.row_elements = 1;
    variable.name = "held";
    held_ = job_.register_variable(variable);
    variable.name = "large";
    variable.rows = kLarge;
    large_ = job_.register_variable(variable);
    variable.rows = 2;
    variable.name = "table";
    variable.rows_max = 2;
    variable.rule = PARALLAX_RULE_SUM;
    table_ = job_.register_variable(variable);
    job_.commit();
  }

  void walk(uint64_t steps) {
    register_all();
    const parallax_job_info_t info = job_.query();
    const int64_t id = 1;
    int64_t summed = 0;
    for (uint64_t t = 1; t <= steps; ++t) {
      if (number_ == 0 && t % 10 == 0) say("step %llu", static_cast<unsigned long long>(t));
      if (random_() % 16 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 500));
      const int64_t mine = static_cast<int64_t>(t + info.job_rank + 1);
      int64_t row = 0, values[2] = {mine, -mine};
      auto rows = sized<parallax_slice_t>();
      rows.variable = table_;
      rows.form = PARALLAX_FORM_ROWS;
      rows.ids = &id;
      rows.row_count = 1;
      rows.values = &row;
      auto dense = sized<parallax_slice_t>();
      dense.variable = held_;
      dense.values = values;
      std::vector<int64_t> many(kLarge, mine);
      auto large = sized<parallax_slice_t>();
      large.variable = large_;
      large.values = many.data();
      const uint64_t step = job_.step_begin();
      job_.pull(step, {rows}).wait();
      expect("row", t, row, summed);
      row = mine;
      parallax::Request pushed = job_.push(step, {rows});
      job_.reduce(step, {dense}).wait();
      expect("aggregate", t, values[0], sum_of(t));
      expect("aggregate", t, values[1], -sum_of(t));
      job_.reduce(step, {large}).wait();
      for (const uint64_t at : {uint64_t{0}, kLarge / 2, kLarge - 1}) {
        expect("large aggregate", t, many[at], sum_of(t));
      }
      pushed.wait();
      job_.step_end(step, sized<parallax_step_end_options_t>()).wait();
      summed += sum_of(t);
    }
  }

  parallax::Job& job_;
  const size_t number_;
  const std::vector<uint32_t> ranks_;
  std::mt19937 random_;
  uint32_t held_ = 0, large_ = 0, table_ = 0;
  bool wrong_ = false;
};

int run(const program::Settings& settings) {
  program::Rank rank(settings);
  auto options = rank.options();
  options.lease_ms = static_cast<uint32_t>(settings.number("lease-ms", 0));
  options.timeout_ms = static_cast<uint32_t>(settings.number("timeout-ms", 0));
  parallax::Job job(options);
  std::vector<uint32_t> all(rank.world());
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  std::vector<parallax::Job> parts;
  std::vector<Group> groups;
  const std::vector<std::vector<uint32_t>> lists = lists_of(settings.text("groups"));
  parts.reserve(lists.size());
  groups.emplace_back(job, 0, all);
  for (size_t i = 0; i < lists.size(); ++i) {
    if (std::find(lists[i].begin(), lists[i].end(), rank.number) == lists[i].end()) continue;
    parts.push_back(job.split(lists[i].data(), lists[i].size()));
    groups.emplace_back(parts.back(), i + 1, lists[i]);
  }
  std::atomic<int> worst = 0;
  std::vector<std::thread> threads;
  for (Group& group : groups) {
    threads.emplace_back([&] {
      const int status = group.train(settings.number("steps", 1));
      int before = worst;
      while (status > before && !worst.compare_exchange_weak(before, status)) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (worst != 0) return worst;  // the destructors close what failed
  for (parallax::Job& part : parts) part.close();
  job.close();
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return program::run_rank(count, arguments, kUsage, run); }
