// SPDX-License-Identifier: Apache-2.0
// Flags of `parallax bench`, and the sizes they ask for.
#include "tool/bench/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "base/number.h"
#include "tool/bench/nccl_flags.h"
#include "tool/tool.h"
#include "variable/rule_table.h"

namespace parallax::tool::bench {

namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 40;
constexpr uint64_t kTableRowsMax = (uint64_t{1} << 32) - 1;
constexpr uint64_t kWidthMax = 4096;
constexpr uint32_t kIterationsMax = 10'000'000;
constexpr const char* kAll = "all";

using Words = std::map<std::string, uint32_t>;

const Words kOperations = {{"allreduce", static_cast<uint32_t>(Operation::kAllreduce)},
                           {"allgatherv", static_cast<uint32_t>(Operation::kAllgatherv)},
                           {"reduce_rows", static_cast<uint32_t>(Operation::kReduceRows)},
                           {"pushpull", static_cast<uint32_t>(Operation::kPushPull)}};
// nccl-tests' words and ours: float and f32.
const Words kDtypeWords = [] {
  Words words;
  for (uint32_t dtype = 0; dtype < kDtypeCount; ++dtype) {
    words[kDtypes[dtype].word] = words[kDtypes[dtype].name] = dtype;
  }
  return words;
}();
// Of -d all: as nccl-tests have them, integers, then floats, by size, and bfloat16 last.
constexpr auto kDtypesInOrder = [] {
  std::array<uint32_t, kDtypeCount> all = {};
  for (uint32_t dtype = 0; dtype < kDtypeCount; ++dtype) all[dtype] = dtype;
  const auto place = [](uint32_t dtype) {
    const uint32_t kind = dtype == PARALLAX_BF16 ? 2 : is_floating(dtype) ? 1 : 0;
    return kind << 8 | bytes_of_dtype(dtype);
  };
  std::sort(all.begin(), all.end(),
            [place](uint32_t left, uint32_t right) { return place(left) < place(right); });
  return all;
}();
constexpr uint32_t kReductionsInOrder[] = {PARALLAX_SUM, PARALLAX_MEAN_WORLD};
const Words kReductions = {{"sum", PARALLAX_SUM}, {"avg", PARALLAX_MEAN_WORLD}};
const Words kPlans = {{"auto", PARALLAX_PLAN_AUTO},
                      {"hybrid", PARALLAX_PLAN_HYBRID},
                      {"ps", PARALLAX_PLAN_PS},
                      {"ar", PARALLAX_PLAN_AR}};
// Those that update what pushpull pulls.
const Words kUpdates = [] {
  Words words;
  for (const RuleTraits& each : kRules) {
    if (each.rule != PARALLAX_RULE_NONE && !each.calls_back)
      words[rule_name(each.rule)] = each.rule;
  }
  return words;
}();

// What is text on the command line and becomes something else.
struct Texts {
  std::string operation, dtype = "float", reduction = "sum", rule, plan;
  std::string bytes_min, bytes_max, bytes_step, density, timeout_s;
  uint32_t rank_time = 1;
  FixedFlags fixed{FixedFlags::Bench::kOperations};
};

const char* word_of(const Words& words, uint32_t value) {
  for (const auto& [word, each] : words) {
    if (each == value) return word.c_str();
  }
  return "unknown";
}

std::string words_of(const Words& words) {
  std::string list;
  for (const auto& [word, value] : words) list += (list.empty() ? "" : ", ") + word;
  return list;
}

// As -h lists them.
std::string dtype_words() {
  std::string list;
  for (const DtypeNames& each : kDtypes)
    list += (list.empty() ? "" : ", ") + std::string(each.word);
  return list;
}

Status parse_word(const std::string& flag, const std::string& word, const Words& words,
                  uint32_t* value) {
  const auto found = words.find(word);
  if (found == words.end()) {
    return invalid(flag + " " + word + ": it must be one of " + words_of(words));
  }
  *value = found->second;
  return {};
}

Status parse_densities(const std::string& text, std::vector<double>* densities) {
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    double value = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + comma, value);
    if (error != std::errc() || end != text.data() + comma || !(value > 0 && value <= 1)) {
      return invalid("--density " + text +
                     ": give shares of the table's rows, in (0, 1], separated by commas");
    }
    densities->push_back(value);
    at = comma + 1;
  }
  return {};
}

