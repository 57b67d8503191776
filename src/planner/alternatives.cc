// SPDX-License-Identifier: Apache-2.0
// Alternatives: why each way of handling a variable won or lost, in sentences with figures. Pure;
// any thread; nothing blocks.
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "planner/choice.h"
#include "planner/cost.h"
#include "planner/plan.h"
#include "planner/row_time.h"

namespace parallax {
namespace {

// What the sentences about one variable have in common.
struct Context {
  const VariableFacts& facts;
  const TopologyFacts& topology;
  parallax_plan_mode_t mode;
  Choice choice;
  VariablePlan by_figures;  // what settled_choice says now
  double least;             // of what they are compared by, and the pin allows; NaN: unknown
  double chosen;            // NaN: unknown
  double chosen_bytes;      // NaN: unknown
  size_t allowed_count;
};

double predicted_bytes(Method method, const VariableFacts& facts, const TopologyFacts& topology) {
  if (is_unused(facts)) return 0;
  if (!facts.measured && cost::needs_measurement(method, facts, topology)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return cost::received_bytes(method, facts, topology);
}

// NaN where methods are not compared by time, or it is unknown.
double predicted_us(Method method, const VariableFacts& facts, const TopologyFacts& topology) {
  if (!goes_by_time(facts) || !facts.measured) return std::numeric_limits<double>::quiet_NaN();
  return is_unused(facts) ? 0 : compared(method, facts, topology);
}

// By what it is compared.
double predicted(Method method, const VariableFacts& facts, const TopologyFacts& topology) {
  return goes_by_time(facts) ? predicted_us(method, facts, topology)
                             : predicted_bytes(method, facts, topology);
}

// "2.13x", with three digits where it is close to 1 and a near-tie must be told from a tie.
std::string ratio_text(double ratio) {
  const int digits = std::abs(ratio - 1) < 0.1 ? 3 : ratio < 10 ? 2 : 0;
  std::array<char, 512> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), ratio,
                                 std::chars_format::fixed, digits);
  return std::string(text.data(), end.ptr) + "x";
}

// In how many rounds, where there is a ceiling.
std::string chunks_text(const VariablePlan& plan, const VariableFacts& facts) {
  if (facts.ceiling.bytes_max == 0) return "";
  const Chunks& chunks = chunks_of(plan.method, facts);
  return "; in " + std::to_string(chunks.count) +
         (chunks.count == 1 ? " round" : " rounds of " + std::to_string(chunks.rows) + " rows") +
         ", which stage " + std::to_string(chunks.bytes) + " bytes (exchange_bytes_max is " +
         std::to_string(facts.ceiling.bytes_max) + ")";
}

std::string formula_of(const VariablePlan& plan, const Context& context) {
  return cost::formula(plan.method, context.facts, context.topology);
}

std::string time_of(const VariablePlan& plan, const Context& context) {
  return cost::time_text(cost::row_time(plan.method, context.facts, context.topology));
}

std::string form_text(const VariableFacts& facts) {
  return carries_rows(facts) ? "its slices carry row ids" : "its slices carry every row";
}

bool is_measurable_but_not_measured(const VariableFacts& facts) {
  return carries_rows(facts) && !facts.measured;
}

std::string tie_text(const VariableFacts& facts) { return goes_by_time(facts) ? "3%" : "1%"; }

std::string why_chosen(const VariablePlan& plan, const Context& context) {
  const VariableFacts& facts = context.facts;
  if (context.allowed_count == 1) {
    const bool by_mode = facts.managed && context.mode != PARALLAX_PLAN_AUTO;
    const std::string pin = pin_text(facts);
    const std::string reason = !pin.empty() ? "the only way that its pin allows (" + pin + ")"
                               : by_mode
                                   ? "the only way that plan mode " + mode_name(context.mode) +
                                         " allows where " + form_text(facts)
                               : facts.on_device ? "by form, and it stays: " + form_text(facts)
                                                 : "the only way where " + form_text(facts);
    return is_measurable_but_not_measured(facts) || is_unused(facts)
               ? reason
               : reason + ": " + formula_of(plan, context);
  }
  if (facts.given_dense && plan == context.by_figures && facts.ceiling.made_dense.count == 1) {
    return "it got a dense slice beside row ids, so it is dense from then on";
  }
  if (!context.choice.settled) return "by form, until rows are measured: " + form_text(facts);
  if (plan != context.by_figures) {
    return "the plan in force; the figures now favour " + method_name(context.by_figures.method);
  }
  if (is_measurable_but_not_measured(facts)) {
    return "by form, since nothing was measured: " + form_text(facts);
  }
  if (is_unused(facts)) return "never pulled nor pushed, so the initial choice stays";
  const bool by_time = goes_by_time(facts);
  const std::string figures =
      (by_time ? ", " + time_of(plan, context) : "") + ": " + formula_of(plan, context);
  if (context.chosen > context.least) {
    return "the initial choice, and within " + tie_text(facts) + " of the " +
           (by_time ? "least time" : "fewest bytes") + figures;
  }
  return (by_time ? "least time of " : "fewest bytes of ") + std::to_string(context.allowed_count) +
         " ways" + figures;
}

std::string why_lost(const VariablePlan& plan, const Alternative& of, const Context& context) {
  const double bytes = of.bytes_per_host;
  const bool by_time = goes_by_time(context.facts);
  const double weight = by_time ? of.microseconds : bytes;
  const std::string name = method_name(plan.method);
  const bool stays = context.facts.on_device && plan.placement != context.choice.plan.placement;
  const bool fits_mode = pin_allows(plan, context.facts, context.mode);
  const bool allowed = fits_mode && !stays;
  const std::string pin = pin_text(context.facts);
  const std::string lead = !fits_mode && !pin.empty() ? "excluded by its pin (" + pin + "); "
                           : !fits_mode ? "excluded by plan mode " + mode_name(context.mode) + "; "
                           : stays      ? "excluded, since its table lies on devices; "
                                        : "";
  if (is_unused(context.facts)) return lead + name + " would receive nothing either";
  if (std::isnan(bytes)) return lead + name + " cannot be predicted until rows are measured";
  const std::string formula = formula_of(plan, context);
  if (!(context.chosen_bytes > 0)) {  // nothing moves, or nothing is known
    return lead + name + " would receive " + cost::figure(bytes) + " bytes: " + formula;
  }
  std::string why = lead + name + " would ";
  if (by_time && context.chosen > 0) {  // not by constants that are all 0
    why += "take " + ratio_text(weight / context.chosen) + " the time, " + time_of(plan, context) +
           ", and ";
  }
  why += "receive " + ratio_text(bytes / context.chosen_bytes) + " the bytes: " + formula;
  // A loser that the figures do not put behind needs a reason of its own.
  if (!allowed || weight > context.chosen * (1 + near_tie(context.facts))) return why;
  if (!context.choice.settled) return why + "; the initial plan goes by form";
  if (context.choice.plan != context.by_figures) return why + "; the plan in force stays";
  return why + (weight == context.chosen ? "; a tie" : "; within " + tie_text(context.facts)) +
         (context.choice.plan == initial_choice(context.facts, context.mode)
              ? ", so the initial choice stays"
              : ", and no better");
}

}  // namespace

