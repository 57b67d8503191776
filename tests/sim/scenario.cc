// SPDX-License-Identifier: Apache-2.0
// Drawing of scenarios. Extremes are drawn more often than chance would: one row, one element, one
// rank on a host, nothing contributed.
#include "sim/scenario.h"

#include <algorithm>
#include <cmath>

#include "support/drawn_rates.h"
#include "support/slot_maps.h"
#include "variable/fused_tables.h"

namespace parallax::simtest {
namespace {

void draw_hosts(SeededRandom& random, Scenario* scenario) {
  const uint32_t world = scenario->world;
  const auto hosts =
      static_cast<uint32_t>(random.between(1, std::min(world, world > 12 ? 16u : 6u)));
  const bool even = random.chance(50);
  const bool scattered = random.chance(25);
  std::vector<std::string> names(world);
  for (uint32_t rank = 0; rank < world; ++rank) {
    uint64_t host = even ? rank * hosts / world : random.below(hosts);
    if (scattered) host = even ? rank % hosts : host;
    names[rank] = "host" + std::to_string(host);
  }
  scenario->hosts = map_hosts(names);
}

// On some jobs' hosts ranks lie in several domains of memory, and know it.
void draw_domains(uint64_t seed, Scenario* scenario) {
  SeededRandom random = SeededRandom(seed).fork(83);
  if (!random.chance(40)) return;
  const uint64_t domains = 2 + random.below(3);
  std::vector<NearMemory> places;
  for (uint32_t rank = 0; rank < scenario->world; ++rank) {
    places.push_back({.node = static_cast<uint32_t>(random.below(domains))});
  }
  set_domains(&scenario->hosts, places);
  const auto& domain_of = scenario->hosts.domain_of;
  scenario->sim.domain_of.assign(domain_of.begin(), domain_of.end());
}

void draw_shape(SeededRandom& random, const ScenarioLimits& limits, parallax_variable_t* variable) {
  const uint64_t widths[] = {1, 1, 2, 3, 7, 16, 40, 300};
  variable->row_elements = widths[random.below(8)];
  const uint64_t rows_max = std::max<uint64_t>(1, limits.elements_max / variable->row_elements);
  const uint64_t row_bounds[] = {1, 4, 30, 400, 4000};
  const uint64_t bound = std::min(rows_max, row_bounds[random.below(5)]);
  variable->rows = 1 + random.below(bound);
}

parallax_variable_t draw_variable(SeededRandom& random, const Scenario& scenario,
                                  const ScenarioLimits& limits) {
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  draw_shape(random, limits, &variable);
  const bool ids = random.chance(60);
  if (ids) {
    const uint64_t bounds[] = {1, 3, 12, 60};
    variable.rows_max = 1 + random.below(bounds[random.below(4)]);
    variable.tag = random.chance(50) ? PARALLAX_SPARSE : PARALLAX_AUTO;
  } else {
    variable.tag = random.chance(50) ? PARALLAX_DENSE : PARALLAX_AUTO;
  }
  if (random.chance(70)) {
    variable.rule = random.chance(50) ? PARALLAX_RULE_SGD : PARALLAX_RULE_ADAGRAD;
    variable.reduction = static_cast<uint32_t>(random.below(3));
    if (random.chance(70)) {
      variable.init = PARALLAX_INIT_UNIFORM;
      variable.init_low = -1;
      variable.init_high = 1;
      variable.init_seed = random.next();
    } else {
      variable.init_low = 0.25f;
    }
    if (variable.rule == PARALLAX_RULE_ADAGRAD) {
      variable.initial_accumulator_value = random.chance(50) ? 0.1f : 0.0f;
      variable.epsilon = random.chance(50) ? 1e-6f : 0.0f;
    }
  } else if (random.chance(50)) {
    variable.reduction = PARALLAX_MEAN_CONTRIBUTORS;
  }
  (void)scenario;
  return variable;
}

void draw_machine(SeededRandom& random, Scenario* scenario) {
  SimOptions& sim = scenario->sim;
  sim.world = scenario->world;
  sim.host_of = scenario->hosts.host_of;
  sim.seed = random.next();
  const size_t message_bytes[] = {4096, 5000, 16384, 65536, 262144};
  sim.message_bytes_max = message_bytes[random.below(5)];
  sim.incast_penalty = random.chance(30) ? 0.5 : 0;
  const int64_t jitters_ns[] = {0, 2 * kMicrosecond, 30 * kMicrosecond, 300 * kMicrosecond};
  sim.intra_host.jitter_ns = jitters_ns[random.below(4)];
  sim.inter_host.jitter_ns = jitters_ns[random.below(4)];
  sim.inter_host.latency_ns = random.between(1 * kMicrosecond, 40 * kMicrosecond);
  sim.inter_host.bytes_per_second = random.chance(50) ? 12.5e9 : 0.5e9;
  scenario->lease_ns = random.between(40, 120) * kMillisecond;
  scenario->think_ns_max = random.chance(50) ? 0 : 200 * kMicrosecond;
}

// Some jobs commit again between steps, with variables of any kind, or with none. The first step
// has at least one.
void draw_registrations(uint64_t seed, Scenario* scenario) {
  SeededRandom random = SeededRandom(seed).fork(80);
  scenario->own_orders = random.chance(60);
  scenario->empty_commit_percent = random.chance(20) ? 40 : 0;
  scenario->mismatch_variable = static_cast<uint32_t>(random.below(scenario->variables.size()));
  scenario->mismatch_left_out = random.chance(50);
  if (!random.chance(40)) return;
  const uint32_t late_percent = random.chance(50) ? 30 : 70;
  for (size_t i = 0; i < scenario->variables.size(); ++i) {
    // The last step of all only reads.
    const bool late = i > 0 && random.chance(late_percent);
    scenario->first_steps.push_back(late ? 1 + random.below(scenario->steps + 1) : 1);
  }
}

// Some jobs have several of one kind as well, which go as one.
void draw_small_tables(uint64_t seed, Scenario* scenario) {
  SeededRandom random = SeededRandom(seed).fork(84);
  if (!random.chance(20)) return;
  parallax_variable_t table = {};
  table.size = sizeof table;
  const uint64_t widths[] = {1, 3, 16};
  table.row_elements = widths[random.below(3)];
  table.tag = PARALLAX_SPARSE;
  const uint32_t rules[] = {PARALLAX_RULE_SGD, PARALLAX_RULE_ADAGRAD, PARALLAX_RULE_ADAM};
  // Whose steps say nothing of how far off a sum may be.
  table.rule = rules[random.below(scenario->bitwise() ? 3 : 2)];
  table.reduction = static_cast<uint32_t>(random.below(3));
  table.init = PARALLAX_INIT_UNIFORM;
  table.init_low = -1;
  table.init_high = 1;
  if (scenario->rates_groups > 0) {
    table.rates = static_cast<uint32_t>(random.below(scenario->rates_groups));
  }
  if (SeededRandom(seed).fork(85).chance(40)) {  // the framework holds them
    table.rule = PARALLAX_RULE_NONE;
    table.reduction = PARALLAX_SUM;
    table.rates = 0;
    table.init = PARALLAX_INIT_CONSTANT;
    table.init_low = table.init_high = 0;
  }
  for (uint64_t i = kFusedMin + random.below(4); i > 0; --i) {
    table.rows_max = 1 + random.below(12);
    table.rows = table.rows_max + 1 + random.below(40);
    table.init_seed = random.next();
    if (table.rule == PARALLAX_RULE_NONE) table.init_seed = 0;
    scenario->variables.push_back(table);
    scenario->names.push_back("v" + std::to_string(scenario->names.size()));
    scenario->own_rules.push_back(false);
  }
}

// Of rows that the framework holds: enough for a row of each rank in every array, so that some go
// in many chunks and none is refused. Some are made dense.
void draw_ceilings(uint64_t seed, Scenario* scenario) {
  SeededRandom random = SeededRandom(seed).fork(82);
  const uint64_t world = scenario->world;
  for (parallax_variable_t& variable : scenario->variables) {
    if (variable.rule != PARALLAX_RULE_NONE || variable.rows_max == 0) continue;
    const uint64_t bytes = world * (world + 16) * (4 * variable.row_elements + 40) + 12288;
    if (!random.chance(60)) continue;
    variable.exchange_bytes_max = bytes * (1 + random.below(2));
    if (random.chance(30)) variable.method = PARALLAX_METHOD_MADE_DENSE;
  }
}

float draw_number(SeededRandom& random, Numbers numbers) {
  switch (numbers) {
    case Numbers::kExact:
      return static_cast<float>(random.between(-64, 64)) / 64;
    case Numbers::kPositive:
      return 0.5f + static_cast<float>(random.unit());
    case Numbers::kAny:
      break;
  }
  if (random.chance(4)) return random.chance(50) ? 0.0f : -0.0f;
  const auto magnitude = static_cast<int>(random.between(-12, 4));
  return std::ldexp(static_cast<float>(random.unit() * 2 - 1), magnitude);
}

int64_t draw_row(SeededRandom& random, uint64_t rows) {
  // Skewed, so that ranks meet at the same rows; now and then anywhere.
  const uint64_t a = random.below(rows);
  const uint64_t b = random.below(rows);
  return static_cast<int64_t>(random.chance(60) ? a * b / rows : a);
}

}  // namespace

Scenario make_scenario(uint64_t seed, const ScenarioLimits& limits) {
  Scenario scenario;
  scenario.seed = seed;
  SeededRandom random = SeededRandom(seed).fork(77);
  scenario.world =
      static_cast<uint32_t>(random.chance(20)  ? random.between(1, 3)
                            : random.chance(5) ? random.between(2, limits.large_world_max)
                                               : random.between(2, limits.world_max));
  draw_hosts(random, &scenario);
  draw_machine(random, &scenario);
  scenario.plan_mode = static_cast<parallax_plan_mode_t>(random.below(4));
  scenario.plan_after_steps = static_cast<uint32_t>(random.between(1, 4));
  scenario.deterministic = random.chance(50);
  scenario.numbers = random.chance(50)        ? Numbers::kExact
                     : scenario.deterministic ? Numbers::kAny
                                              : Numbers::kPositive;
  scenario.steps = static_cast<uint32_t>(random.between(1, 8));
  scenario.pipelined = random.chance(60);
  scenario.waits_in_step = random.chance(40);
  scenario.late_jobs = random.chance(40);
  const auto count = static_cast<uint32_t>(random.between(1, 6));
  for (uint32_t i = 0; i < count; ++i) {
    scenario.variables.push_back(draw_variable(random, scenario, limits));
    scenario.names.push_back("v" + std::to_string(i));
  }
  scenario.end_step = 1 + random.below(scenario.steps);
  const uint64_t ending = random.below(100);
  const auto someone = static_cast<uint32_t>(random.below(scenario.world));
  if (ending < 2) scenario.abort_rank = someone;
  if (ending == 2) scenario.cancel_rank = someone;
  if (ending == 3 && scenario.world > 1) scenario.mismatch_rank = someone;
  scenario.exits_at_once = random.chance(50);
  // By chances of their own, so that a seed draws the rest as it did without them.
  if (SeededRandom(seed).fork(78).chance(30)) {
    scenario.slots = testkit::uneven_slots(scenario.world, seed);
  }
  SeededRandom rates = SeededRandom(seed).fork(79);
  if (rates.chance(40)) {
    const uint32_t groups[] = {1, 2, 3, PARALLAX_RATES_MAX};
    scenario.rates_groups = groups[rates.below(4)];
    for (parallax_variable_t& variable : scenario.variables) {
      if (variable.rule == PARALLAX_RULE_NONE) continue;
      variable.rates = static_cast<uint32_t>(rates.below(scenario.rates_groups));
    }
  }
  SeededRandom own = SeededRandom(seed).fork(80);
  for (const parallax_variable_t& variable : scenario.variables) {
    scenario.own_rules.push_back(variable.rule != PARALLAX_RULE_NONE && own.chance(35));
  }
  draw_small_tables(seed, &scenario);
  scenario.early = SeededRandom(seed).fork(81).chance(80);
  draw_ceilings(seed, &scenario);
  draw_domains(seed, &scenario);
  draw_registrations(seed, &scenario);
  return scenario;
}

std::vector<uint32_t> Scenario::registered_before(uint64_t step, uint32_t rank) const {
  std::vector<uint32_t> all;
  for (uint32_t variable = 0; variable < variables.size(); ++variable) {
    if (first_step(variable) == step) all.push_back(variable);
  }
  SeededRandom random = this->random(9, step, rank);
  for (size_t i = all.size(); own_orders && i > 1; --i) {
    std::swap(all[i - 1], all[random.below(i)]);
  }
  return all;
}

bool Scenario::commit_before(uint64_t step) const {
  if (step == 1 || std::find(first_steps.begin(), first_steps.end(), step) != first_steps.end()) {
    return true;
  }
  return random(11, step, 0).chance(empty_commit_percent);
}

StepChoice Scenario::step(uint64_t step) const {
  StepChoice choice;
  SeededRandom random = this->random(1, step, 0);
  choice.absent.assign(world, false);
  if (step > steps) return choice;  // reads only
  choice.learning_rate = random.chance(10) ? 0.0f : static_cast<float>(0.01 + random.unit());
  if (random.chance(35)) choice.clip_norm = static_cast<float>(0.05 + 20 * random.unit());
  if (random.chance(12)) choice.found_inf_rank = static_cast<uint32_t>(random.below(world));
  if (random.chance(3) && world > 1) {
    choice.other_rate_rank = static_cast<uint32_t>(random.below(world));
  }
  // Where only bounds can be told, without what makes errors grow.
  SeededRandom rates = this->random(8, step, 0);
  if (rates_groups > 0 && rates.chance(80)) {
    choice.rates = testkit::draw_rates(rates, rates_groups, bitwise(), !bitwise());
  }
  const uint32_t absent_percent = random.chance(20) ? 60 : random.chance(30) ? 20 : 0;
  for (uint32_t rank = 0; rank < world; ++rank) {
    choice.absent[rank] = random.chance(absent_percent);
  }
  return choice;
}

Contribution Scenario::contribution(uint64_t step, uint32_t rank, uint32_t variable) const {
  Contribution contribution;
  if (step > steps || step < first_step(variable)) return contribution;
  if (this->step(step).absent[rank]) return contribution;
  SeededRandom random = this->random(2, step, uint64_t{rank} * 1000 + variable);
  // Where reduces are waited for in the step, all ranks must give them: two ranks that each wait
  // for what the other will not give are their programs' mistake.
  contribution.contributed = random.chance(85) || (waits_in_step && !managed(variable));
  if (!contribution.contributed) return contribution;
  const parallax_variable_t& shape = variables[variable];
  uint64_t count = shape.rows;
  if (ids(variable)) {
    count = random.chance(10)   ? 0
            : random.chance(20) ? shape.rows_max
                                : random.below(shape.rows_max + 1);
    for (uint64_t i = 0; i < count; ++i) contribution.ids.push_back(draw_row(random, shape.rows));
  }
  const bool zeros = random.chance(5);
  contribution.values.resize(count * shape.row_elements);
  for (float& value : contribution.values) value = zeros ? 0.0f : draw_number(random, numbers);
  return contribution;
}

std::vector<std::vector<PullChoice>> Scenario::pulls(uint64_t step, uint32_t rank) const {
  std::vector<std::vector<PullChoice>> calls;
  SeededRandom random = this->random(3, step, rank);
  if (step > steps) {
    // Everything, in as many calls as rows_max makes of it; a few ranks suffice.
    if (rank != 0 && !random.chance(30)) return calls;
    for (uint32_t variable = 0; variable < variables.size(); ++variable) {
      if (!managed(variable)) continue;
      const parallax_variable_t& shape = variables[variable];
      const uint64_t chunk = ids(variable) ? shape.rows_max : shape.rows;
      if (shape.rows / chunk > 60) continue;  // rows of it were read on the way
      for (uint64_t row = 0; row < shape.rows; row += chunk) {
        PullChoice pull{variable, {}};
        for (uint64_t i = row; ids(variable) && i < std::min(shape.rows, row + chunk); ++i) {
          pull.ids.push_back(static_cast<int64_t>(i));
        }
        calls.push_back({pull});
      }
    }
    return calls;
  }
  const uint64_t count = random.below(4);
  for (uint64_t call = 0; call < count; ++call) {
    std::vector<PullChoice> slices;
    for (uint32_t variable = 0; variable < variables.size(); ++variable) {
      if (!managed(variable) || !random.chance(60) || step < first_step(variable)) continue;
      PullChoice pull{variable, {}};
      const uint64_t rows = ids(variable) ? random.below(variables[variable].rows_max + 1) : 0;
      for (uint64_t i = 0; i < rows; ++i) {
        pull.ids.push_back(draw_row(random, variables[variable].rows));
      }
      slices.push_back(std::move(pull));
    }
    calls.push_back(std::move(slices));
  }
  return calls;
}

uint64_t Scenario::broadcast_bytes(uint64_t step) const {
  SeededRandom random = this->random(6, step, 0);
  if (!random.chance(30)) return UINT64_MAX;
  const uint64_t bounds[] = {1, 100, 10'000, 200'000};
  return random.below(bounds[random.below(4)]);
}

uint32_t Scenario::broadcast_root(uint64_t step) const {
  return static_cast<uint32_t>(random(7, step, 0).below(world));
}

std::byte Scenario::broadcast_byte(uint64_t step, uint64_t index) const {
  return static_cast<std::byte>((step * 131 + index * 7 + (index >> 8)) & 0xff);
}

std::vector<testkit::CollectiveCase> Scenario::collectives(uint64_t step) const {
  constexpr uint64_t kNumbersMax = 3000;  // of a buffer
  // What a case draws is a count for each pair of ranks, and every rank draws it for itself.
  constexpr uint32_t kWorldMax = 64;
  if (world > kWorldMax) return {};
  SeededRandom random = this->random(8, step, 0);
  std::vector<testkit::CollectiveCase> all(random.chance(50) ? 0 : random.below(4));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = testkit::CollectiveCase::draw(random.fork(i), world);
    all[i].count %= 1 + kNumbersMax / world;
    all[i].draw_counts(all[i].count);
    all[i].tag = random.chance(50) ? 0 : 1 + random.below(2);
  }
  return all;
}

