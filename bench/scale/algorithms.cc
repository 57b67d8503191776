// SPDX-License-Identifier: Apache-2.0
// Which algorithm is best where: every algorithm of elements, run by the real exchange and outbox
// for all ranks of a job on the simulator, beside what the choice (algorithm_choice.h) says of it.
// Virtual time, so the same wherever it runs.
//
//   parallax_algorithms [ethernet|infiniband] [hosts,...] [ranks a host,...] [elements,...]
//                       [domains of memory of a host]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/algorithm_choice.h"
#include "collectives/dense_exchange.h"
#include "message/outbox.h"
#include "message/wire.h"
#include "transport/sim/sim_world.h"

namespace parallax::scale {
namespace {

constexpr int64_t kLimitNs = 1'000'000'000'000;
// Elements of all ranks together, and ranks squared: as much as a machine holds.
constexpr uint64_t kElementsMax = uint64_t{1} << 29;
constexpr uint64_t kPairsMax = uint64_t{1} << 21;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "parallax_algorithms: %s\n", what.c_str());
  std::exit(1);
}

void require(const Status& status, const char* call) {
  if (!status.ok()) fail(std::string(call) + ": " + status.message());
}

// What is the same for all ranks of a run. Numbers are not looked at: tests do. So all ranks read
// one contribution and write one result.
struct Job {
  const HostMap& hosts;
  const DenseAlgorithm& algorithm;
  const Partition& partition;
  std::vector<float> input, result;
};

class Rank final : public Actor, private Receiver, private OutboxObserver {
 public:
  Rank(SimWorld& world, Job& job, uint32_t rank)
      : world_(world),
        job_(job),
        rank_(rank),
        columns_(job.hosts, rank),
        outbox_(rank, world.transport(rank), *this, *this),
        exchange_(columns_, job.partition, outbox_, {.held = true}, job.algorithm) {
    require(outbox_.start(1), "start");
    require(exchange_.reserve(), "reserve");
    exchange_.open(1);
    world.attach(rank, this);
  }

  void run(int64_t) override {
    if (!begun_) {
      begun_ = true;
      exchange_.contribute(
          1,
          {.elements = {reinterpret_cast<const std::byte*>(job_.input.data()), PARALLAX_F32},
           .lasting = true,
           .result = {reinterpret_cast<std::byte*>(job_.result.data()), PARALLAX_F32}},
          &pending_);
    }
    while (world_.transport(rank_).poll(*this) || outbox_.pump()) {
    }
    if (done_ns_ == 0 && exchange_.state(1).delivered && outbox_.idle()) done_ns_ = world_.now_ns();
  }
  int64_t next_deadline_ns() const override { return begun_ ? kNever : 0; }
  int64_t done_ns() const { return done_ns_; }

 private:
  void on_message(uint32_t from, std::span<const std::byte> message) override {
    SectionReader reader(message);
    Section section;
    while (reader.next(&section)) {
      // The simulator knows no sums and copies but those it is told of.
      world_.charge(rank_, section.payload.size());
      if (!exchange_.on_section(from, section)) fail("a section does not fit");
    }
  }
  void on_sent(uint64_t cookie) override { outbox_.on_sent(cookie); }
  void on_lost(uint32_t, Loss, std::string_view) override { fail("a rank is lost"); }
  void on_section_packed(uint32_t, const SectionHeader&, size_t) override {}
  void on_section_coded(uint32_t, const SectionHeader&, size_t) override {}
  // Nor that a processor copies what stays inside a host.
  void on_message_packed(uint32_t to, size_t bytes) override {
    if (job_.hosts.host_of[to] == columns_.host()) world_.charge(rank_, bytes);
  }

  SimWorld& world_;
  Job& job_;
  const uint32_t rank_;
  const Columns columns_;
  Outbox outbox_;
  DenseExchange exchange_;
  uint32_t pending_ = 0;
  bool begun_ = false;
  int64_t done_ns_ = 0;
};

SimOptions options_of(const std::string& link, const HostMap& hosts) {
  SimOptions options;
  options.world = static_cast<uint32_t>(hosts.host_of.size());
  options.host_of.assign(hosts.host_of.begin(), hosts.host_of.end());
  options.domain_of.assign(hosts.domain_of.begin(), hosts.domain_of.end());
  options.adversarial = false;
  options.intra_host.bytes_per_second = 1e15;  // Rank charges for them
  if (link == "ethernet") options.inter_host = {20'000, 2'000, 0, 1.25e9, 0};  // 10 Gbit/s
  return options;
}

