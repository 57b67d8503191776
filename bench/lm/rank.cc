// SPDX-License-Identifier: Apache-2.0
#include "rank.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <numeric>
#include <utility>

namespace lm {
namespace {

constexpr size_t kReadsInFlight = 8;
constexpr int64_t kReturnBuffersMs = 10'000;
constexpr size_t kReportBytesMax = size_t{1} << 28;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Request::Request(Request&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}

Request& Request::operator=(Request&& other) noexcept {
  if (this != &other) {
    release();
    request_ = std::exchange(other.request_, nullptr);
  }
  return *this;
}

Request::~Request() { release(); }

// Pending here means that an error is on its way up: the buffers that the request borrowed are
// about to go, so it must complete first, as it soon does once the job is lost or aborted.
void Request::release() {
  if (request_ == nullptr) return;
  if (parallax_request_test(request_) == PARALLAX_PENDING) {
    (void)parallax_wait(&request_, 1, kReturnBuffersMs);
  }
  (void)parallax_request_release(std::exchange(request_, nullptr));
}

Rank::Rank(const parallax_options_t& options, const VariableSpecs& specs,
           const VariableOptions& variable_options)
    : rank_(options.rank), specs_(specs) {
  check(parallax_open(&options, &job_), "open");
  try {
    register_variables(variable_options);
    check(parallax_commit(job_), "commit");
  } catch (...) {
    (void)parallax_close(std::exchange(job_, nullptr));  // the first error is the one to tell
    throw;
  }
}

Rank::~Rank() {
  // Only after an error; close() reports.
  device_.reset();
  if (job_ != nullptr) {
    (void)parallax_abort(job_, "the trainer gave up");
    (void)parallax_close(job_);
  }
}

void Rank::register_variables(const VariableOptions& options) {
  for (size_t v = 0; v < specs_.size(); ++v) {
    const VariableSpec& spec = specs_[v];
    parallax_variable_t variable = {};
    variable.size = sizeof variable;
    variable.name = spec.name.c_str();
    variable.rows = spec.rows;
    variable.row_elements = spec.row_elements;
    variable.dtype = PARALLAX_F32;
    variable.tag = !options.declare_tags ? PARALLAX_AUTO
                   : spec.sparse()       ? PARALLAX_SPARSE
                                         : PARALLAX_DENSE;
    variable.reduction = options.reduction;
    variable.rule = options.rule;
    variable.rows_max = spec.rows_max;
    if (!options.start_at_zero) {
      variable.init =
          spec.init_low == spec.init_high ? PARALLAX_INIT_CONSTANT : PARALLAX_INIT_UNIFORM;
      variable.init_low = spec.init_low;
      variable.init_high = spec.init_high;
      variable.init_seed = spec.init_seed;
    }
    if (options.rule == PARALLAX_RULE_ADAGRAD) {
      variable.initial_accumulator_value = options.initial_accumulator;
    }
    check(parallax_register(job_, &variable, &ids_[v]), "register '" + spec.name + "'");
  }
}

void Rank::check(parallax_status_t status, const std::string& what) const {
  if (status == PARALLAX_OK) return;
  throw RankError("rank " + std::to_string(rank_) + ": " + what + ": " +
                  parallax_status_string(status) + ": " + parallax_last_error());
}

parallax_slice_t Rank::slice(size_t variable, const Batch& batch, Tensors* tensors) const {
  parallax_slice_t slice = {};
  slice.size = sizeof slice;
  slice.variable = ids_[variable];
  slice.form = PARALLAX_FORM_DENSE;
  slice.values = (*tensors)[variable].data();
  if (specs_[variable].sparse()) {
    slice.form = PARALLAX_FORM_ROWS;
    slice.ids = batch.ids(variable).data();
    slice.row_count = batch.ids(variable).size();
  }
  return slice;
}

void Rank::use_device() {
  // Of pulls and of pushes: a slot for the numbers of each variable, and one for its ids.
  device_ = std::make_unique<DeviceMemory>(job_, info().local_rank, 4 * kVariableCount);
}

// Puts what a slice has on the device: what is pushed goes there on the stream that the slice
// names.
void Rank::place(parallax_slice_t* slice, size_t variable, const Batch& batch, Tensors* tensors,
                 bool pushed) {
  if (device_ == nullptr) return;
  const std::vector<float>& values = (*tensors)[variable];
  const size_t bytes = values.size() * sizeof(float);
  const size_t slot = 2 * variable + (pushed ? 2 * kVariableCount : 0);
  slice->memory = PARALLAX_MEMORY_CUDA;
  slice->device = device_->device();
  slice->stream = device_->stream();
  slice->values = pushed ? device_->put(slot, values.data(), bytes) : device_->room(slot, bytes);
  if (!specs_[variable].sparse()) return;
  const auto& ids = batch.ids(variable);
  slice->ids =
      static_cast<const int64_t*>(device_->put(slot + 1, ids.data(), ids.size() * sizeof(int64_t)));
}

void Rank::land(const std::vector<parallax_request_t*>& completed) {
  if (landing_.to == nullptr ||
      std::find(completed.begin(), completed.end(), landing_.request) == completed.end()) {
    return;
  }
  for (size_t v = 0; v < specs_.size(); ++v) {
    std::vector<float>& values = (*landing_.to)[v];
    device_->get(values.data(), landing_.from[v], values.size() * sizeof(float));
  }
  landing_ = {};
}

uint64_t Rank::step_begin() {
  uint64_t step = 0;
  check(parallax_step_begin(job_, &step), "step_begin");
  return step;
}

Request Rank::pull(uint64_t step, const Batch& batch, Tensors* values) {
  std::array<parallax_slice_t, kVariableCount> slices;
  for (size_t v = 0; v < specs_.size(); ++v) {
    const size_t rows = specs_[v].sparse() ? batch.ids(v).size() : specs_[v].rows;
    (*values)[v].resize(rows * specs_[v].row_elements);
    slices[v] = slice(v, batch, values);
    place(&slices[v], v, batch, values, false);
  }
  Request request;
  check(parallax_pull(job_, step, slices.data(), slices.size(), request.out()),
        "pull of step " + std::to_string(step));
  if (device_ != nullptr) {
    landing_ = {.request = request.get(), .to = values};
    for (size_t v = 0; v < specs_.size(); ++v) landing_.from[v] = slices[v].values;
  }
  return request;
}

Request Rank::push(uint64_t step, const Batch& batch, Tensors* gradients) {
  std::array<parallax_slice_t, kVariableCount> slices;
  for (size_t v = 0; v < specs_.size(); ++v) {
    slices[v] = slice(v, batch, gradients);
    place(&slices[v], v, batch, gradients, true);
  }
  Request request;
  check(parallax_push(job_, step, slices.data(), slices.size(), request.out()),
        "push of step " + std::to_string(step));
  return request;
}

Request Rank::step_end(uint64_t step, const parallax_step_end_options_t& options) {
  Request request;
  check(parallax_step_end(job_, step, &options, request.out()),
        "step_end of step " + std::to_string(step));
  return request;
}

parallax_step_info_t Rank::step_info(const Request& request) {
  parallax_step_info_t info = {};
  info.size = sizeof info;
  check(parallax_request_step(request.get(), &info), "outcome of a step");
  return info;
}

void Rank::wait(const std::vector<const Request*>& requests, const std::string& what) {
  std::vector<parallax_request_t*> raw;
  for (const Request* request : requests) raw.push_back(request->get());
  const auto start = std::chrono::steady_clock::now();
  const parallax_status_t status = parallax_wait(raw.data(), raw.size(), PARALLAX_WAIT_DEFAULT);
  wait_seconds_ += seconds_since(start);
  if (status == PARALLAX_OK) {
    land(raw);
    return;
  }
  std::string sentence = parallax_last_error();
  for (parallax_request_t* request : raw) {
    const std::string own = parallax_request_error(request);
    if (!own.empty() && own != sentence) sentence += "; " + own;
  }
  (void)parallax_abort(job_, ("rank " + std::to_string(rank_) + " gave up: " + sentence).c_str());
  throw RankError("rank " + std::to_string(rank_) + ": " + what + ": " +
                  parallax_status_string(status) + ": " + sentence);
}

void Rank::barrier() {
  Request request;
  check(parallax_barrier(job_, request.out()), "barrier");
  wait({&request}, "barrier");
}

Tensors Rank::read_all(uint64_t step) {
  Tensors values;
  std::deque<Request> requests;
  std::deque<std::vector<int64_t>> ids;  // borrowed with its request
  const auto drain = [&](size_t most) {
    while (requests.size() > most) {
      wait({&requests.front()}, "reading the variables");
      requests.pop_front();
      ids.pop_front();
    }
  };
  for (size_t v = 0; v < specs_.size(); ++v) {
    const VariableSpec& spec = specs_[v];
    values[v].resize(spec.elements());
    const uint64_t chunk = spec.sparse() ? spec.rows_max : spec.rows;
    for (uint64_t first = 0; first < spec.rows; first += chunk) {
      drain(kReadsInFlight - 1);
      parallax_slice_t slice = {};
      slice.size = sizeof slice;
      slice.variable = ids_[v];
      slice.values = values[v].data() + first * spec.row_elements;
      std::vector<int64_t>& rows = ids.emplace_back();
      if (spec.sparse()) {
        rows.resize(std::min(chunk, spec.rows - first));
        std::iota(rows.begin(), rows.end(), static_cast<int64_t>(first));
        slice.form = PARALLAX_FORM_ROWS;
        slice.ids = rows.data();
        slice.row_count = rows.size();
      }
      check(parallax_pull(job_, step, &slice, 1, requests.emplace_back().out()),
            "reading '" + spec.name + "'");
    }
  }
  drain(0);
  return values;
}

std::string Rank::report(uint32_t kind) {
  // Doubling, because counters may gain digits between two calls.
  for (size_t room = 1 << 16;; room *= 2) {
    std::string text(room, '\0');
    size_t bytes = room;
    const parallax_status_t status = parallax_report(job_, kind, text.data(), &bytes);
    if (status == PARALLAX_OK) return text.substr(0, text.find('\0'));
    if (status != PARALLAX_LIMIT || room > kReportBytesMax) check(status, "report");
  }
}

parallax_job_info_t Rank::info() {
  parallax_job_info_t info = {};
  info.size = sizeof info;
  check(parallax_query(job_, &info), "query");
  return info;
}

void Rank::close() {
  device_.reset();
  check(parallax_close(std::exchange(job_, nullptr)), "close");
}

}  // namespace lm
