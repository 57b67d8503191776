// SPDX-License-Identifier: Apache-2.0
// The table of those flags; a new one is a row.
#include "tool/bench/nccl_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>

namespace parallax::tool::bench {

struct FixedFlag {
  const char* names;                // "-g,--ngpus"
  std::vector<const char*> values;  // that are true here
  const char* help;
  const char* why;  // no other is
};

namespace {

const FixedFlag kFixedFlags[] = {
    {"-g,--ngpus",
     {"1"},
     "1: a rank is one process",
     "a rank is one process here, and GPUs are not measured; start more ranks with parallax run -n "
     "or mpirun -n"},
    {"-t,--nthreads",
     {"1"},
     "1: a rank is one process",
     "a rank is one process with one calling thread here; start more ranks with parallax run -n or "
     "mpirun -n"},
    {"-r,--root",
     {"0", "-1"},
     "0 or -1: no operation here has a root",
     "no operation here has a root; leave it out"},
    {"-p,--parallel_init",
     {"0", "1"},
     "0 or 1 are the same: ranks are processes, which start in parallel",
     "ranks start in parallel anyway; leave it out"},
    {"-z,--blocking",
     {"1"},
     "1: each step is waited for before the next one",
     "each step is waited for and timed by itself here, which is -z 1; to launch operations "
     "together use -m"},
    {"-G,--cudagraph",
     {"0"},
     "0: nothing is launched on a GPU",
     "nothing is launched on a GPU here, so there is no graph to replay; leave it out"},
    {"-R,--local_register",
     {"0"},
     "0: buffers are not registered beforehand",
     "the bench hands the library ordinary memory, not registered beforehand; leave it out"},
    {"-y,--stream_null",
     {"0"},
     "0: there are no streams",
     "there are no CUDA streams here; leave it out"},
    {"-S,--report_timestamps",
     {"0"},
     "0: lines bear no time of day",
     "lines bear no time of day here; leave it out"},
    {"-J,--output_file",
     {},
     "refused: use --json FILE",
     "the file would not have nccl-tests' form; write ours with --json FILE or --csv FILE"},
};

// Of `bench wire` alone, where what the other operations choose is fixed.
const FixedFlag kFixedFlagsOfWire[] = {
    {"-d,--datatype",
     {"float"},
     "float: of steps; raw messages are bytes",
     "steps are of float here, and raw messages are bytes; other types are measured by parallax "
     "bench allreduce -d"},
    {"-o,--op",
     {"sum"},
     "sum: of steps; raw messages are moved alone",
     "steps sum here, and raw messages are moved alone; averages are measured by parallax bench "
     "allreduce -o"},
    {"-m,--agg_iters",
     {"1"},
     "1: a step is one operation",
     "a step is one operation here, and a stream has several messages under way anyway; operations "
     "that are launched together are measured by parallax bench allreduce -m"},
    {"-a,--average",
     {"1"},
     "1: a step's time is the average of both ranks, a message's that of its round trip or stream",
     "a step's time is the average of both ranks here, and a message's is measured at one end; "
     "others are told by parallax bench allreduce -a"},
    {"-C,--report_cputime",
     {"0"},
     "0: times are by the clock",
     "times are by the clock here; processor time is told by parallax bench allreduce -C"},
};

struct Refused {
  const char* flag;
  std::vector<const char*> words;
  const char* why;
};

const Refused kRefused[] = {
    {"-o",
     {"prod", "min", "max", "mulsum"},
     "gradients are summed or averaged here; give sum, avg or all"},
    {"-d",
     {"int8", "uint8", "uint32", "uint64", "f8e4m3", "f8e5m2"},
     "the library has no such type; -h lists those that it has"},
};

std::vector<const FixedFlag*> flags_of(FixedFlags::Bench bench) {
  std::vector<const FixedFlag*> flags;
  for (const FixedFlag& each : kFixedFlags) flags.push_back(&each);
  if (bench == FixedFlags::Bench::kOperations) return flags;
  for (const FixedFlag& each : kFixedFlagsOfWire) flags.push_back(&each);
  return flags;
}

bool has(const std::vector<const char*>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Status refuse(const std::string& flag, const std::string& value, const char* why) {
  return unsupported(flag + " " + value + " is not supported: " + why);
}

}  // namespace

FixedFlags::FixedFlags(Bench bench) : flags_(flags_of(bench)), values_(flags_.size()) {}

void FixedFlags::add(CLI::App& app) {
  for (size_t i = 0; i < values_.size(); ++i) {
    app.add_option(flags_[i]->names, values_[i], flags_[i]->help);
  }
}

Status FixedFlags::check() const {
  for (size_t i = 0; i < values_.size(); ++i) {
    const FixedFlag& flag = *flags_[i];
    if (values_[i].empty() || has(flag.values, values_[i])) continue;
    const std::string names = flag.names;
    return refuse(names.substr(0, names.find(',')), values_[i], flag.why);
  }
  return {};
}

Status refuse_nccl_word(const std::string& flag, const std::string& word) {
  for (const Refused& each : kRefused) {
    if (flag == each.flag && has(each.words, word)) return refuse(flag, word, each.why);
  }
  return {};
}

}  // namespace parallax::tool::bench
