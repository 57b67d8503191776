// SPDX-License-Identifier: Apache-2.0
// C ABI: steps and the collectives beside them. Contracts in parallax.h.
#include <vector>

#include "base/not_yet.h"
#include "capi/boundary.h"

namespace parallax {

namespace {

// The slices of a call in their full size. Elements lie at the distance that the first one's size
// says, which must be the same for all: the caller's sizeof.
// Those of a caller of this version lie as they must already: a step copies none. `full` holds the
// others'.
Status take_slices(const parallax_slice_t* in, size_t count, const char* call,
                   std::vector<parallax_slice_t>* full, std::span<const parallax_slice_t>* out) {
  if (count > PARALLAX_SLICES_MAX) {
    return invalid(std::string(call) + ": " + std::to_string(count) + " slices; at most " +
                   std::to_string(PARALLAX_SLICES_MAX) + " in one call")
        .about_field("count");
  }
  if (count == 0) return {};
  const bool readable =
      in != nullptr && reinterpret_cast<uintptr_t>(in) % alignof(parallax_slice_t) == 0;
  const size_t stride = readable ? in->size : 0;
  if (stride == sizeof *in && count == 1) {  // most calls
    *out = {in, 1};
    return {};
  }
  const std::string what = std::string(call) + ": slices";  // so short that it allocates nothing
  PARALLAX_RETURN_IF_ERROR(check_pointer(in, what.c_str()));
  PARALLAX_RETURN_IF_ERROR(check_size<parallax_slice_t>(stride, what.c_str()));
  for (size_t i = 0; i < count; ++i) {
    const auto* each = reinterpret_cast<const parallax_slice_t*>(
        reinterpret_cast<const std::byte*>(in) + i * stride);
    if (each->size != stride) {
      return invalid(what + "[" + std::to_string(i) + "]: size is " + std::to_string(each->size) +
                     ", that of slices[0] " + std::to_string(stride))
          .about_slice(i)
          .about_field("size");
    }
    if (stride == sizeof *in) continue;
    full->resize(count);
    PARALLAX_RETURN_IF_ERROR(take_struct(each, what.c_str(), &(*full)[i]));
  }
  *out = stride == sizeof *in ? std::span(in, count) : std::span<const parallax_slice_t>(*full);
  return {};
}

// A call that gives slices of a step, and what takes it.
struct SlicesCall {
  const char* name;
  Status (StepCalls::*take)(uint64_t step, std::span<const parallax_slice_t> slices,
                            Request** request);
  bool may_be_held = false;  // what it sends, where that is little, until the next call
};

parallax_status_t post_slices(const SlicesCall& call, parallax_job_t* job, uint64_t step,
                              const parallax_slice_t* slices, size_t count,
                              parallax_request_t** request) {
  return guarded_post(call.name, request, [&]() -> Status {
    std::vector<parallax_slice_t> full;
    std::span<const parallax_slice_t> taken;
    PARALLAX_RETURN_IF_ERROR(take_slices(slices, count, call.name, &full, &taken));
    PARALLAX_RETURN_IF_ERROR(check_job(job, call.name));
    job->job->devices().prepare(taken);
    uint32_t key = FollowedSoon::kNoKey;
    const auto take = [&](Engine& engine, Request** posted) {
      StepCalls& calls = engine.step_calls();
      const Status status = (calls.*call.take)(step, taken, posted);
      // Variables of parts have the same numbers.
      if (call.may_be_held && job->group == 0 && status.ok() && calls.sends_little(**posted)) {
        key = (*posted)->slices[0].variable;
      }
      return status;
    };
    return post(job, call.name, request, take, &key);
  });
}

using AllRates = std::array<parallax_rates_t, PARALLAX_RATES_MAX>;

// The rates of a step in their full size, one after the other; at the distance in the caller's that
// the first one's size says.
Status take_rates(const parallax_rates_t* in, uint32_t count, AllRates* out) {
  // Too many, or none where some are announced, is the engine's to say.
  if (in == nullptr || count == 0 || count > PARALLAX_RATES_MAX) return {};
  constexpr const char* kWhat = "step_end: rates";
  PARALLAX_RETURN_IF_ERROR(check_pointer(in, kWhat));
  const size_t stride = in->size;
  PARALLAX_RETURN_IF_ERROR(check_size<parallax_rates_t>(stride, kWhat));
  for (uint32_t i = 0; i < count; ++i) {
    const auto* each = reinterpret_cast<const parallax_rates_t*>(
        reinterpret_cast<const std::byte*>(in) + i * stride);
    if (each->size != stride) {
      return invalid(std::string(kWhat) + "[" + std::to_string(i) + "]: size is " +
                     std::to_string(each->size) + ", that of rates[0] " + std::to_string(stride))
          .about_field("size");
    }
    PARALLAX_RETURN_IF_ERROR(take_struct(each, kWhat, &(*out)[i]));
  }
  return {};
}

}  // namespace

}  // namespace parallax