std::string Scenario::describe() const {
  const char* modes[] = {"AUTO", "HYBRID", "PS", "AR"};
  const char* draws[] = {"exact", "any", "positive"};
  std::string text = "world=" + std::to_string(world) + " hosts=[";
  for (uint32_t rank = 0; rank < world; ++rank) {
    text += (rank > 0 ? "," : "") + std::to_string(hosts.host_of[rank]);
  }
  for (size_t rank = 0; rank < hosts.domain_of.size(); ++rank) {
    text += (rank > 0 ? "," : "] domains=[") + std::to_string(hosts.domain_of[rank]);
  }
  text += std::string("] plan=") + modes[plan_mode] + " after=" + std::to_string(plan_after_steps) +
          (deterministic ? " deterministic" : "") +
          " numbers=" + draws[static_cast<size_t>(numbers)] + " steps=" + std::to_string(steps) +
          (pipelined ? " pipelined" : "") + (waits_in_step ? " waits" : "") +
          (late_jobs ? " late_jobs" : "") + (early ? " early" : "") +
          (staleness > 0 ? " staleness=" + std::to_string(staleness) : "") +
          " message_bytes_max=" + std::to_string(sim.message_bytes_max) +
          " lease=" + std::to_string(lease_ns / kMillisecond) + "ms variables=[";
  for (uint32_t i = 0; i < variables.size(); ++i) {
    const parallax_variable_t& v = variables[i];
    const char* rules[] = {"held", "sgd", "adagrad", "adam"};
    text += (i > 0 ? ", " : "") + names[i] + ":" + std::to_string(v.rows) + "x" +
            std::to_string(v.row_elements) + (own_rule(i) ? " own " : " ") + rules[v.rule] +
            " reduction=" + std::to_string(v.reduction) + " rows_max=" + std::to_string(v.rows_max);
  }
  text += "]";
  if (abort_rank != UINT32_MAX) text += " abort by " + std::to_string(abort_rank);
  if (cancel_rank != UINT32_MAX) text += " cancel by " + std::to_string(cancel_rank);
  if (mismatch_rank != UINT32_MAX) text += " mismatch by " + std::to_string(mismatch_rank);
  if (own_orders) text += " own_orders";
  for (size_t i = 0; i < first_steps.size(); ++i) {
    if (first_steps[i] > 1) text += " " + names[i] + " from step " + std::to_string(first_steps[i]);
  }
  return text;
}

}  // namespace parallax::simtest
