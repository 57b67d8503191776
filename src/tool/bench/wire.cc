// SPDX-License-Identifier: Apache-2.0
// The run of `parallax bench wire`: the raw ways are opened once, then every repeat times each size
// by each way in turn, so that what else the machines do falls on all alike.
#include "tool/bench/wire.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "base/environment.h"
#include "tool/bench/measure.h"
#include "tool/bench/wire_figures.h"
#include "tool/bench/wire_way.h"
#include "tool/tool.h"
#include "transport/shm/shm_transport.h"

namespace parallax::tool::bench {

namespace {

constexpr uint32_t kStepsMax = 100;  // of a timing: a step costs a job's opening anyway
constexpr int64_t kWireTimeoutMs = 60'000;
constexpr uint32_t kWireRanks = 2;

// It cannot go on; every rank finds so, and the one whose trouble it is says it.
class GivenUp : public BenchError {
 public:
  GivenUp(const std::string& sentence, bool is_own) : BenchError(sentence), is_own_(is_own) {}
  bool is_own() const { return is_own_; }

 private:
  bool is_own_;
};

class WireMeasurement {
 public:
  WireMeasurement(const WireOptions& options, const Settings& settings, Group& group)
      : options_(options), settings_(settings), group_(group) {}

  // On every rank; only the leader's has times.
  WireRun run();

 private:
  bool leads() const { return group_.rank() == 0; }
  void open_ways();
  Status open_way(const WireContext& context, Way way, std::unique_ptr<RawWay>* raw);
  WireLine* line_of(uint64_t bytes, Way way, WireForm form);
  void time_raw(uint64_t bytes, Way way, bool last);
  void time_one(WireLine* line, RawWay& raw, Transfer transfer, bool last);
  uint64_t check_raw(RawWay& raw, uint64_t bytes);
  void time_step(uint64_t bytes, Way way, bool last);
  void say_progress(uint32_t repeat, uint64_t bytes) const;
  void agree(const Status& status, const std::string& what);