Status check_ranges(const Options& options) {
  if (options.bytes_min > options.bytes_max) {
    return invalid("-b " + std::to_string(options.bytes_min) + " is more than -e " +
                   std::to_string(options.bytes_max));
  }
  if (!(options.factor > 1) || !std::isfinite(options.factor)) {
    return invalid("-f must be more than 1; to add a number of bytes use -i");
  }
  if (options.rank >= std::max(options.world, 1u)) {
    return invalid("--rank " + std::to_string(options.rank) + " is not below --world " +
                   std::to_string(options.world));
  }
  if (options.csv_file == options.json_file && !options.csv_file.empty()) {
    return invalid("--csv and --json name the same file, " + options.csv_file);
  }
  if (options.cycles == 0 && !options.json_file.empty()) {
    return invalid("-N 0 goes on until it is ended, and --json is written at the end; use --csv");
  }
  return {};
}

Status check_kind(const Kind& kind, uint32_t rule) {
  if (is_floating(kind.dtype)) return {};
  if (rule != PARALLAX_RULE_SUM) {
    return invalid("--rule " + rule_name(rule) +
                   " is for floating types; integers take --rule sum");
  }
  if (kind.reduction != PARALLAX_SUM) {
    return invalid("-o avg is for floating types; integers take -o sum");
  }
  return {};
}

// "all", or one of `words`.
Status parse_words(const std::string& flag, const std::string& text, const Words& words,
                   std::span<const uint32_t> all, std::vector<uint32_t>* values) {
  values->assign(all.begin(), all.end());
  if (text == kAll) return {};
  PARALLAX_RETURN_IF_ERROR(refuse_nccl_word(flag, text));
  uint32_t value = 0;
  const Status status = parse_word(flag, text, words, &value);
  if (!status.ok()) return invalid(status.message() + ", or " + kAll);
  *values = {value};
  return {};
}

// What only pushpull has.
Status convert_update(const Texts& texts, Options* options) {
  options->rule = PARALLAX_RULE_SUM;
  options->plan = PARALLAX_PLAN_PS;
  const bool given = !texts.rule.empty() || !texts.plan.empty();
  if (given && options->operation != Operation::kPushPull) {
    return invalid(std::string(texts.rule.empty() ? "--plan" : "--rule") +
                   " is for pushpull, not for " + operation_name(options->operation));
  }
  if (!texts.rule.empty()) {
    PARALLAX_RETURN_IF_ERROR(parse_word("--rule", texts.rule, kUpdates, &options->rule));
  }
  if (texts.plan.empty()) return {};
  return parse_word("--plan", texts.plan, kPlans, &options->plan);
}

Status convert(const Texts& texts, Options* options) {
  uint32_t operation = 0;
  PARALLAX_RETURN_IF_ERROR(parse_word("operation", texts.operation, kOperations, &operation));
  options->operation = static_cast<Operation>(operation);
  options->rank_time = static_cast<RankTime>(texts.rank_time);
  PARALLAX_RETURN_IF_ERROR(texts.fixed.check());
  if (!texts.timeout_s.empty()) {
    PARALLAX_RETURN_IF_ERROR(parse_timeout(texts.timeout_s, &options->timeout_ms));
  }
  if (!texts.bytes_min.empty()) {
    PARALLAX_RETURN_IF_ERROR(parse_bytes("-b", texts.bytes_min, &options->bytes_min));
    if (texts.bytes_max.empty()) options->bytes_max = options->bytes_min;
  }
  if (!texts.bytes_max.empty()) {
    PARALLAX_RETURN_IF_ERROR(parse_bytes("-e", texts.bytes_max, &options->bytes_max));
  }
  if (!texts.bytes_step.empty()) {
    PARALLAX_RETURN_IF_ERROR(parse_bytes("-i", texts.bytes_step, &options->bytes_step));
  }
  if (!texts.density.empty()) {
    if (!is_sparse(options->operation)) {
      return invalid("--density is for operations on rows, not for allreduce");
    }
    PARALLAX_RETURN_IF_ERROR(parse_densities(texts.density, &options->densities));
  }
  PARALLAX_RETURN_IF_ERROR(convert_update(texts, options));
  PARALLAX_RETURN_IF_ERROR(parse_kinds(texts.dtype, texts.reduction, options));
  return check_ranges(*options);
}

void add_sizes(CLI::App& app, Options* options, Texts* texts) {
  auto* const begin = app.add_option("-b,--minbytes", texts->bytes_min,
                                     "bytes a rank gives, at first: 8, or 4K, 16M, 1G");
  auto* const end = app.add_option("-e,--maxbytes", texts->bytes_max,
                                   "at most; 16M, or that of -b where -b is given");
  auto* const step = app.add_option("-i,--stepbytes", texts->bytes_step, "bytes between sizes");
  auto* const factor =
      app.add_option("-f,--stepfactor", options->factor, "factor between sizes; 2");
  factor->excludes(step);
  auto* const density = app.add_option("--density", texts->density,
                                       "rows a rank gives, as shares of the table: 0.01,0.1");
  for (auto* const each : {begin, end, step, factor}) density->excludes(each);
}