using parallax::Engine;
using parallax::Request;
using parallax::Status;
using parallax::StepCalls;

extern "C" {

parallax_status_t parallax_step_begin(parallax_job_t* job, uint64_t* step) {
  return parallax::guarded("step_begin", [&]() -> Status {
    PARALLAX_RETURN_IF_ERROR(parallax::check_job(job, "step_begin"));
    if (step == nullptr) return parallax::invalid("step_begin: step is null").about_field("step");
    // Nothing that was posted waits for it: there is nothing for a pass to do.
    return job->job->progress().with_groups([&](parallax::JobGroups& groups) {
      return groups.group(job->group).step_calls().begin(step);
    });
  });
}

parallax_status_t parallax_pull(parallax_job_t* job, uint64_t step, const parallax_slice_t* slices,
                                size_t count, parallax_request_t** request) {
  return parallax::post_slices({"pull", &StepCalls::pull}, job, step, slices, count, request);
}

parallax_status_t parallax_push(parallax_job_t* job, uint64_t step, const parallax_slice_t* slices,
                                size_t count, parallax_request_t** request) {
  return parallax::post_slices({"push", &StepCalls::push}, job, step, slices, count, request);
}

parallax_status_t parallax_reduce(parallax_job_t* job, uint64_t step,
                                  const parallax_slice_t* slices, size_t count,
                                  parallax_request_t** request) {
  return parallax::post_slices({"reduce", &StepCalls::reduce, true}, job, step, slices, count,
                               request);
}

parallax_status_t parallax_step_end(parallax_job_t* job, uint64_t step,
                                    const parallax_step_end_options_t* options,
                                    parallax_request_t** request) {
  return parallax::guarded_post("step_end", request, [&]() -> Status {
    parallax_step_end_options_t full = {};
    full.size = sizeof full;
    if (options != nullptr) {
      PARALLAX_RETURN_IF_ERROR(parallax::take_struct(options, "step_end: options", &full));
    }
    PARALLAX_RETURN_IF_ERROR(
        parallax::refuse_not_yet("step_end: ", {{"reserved", full.reserved != 0}}));
    parallax::AllRates rates;
    PARALLAX_RETURN_IF_ERROR(parallax::take_rates(full.rates, full.rates_count, &rates));
    if (full.rates != nullptr) full.rates = rates.data();
    const std::pair<const char*, uint32_t> flags[] = {{"found_inf", full.found_inf},
                                                      {"absent", full.absent}};
    for (const auto& [field, value] : flags) {
      if (value <= 1) continue;
      return parallax::invalid(std::string("step_end: ") + field + " is " + std::to_string(value) +
                               "; it must be 0 or 1")
          .about_field(field);
    }
    return parallax::post(job, "step_end", request, [&](Engine& engine, Request** posted) {
      return engine.step_calls().end(step, full, posted);
    });
  });
}

parallax_status_t parallax_barrier(parallax_job_t* job, parallax_request_t** request) {
  return parallax::guarded_post("barrier", request, [&] {
    return parallax::post(job, "barrier", request, [](Engine& engine, Request** posted) {
      return engine.collective_calls().barrier(posted);
    });
  });
}

parallax_status_t parallax_broadcast(parallax_job_t* job, void* buffer, size_t bytes, uint32_t root,
                                     parallax_request_t** request) {
  return parallax::guarded_post("broadcast", request, [&] {
    return parallax::post(job, "broadcast", request, [&](Engine& engine, Request** posted) {
      return engine.collective_calls().broadcast(static_cast<std::byte*>(buffer), bytes, root,
                                                 posted);
    });
  });
}

}  // extern "C"