  const WireOptions& options_;
  const Settings& settings_;
  Group& group_;
  WireRun run_;
  std::map<Way, std::unique_ptr<RawWay>> raw_;
  std::vector<std::byte> out_, in_;
};

void WireMeasurement::agree(const Status& status, const std::string& what) {
  if (group_.all_ok(status.ok())) return;
  const std::string why =
      status.ok() ? "the other rank failed; see what it said" : status.message();
  throw GivenUp(what + ": " + why, !status.ok());
}

Status WireMeasurement::open_way(const WireContext& context, Way way,
                                 std::unique_ptr<RawWay>* raw) {
  switch (way) {
    case Way::kTcp:
      return make_tcp_way(context, raw);
    case Way::kUcx:
      return make_ucx_way(context, raw);
    case Way::kVerbsSend:
      return make_verbs_way(context, VerbsOperation::kSend, raw);
    case Way::kVerbsWrite:
      return make_verbs_way(context, VerbsOperation::kWrite, raw);
    case Way::kVerbsRead:
      return make_verbs_way(context, VerbsOperation::kRead, raw);
    case Way::kAllreduce:
    case Way::kPushPull:
      break;
  }
  return internal("it is no raw way");
}

// A way that one rank lacks is not run, and says why.
void WireMeasurement::open_ways() {
  const std::string machine = shm_machine_id();
  std::string theirs;
  agree(exchange_cards(group_, machine, &theirs), "meeting");
  const WireContext context = {.group = group_,
                               .settings = settings_,
                               .one_machine = theirs == machine,
                               .message_bytes_max = options_.sizes.back(),
                               .timeout_ms = kWireTimeoutMs};
  for (const Way way : options_.ways) {
    if (is_step(way)) {
      const auto network = [this] {
        return std::string(group_.hosts() == 1 ? "shared memory" : "the library, over ") +
               (group_.hosts() == 1 ? "" : group_.network());
      };
      run_.ways.emplace_back(way_name(way), network());
      continue;
    }
    std::unique_ptr<RawWay> raw;
    const Status opened = open_way(context, way, &raw);
    std::string reason;
    const Status told =
        exchange_cards(group_, opened.message().substr(0, kWireCardBytes / 2), &reason);
    std::string why = opened.ok() ? told.message() : opened.message();
    if (!reason.empty() && reason != why)
      why = opened.ok() || !leads() ? reason : why + "; rank 1: " + reason;
    if (!why.empty()) {
      run_.ways.emplace_back(way_name(way), "NOT RUN: " + why);
      continue;
    }
    run_.ways.emplace_back(way_name(way), raw->description());
    raw_[way] = std::move(raw);
  }
}

WireLine* WireMeasurement::line_of(uint64_t bytes, Way way, WireForm form) {
  for (WireLine& line : run_.lines) {
    if (line.bytes == bytes && line.way == way && line.form == form) return &line;
  }
  WireLine& line = run_.lines.emplace_back();
  line.bytes = bytes;
  line.way = way;
  line.form = form;
  line.iterations = iterations_of(options_, bytes);
  return &line;
}

void WireMeasurement::time_one(WireLine* line, RawWay& raw, Transfer transfer, bool last) {
  const auto timing = [&](uint32_t count, double* us) {
    transfer.count = count;
    return line->form == WireForm::kStream ? raw.stream(transfer, us) : raw.ping_pong(transfer, us);
  };
  double us = 0;
  Status status;
  if (options_.warmups > 0) status = timing(options_.warmups, &us);
  if (status.ok()) status = timing(line->iterations, &us);
  agree(status, way_name(line->way));
  line->times_us.push_back(us);
  if (last && line->form == WireForm::kStream) line->wrong = check_raw(raw, line->bytes);
}

// Messages of patterns, in both directions; every byte is compared. Of both ranks together.
uint64_t WireMeasurement::check_raw(RawWay& raw, uint64_t bytes) {
  uint64_t wrong = 0;
  for (uint32_t i = 0; i < 2 * options_.checks; ++i) {
    const bool leads_now = leads() == (i % 2 == 0);
    std::fill(in_.begin(), in_.end(), std::byte{0});
    fill_pattern(i, {out_.data(), bytes});
    double us = 0;
    const Transfer transfer = {
        .leads = leads_now, .count = 1, .out = {out_.data(), bytes}, .in = {in_.data(), bytes}};
    agree(raw.stream(transfer, &us), "check");
    if (leads_now == raw.leader_receives()) wrong += count_wrong(i, {in_.data(), bytes});
  }
  uint64_t all[kWireRanks] = {};
  group_.allgather(&wrong, all, sizeof wrong);
  return all[0] + all[1];
}

void WireMeasurement::time_raw(uint64_t bytes, Way way, bool last) {
  RawWay& raw = *raw_.at(way);
  const Transfer transfer = {
      .leads = leads(), .out = {out_.data(), bytes}, .in = {in_.data(), bytes}};
  for (const WireForm form : {WireForm::kPingPong, WireForm::kStream}) {
    time_one(line_of(bytes, way, form), raw, transfer, last);
  }
}

// Of push_pull each rank gives rows of twice the bytes: half of them lie with the other rank.
void WireMeasurement::time_step(uint64_t bytes, Way way, bool last) {
  WireLine* const line = line_of(bytes, way, WireForm::kStep);
  line->iterations = std::min(line->iterations, kStepsMax);
  Options options;
  options.operation = way == Way::kAllreduce ? Operation::kAllreduce : Operation::kPushPull;
  options.iterations = line->iterations;
  options.warmups = options_.warmups;
  options.checks = last ? options_.checks : 0;
  options.timeout_ms = options_.timeout_ms;
  Point point = {.kind = {}, .count = bytes / sizeof(float), .rows = 0, .bytes = bytes};
  if (way == Way::kPushPull) {
    options.rule = PARALLAX_RULE_SUM;
    options.plan = PARALLAX_PLAN_PS;
    options.skew = 0;
    options.width = std::clamp<uint64_t>(bytes / 512, 2, 256);
    point.rows = std::max<uint64_t>(2, 2 * bytes / (options.width * sizeof(float)));
    point.count = point.rows * options.width;
    point.bytes = point.count * sizeof(float);
    options.table_rows = std::max<uint64_t>(1024, 2 * point.rows);
  }
  const Line measured = measure(options, point, group_);
  if (way == Way::kPushPull) {
    line->legs = 2;
    line->share = static_cast<double>(measured.distinct_rows * options.width * sizeof(float)) /
                  static_cast<double>(2 * bytes);
  }
  line->times_us.push_back(measured.time_us);
  line->wrong += measured.wrong;
}

void WireMeasurement::say_progress(uint32_t repeat, uint64_t bytes) const {
  if (!leads()) return;
  std::fprintf(stderr, "parallax bench wire: repeat %u of %u, %llu bytes\n", repeat + 1,
               options_.repeats, static_cast<unsigned long long>(bytes));
}

WireRun WireMeasurement::run() {
  run_.version = parallax_version_string();
  run_.hosts = group_.hosts();
  run_.warmups = options_.warmups;
  run_.checks = options_.checks;
  run_.repeats = options_.repeats;
  out_.resize(options_.sizes.back());
  in_.resize(options_.sizes.back());
  fill_pattern(0, out_);
  open_ways();
  for (uint32_t repeat = 0; repeat < options_.repeats; ++repeat) {
    const bool last = repeat + 1 == options_.repeats;
    for (const uint64_t bytes : options_.sizes) {
      say_progress(repeat, bytes);
      for (const Way way : options_.ways) {
        if (is_step(way)) {
          time_step(bytes, way, last);
        } else if (raw_.contains(way)) {
          time_raw(bytes, way, last);
        }
      }
    }
  }
  settle(&run_);
  return std::move(run_);
}

Status write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return io_error(path + " cannot be written: " + std::strerror(errno));
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (whole && closed) return {};
  return io_error(path + " is not complete: " + std::strerror(errno) + "; make room");
}

Status print_all(const WireOptions& options, const WireRun& run) {
  const std::string text = options.format == WireFormat::kOsu   ? wire_osu(run)
                           : options.format == WireFormat::kUcx ? wire_ucx(run)
                                                                : wire_table(run);
  std::fputs(text.c_str(), stdout);
  if (std::fflush(stdout) != 0) {
    return io_error(std::string("standard output is not complete: ") + std::strerror(errno));
  }
  PARALLAX_RETURN_IF_ERROR(write_file(options.csv_file, wire_csv(run)));
  return write_file(options.json_file, wire_json(run));
}

int run_rank(const WireOptions& options, const Settings& settings) {
  Group group(open_options(options.rank, options.world, options.timeout_ms, options.rendezvous));
  const auto give_up = [&group](const std::string& sentence, bool is_own) {
    if (group.rank() == 0 || is_own) complain("bench wire", sentence, kExitNo);
    group.close();
    return kExitNo;
  };
  if (group.world() != kWireRanks) {
    return give_up(
        "a wire has two ends, and there are " + std::to_string(group.world()) +
            " ranks; start 2, one on each host (mpirun -n 2 --map-by node; srun -N 2 -n 2; "
            "parallax run -n 2 --ranks-per-host 1)",
        false);
  }
  try {
    const WireRun run = WireMeasurement(options, settings, group).run();
    const Status printed = group.rank() == 0 ? print_all(options, run) : Status();
    if (!group.all_ok(printed.ok())) return give_up(printed.message(), false);
    uint64_t all[kWireRanks] = {};
    const uint64_t wrong = wrong_of(run);
    group.allgather(&wrong, all, sizeof wrong);
    group.close();
    return all[0] == 0 ? kExitOk : kExitNo;
  } catch (const Unsupported& error) {
    return give_up(error.what(), false);
  } catch (const GivenUp& error) {
    return give_up(error.what(), error.is_own());
  }
}

}  // namespace

int wire_main(int argc, char** argv) {
  WireOptions options;
  int exit_status = kExitOk;
  if (!parse_wire_options(argc, argv, &options, &exit_status)) return exit_status;
  Settings settings;
  const Status loaded = settings.load({.environment = process_environment()});
  if (!loaded.ok()) return complain("bench wire", loaded.message(), kExitNo);
  try {
    return run_rank(options, settings);
  } catch (const std::exception& error) {
    return complain("bench wire", error.what(), kExitNo);
  }
}

}  // namespace parallax::tool::bench