// What a probe would find on that simulator.
CostConstants constants_of(const SimOptions& options) {
  const auto link = [&](const LinkModel& model) {
    return LinkCost{static_cast<uint64_t>(model.latency_ns + options.run_overhead_ns),
                    static_cast<uint64_t>(model.overhead_ns),
                    static_cast<uint64_t>(1e12 / model.bytes_per_second)};
  };
  const auto byte_ps = static_cast<uint64_t>(options.compute_ns_per_byte * 1000);
  CostConstants constants = {
      .inside = link(options.intra_host),
      .between = link(options.inter_host),
      .sum_byte_ps = {byte_ps, byte_ps, byte_ps, byte_ps},
      .copy_byte_ps = byte_ps,
      .across_byte_ps = static_cast<uint64_t>(1e12 / options.bus_bytes_per_second)};
  constants.inside.byte_ps = byte_ps;
  return constants;
}

double simulated_us(const SimOptions& options, Job& job) {
  SimWorld world(options);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t rank = 0; rank < options.world; ++rank) {
    ranks.push_back(std::make_unique<Rank>(world, job, rank));
  }
  const auto all_done = [&] {
    return std::all_of(ranks.begin(), ranks.end(),
                       [](const auto& rank) { return rank->done_ns() > 0; });
  };
  // Asked seldom: it looks at all of them.
  int64_t end_ns = 0;
  while (!all_done()) {
    end_ns += 1'000'000;
    if (end_ns > kLimitNs) fail("the simulation does not end");
    world.run_until([] { return false; }, end_ns);
  }
  int64_t last_ns = 0;
  for (const auto& rank : ranks) last_ns = std::max(last_ns, rank->done_ns());
  return static_cast<double>(last_ns) / 1000;
}

HostMap with_domains(HostMap hosts, uint32_t domains, uint32_t each) {
  std::vector<NearMemory> places;
  for (uint32_t rank = 0; rank < hosts.host_of.size(); ++rank) {
    places.push_back({.node = rank % each * domains / each});
  }
  set_domains(&hosts, places);
  return hosts;
}

void compare(const std::string& link, uint32_t host_count, uint32_t each, uint64_t elements,
             uint32_t domains) {
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < host_count * each; ++rank) {
    names.push_back(std::to_string(rank / each));
  }
  const HostMap hosts = with_domains(map_hosts(names), domains, each);
  const SimOptions options = options_of(link, hosts);
  AlgorithmChoice choice(hosts);
  choice.use(constants_of(options));
  const Partition partition(elements, 1, false, SlotMap::of_ranks(options.world, 1), 0);
  std::printf("%6u %5u %9llu", host_count, each, static_cast<unsigned long long>(elements));
  double best_us = 0, chosen_us = 0;
  std::string best, chosen;
  for (const DenseAlgorithm& algorithm : kDenseAlgorithms) {
    const auto& timed = choice.alternatives({.elements = elements, .held = true}, SumType::kF32);
    const auto said = std::find_if(timed.begin(), timed.end(),
                                   [&](const auto& one) { return one.algorithm == &algorithm; });
    if (said == timed.end()) {
      std::printf(" %19s", "-");
      continue;
    }
    Job job = {hosts, algorithm, partition, std::vector<float>(elements),
               std::vector<float>(elements)};
    const double us = simulated_us(options, job);
    std::printf(" %9.1f/%9.1f", us, static_cast<double>(said->picoseconds) / 1e6);
    if (best.empty() || us < best_us) best = algorithm.name, best_us = us;
    if (said->chosen) chosen = algorithm.name, chosen_us = us;
  }
  std::printf("  %-8s %-8s %5.2f\n", best.c_str(), chosen.c_str(), chosen_us / best_us);
  std::fflush(stdout);
}

std::vector<uint64_t> numbers(const char* text) {
  std::vector<uint64_t> all;
  std::stringstream in(text);
  for (std::string item; std::getline(in, item, ',');) all.push_back(std::stoull(item));
  return all;
}

int run(int argc, char** argv) {
  const auto argument = [&](int i, const char* standard) { return argc > i ? argv[i] : standard; };
  const std::string link = argument(1, "infiniband");
  std::printf(
      "# %s; us simulated/predicted by algorithm; the best, the one chosen, its time over "
      "the best's\n# hosts  each  elements",
      link.c_str());
  for (const DenseAlgorithm& algorithm : kDenseAlgorithms) std::printf(" %19s", algorithm.name);
  std::printf("  best     chosen   ratio\n");
  const uint64_t domains = std::stoull(argument(5, "1"));
  for (const uint64_t each : numbers(argument(3, "1"))) {
    for (const uint64_t hosts : numbers(argument(2, "2,4,8,16,32,64"))) {
      for (const uint64_t elements : numbers(argument(4, "16,1024,8192,65536,524288,4194304"))) {
        const uint64_t world = hosts * each;
        if (world * elements > kElementsMax || world * world > kPairsMax) continue;
        compare(link, static_cast<uint32_t>(hosts), static_cast<uint32_t>(each), elements,
                static_cast<uint32_t>(domains));
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace parallax::scale

int main(int argc, char** argv) { return parallax::scale::run(argc, argv); }