void add_measuring(CLI::App& app, Options* options, Texts* texts) {
  const auto count = [](uint32_t least) { return CLI::Range(least, kIterationsMax); };
  app.add_option("-n,--iters", options->iterations, "timed steps of a size; 20")->check(count(1));
  app.add_option("-w,--warmup_iters", options->warmups, "steps before them; 5")->check(count(0));
  app.add_option("-c,--check", options->checks,
                 "steps after them whose every element is checked; 1, 0 for none")
      ->check(count(0));
  app.add_option("-m,--agg_iters", options->operations,
                 "operations of a step, launched together; figures are of one; 1")
      ->check(CLI::Range(1, PARALLAX_SLICES_MAX));
  app.add_option("-N,--run_cycles", options->cycles,
                 "measure all lines so often; 1, 0: until it is ended")
      ->check(count(0));
  app.add_option("-a,--average", texts->rank_time,
                 "a step's time: 0 of rank 0, 1 average of ranks, 2 least, 3 largest; 1")
      ->check(CLI::Range(0, 3));
  app.add_option("-d,--datatype", texts->dtype, dtype_words() + ", or all; float");
  app.add_option("-o,--op", texts->reduction,
                 "sum, avg (by the number of ranks), or all that the type takes; sum");
  app.add_option("-C,--report_cputime", options->processor_time,
                 "1: the column time is the process's processor time; 0")
      ->check(CLI::IsMember({"0", "1"}));
}

void add_rows(CLI::App& app, Options* options, Texts* texts) {
  app.add_option("--width", options->width, "elements of a row; 64")
      ->check(CLI::Range(uint64_t{1}, kWidthMax));
  app.add_option("--table-rows", options->table_rows, "rows of the variable; 100000")
      ->check(CLI::Range(uint64_t{1}, kTableRowsMax));
  app.add_option("--skew", options->skew,
                 "row ids are drawn by Zipf's law with this exponent; 1, 0 for evenly")
      ->check(CLI::Range(0.0, 16.0));
  app.add_option("--seed", options->seed, "of the row ids; 1");
  app.add_option("--rule", texts->rule, "pushpull: " + words_of(kUpdates) + "; sum");
  app.add_option("--plan", texts->plan, "pushpull: " + words_of(kPlans) + "; ps");
}

void add_ranks(CLI::App& app, Options* options, Texts* texts) {
  app.add_option("--rank", options->rank, "this rank; the environment's");
  app.add_option("--world", options->world, "the number of ranks; the environment's, else 1");
  app.add_option("--rendezvous", options->rendezvous, "how ranks meet; the environment's");
  auto* const milliseconds = app.add_option("--timeout-ms", options->timeout_ms,
                                            "how long to wait for other ranks; 120000");
  milliseconds->check(CLI::Range(1u, UINT32_MAX));
  app.add_option("-T,--timeout", texts->timeout_s, "the same in seconds; 120")
      ->excludes(milliseconds);
  app.add_option("--csv", options->csv_file, "write comma-separated values to this file, too");
  app.add_option("--json", options->json_file, "write a JSON object to this file, too");
}

// Elements times `width`, at least one row.
Point point_of(const Options& options, const Kind& kind, uint64_t bytes) {
  const uint64_t element_bytes = bytes_of_dtype(kind.dtype);
  const uint64_t unit = is_sparse(options.operation) ? options.width : 1;
  const uint64_t units = std::max<uint64_t>(1, bytes / (unit * element_bytes));
  Point point;
  point.kind = kind;
  point.count = units * unit;
  point.rows = is_sparse(options.operation) ? units : 0;
  point.bytes = point.count * element_bytes;
  return point;
}

Status plan_kind(const Options& options, const Kind& kind, std::vector<Point>* points) {
  const size_t first = points->size();
  const auto add = [points, first](const Point& point) {
    // Sizes below one element come out alike.
    if (points->size() == first || points->back().count != point.count) points->push_back(point);
  };
  const uint64_t row_bytes = options.width * bytes_of_dtype(kind.dtype);
  for (const double density : options.densities) {
    const double rows = density * static_cast<double>(options.table_rows);
    const uint64_t whole_rows = std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(rows)));
    add(point_of(options, kind, whole_rows * row_bytes));
  }
  if (!options.densities.empty()) return {};
  for (uint64_t bytes = options.bytes_min; bytes <= options.bytes_max;) {
    add(point_of(options, kind, bytes));
    if (points->size() - first > kPointsMax) {
      return invalid("-b, -e and -i or -f give more than " + std::to_string(kPointsMax) +
                     " sizes; take a larger step");
    }
    const double grown = static_cast<double>(bytes) * options.factor;
    bytes = options.bytes_step > 0
                ? bytes + options.bytes_step
                : std::max(bytes + 1, static_cast<uint64_t>(std::min(grown, 0x1p62)));
  }
  return {};
}

}  // namespace