std::vector<Alternative> alternatives(const VariableFacts& facts, const TopologyFacts& topology,
                                      parallax_plan_mode_t mode, const Choice& choice) {
  Context context = {.facts = facts,
                     .topology = topology,
                     .mode = mode,
                     .choice = choice,
                     .by_figures = settled_choice(facts, topology, mode),
                     .least = std::numeric_limits<double>::quiet_NaN(),
                     .chosen = predicted(choice.plan.method, facts, topology),
                     .chosen_bytes = predicted_bytes(choice.plan.method, facts, topology),
                     .allowed_count = 0};
  const std::vector<VariablePlan> plans = fitting_plans(facts);
  for (const VariablePlan& plan : plans) {
    if (!pin_allows(plan, facts, mode)) continue;
    if (facts.on_device && plan.placement != choice.plan.placement) continue;
    ++context.allowed_count;
    context.least = std::fmin(context.least, predicted(plan.method, facts, topology));
  }
  std::vector<Alternative> found;
  found.reserve(plans.size());
  for (const VariablePlan& plan : plans) {
    Alternative& each = found.emplace_back();
    each.placement = plan.placement;
    each.method = plan.method;
    each.bytes_per_host = predicted_bytes(plan.method, facts, topology);
    each.microseconds = predicted_us(plan.method, facts, topology);
    each.chosen = plan == choice.plan;
    each.why = each.chosen ? why_chosen(plan, context) : why_lost(plan, each, context);
    each.why += chunks_text(plan, facts);
  }
  return found;
}

std::vector<Alternative> alternatives(const VariableFacts& facts, const TopologyFacts& topology,
                                      parallax_plan_mode_t mode) {
  return alternatives(facts, topology, mode,
                      {.plan = settled_choice(facts, topology, mode), .settled = true});
}

}  // namespace parallax