const char* operation_name(Operation operation) {
  return word_of(kOperations, static_cast<uint32_t>(operation));
}

const char* reduction_name(uint32_t reduction) { return word_of(kReductions, reduction); }

const char* dtype_name_of_nccl(uint32_t dtype) { return kDtypes[dtype].word; }

std::string rule_name(uint32_t rule) {
  std::string name = rule < kRuleCount ? kRules[rule].name : "unknown";
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

bool is_sparse(Operation operation) { return operation != Operation::kAllreduce; }

bool parse_options(int argc, char** argv, Options* options, int* exit_status) {
  Texts texts;
  CLI::App app(
      "Measures a step's communication through the C ABI and checks every element of it. Start it "
      "as ranks: parallax run -n 4 -- parallax bench allreduce. `parallax bench wire` (see its "
      "--help) "
      "measures what the wire between two ranks carries, raw and by the library.",
      "parallax bench");
  app.add_option("operation", texts.operation, "allreduce, allgatherv, reduce_rows or pushpull")
      ->required();
  add_sizes(app, options, &texts);
  add_measuring(app, options, &texts);
  add_rows(app, options, &texts);
  texts.fixed.add(app);
  add_ranks(app, options, &texts);
  if (!parse_command_line(app, argc, argv, exit_status)) return false;
  const Status status = convert(texts, options);
  if (!status.ok()) *exit_status = complain("bench", status.message(), kExitUsage);
  return status.ok();
}

Status parse_kinds(const std::string& dtypes, const std::string& reductions, Options* options) {
  std::vector<uint32_t> every_dtype, every_reduction;
  PARALLAX_RETURN_IF_ERROR(parse_words("-d", dtypes, kDtypeWords, kDtypesInOrder, &every_dtype));
  PARALLAX_RETURN_IF_ERROR(
      parse_words("-o", reductions, kReductions, kReductionsInOrder, &every_reduction));
  options->kinds.clear();
  Status wrong;
  for (const uint32_t dtype : every_dtype) {
    for (const uint32_t reduction : every_reduction) {
      const Kind kind = {.dtype = dtype, .reduction = reduction};
      Status status = check_kind(kind, options->rule);
      if (status.ok()) {
        options->kinds.push_back(kind);
      } else {
        wrong = std::move(status);
      }
    }
  }
  return options->kinds.empty() ? wrong : Status();
}

Status parse_bytes(const std::string& flag, const std::string& text, uint64_t* bytes) {
  const Status wrong = invalid(flag + " " + text +
                               ": give a number of bytes, at least 1 and at most 1T, such as 8, "
                               "4K, 16M or 1G (powers of 1024)");
  uint64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc()) return wrong;
  int shift = 0;
  if (end != last) {
    constexpr const char* kUnits = "KMGT";
    const size_t unit =
        std::string(kUnits).find(static_cast<char>(std::toupper(static_cast<unsigned char>(*end))));
    if (unit == std::string::npos || end + 1 != last) return wrong;
    shift = 10 * (static_cast<int>(unit) + 1);
  }
  if (value == 0 || value > kBytesMax >> shift) return wrong;
  *bytes = value << shift;
  return {};
}

Status parse_timeout(const std::string& text, uint32_t* timeout_ms) {
  constexpr uint32_t kMillisecondsPerSecond = 1000;
  constexpr uint32_t kSecondsMax = UINT32_MAX / kMillisecondsPerSecond;
  uint32_t seconds = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, seconds);
  if (error != std::errc() || end != last || seconds == 0 || seconds > kSecondsMax) {
    return invalid("-T " + text + ": give seconds, 1 to " + std::to_string(kSecondsMax) +
                   "; every wait has an end here, without -T after 120");
  }
  *timeout_ms = seconds * kMillisecondsPerSecond;
  return {};
}

Status plan_points(const Options& options, std::vector<Point>* points) {
  for (const Kind& kind : options.kinds) {
    PARALLAX_RETURN_IF_ERROR(plan_kind(options, kind, points));
  }
  return {};
}

}  // namespace parallax::tool::bench
