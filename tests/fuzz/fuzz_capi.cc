// SPDX-License-Identifier: Apache-2.0
// Fuzz: sequences of calls of the C ABI with any numbers in any struct, by one rank. Pointers are
// valid or null. Answers are the header's, refusals have sentences, and nothing is left allocated.
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "drawn.h"
#include "parallax/parallax.h"

namespace {

using parallax::testkit::Drawn;
using parallax::testkit::kElements;
using parallax::testkit::kRowsMaxTaken;

constexpr int kCallsMax = 64;

class Caller : Drawn {
 public:
  explicit Caller(FuzzedDataProvider& data) : Drawn(data) {}

  ~Caller() { close(); }

  void run() {
    if (right_) {
      open();
      add_variable();
      add_variable();
      commit();
    }
    for (int call = 0; call < kCallsMax && data_.remaining_bytes() > 0; ++call) {
      (this->*kCalls[data_.ConsumeIntegralInRange<size_t>(0, kCalls.size() - 1)])();
    }
  }

 private:
  void check(parallax_status_t status) {
    if (status == PARALLAX_INTERNAL || status > PARALLAX_PENDING || status < PARALLAX_INTERNAL) {
      std::abort();
    }
    if (status >= 0) return;
    if (parallax_last_error()[0] == '\0') std::abort();
    Sized<parallax_error_info_t> info;
    set_size(&info);
    const size_t bytes = info.now.size;
    const parallax_status_t told = parallax_last_error_info(rarely() ? nullptr : &info.now);
    if (told == PARALLAX_OK && bytes >= offsetof(parallax_error_info_t, rank) &&
        info.now.status != status) {
      std::abort();
    }
    if (told != PARALLAX_OK && right_) std::abort();
    if (parallax_last_error()[0] == '\0') std::abort();
  }
  void keep(parallax_status_t status, parallax_request_t* request) {
    check(status);
    if (status == PARALLAX_OK) requests_.push_back(request);
  }
  parallax_request_t* any_request() {
    if (requests_.empty()) return nullptr;
    return requests_[data_.ConsumeIntegralInRange<size_t>(0, requests_.size() - 1)];
  }

  // The one part that is kept, of this rank alone or of what no list may be.
  void split() {
    if (part_ != nullptr) return close_part();
    const uint32_t ranks[] = {number<uint32_t>(0, 1), number<uint32_t>(0, 1)};
    const parallax_status_t status = parallax_split(
        job_, rarely() ? nullptr : ranks, number<size_t>(1, 2) % 3, rarely() ? nullptr : &part_);
    check(status);
    if ((part_ != nullptr) != (status == PARALLAX_OK)) std::abort();
  }
  void close_part() {
    check(parallax_close(part_));
    part_ = nullptr;
  }

  // After it a request may only be tested and released, and no memory of the job is left.
  void close() {
    if (part_ != nullptr && parallax_close(job_) != PARALLAX_STATE) std::abort();
    close_part();
    check(parallax_close(job_));
    job_ = nullptr;
    for (parallax_request_t* request : requests_) {
      check(parallax_request_test(request));
      check(parallax_request_release(request));
    }
    requests_.clear();
    buffer_ = nullptr;
  }

  void open() {
    Sized<parallax_options_t> sized;
    parallax_options_t& options = sized.now;
    options.rank = number<uint32_t>(0, 2);
    options.world = data_.ConsumeBool() ? 0 : 1;  // others would wait for ranks that never come
    options.lease_ms = number<uint32_t>(0, 5000);
    options.timeout_ms = 200;
    options.plan_mode = number<uint32_t>(0, 3);
    options.plan_after_steps = number<uint32_t>(1, 8);
    options.deterministic = number<uint32_t>(0, 1);
    options.memory_max_bytes = number<uint64_t>(0, 1 << 20);
    options.manual_progress = 1;  // no thread an iteration
    text_ = data_.ConsumeRandomLengthString(40);
    options.faults = data_.ConsumeIntegralInRange<int>(0, 7) == 0 ? text_.c_str() : "";
    options.compute_threads = rarely() ? 257 : 0;  // one too many; none, since threads are dear
    options.reserved = rarely() ? 1 : 0;
    if (rarely()) {  // what is not there yet
      options.staleness = number<uint32_t>(0, 2);
      options.replicas = number<uint32_t>(0, 1);
      options.no_local_aggregation = number<uint32_t>(0, 1);
    }
    options.sparse_as_dense = rarely() ? 1 : 0;
    static constexpr const char* kPins[] = {nullptr, "", "*=mirrored",
                                            "*=made_dense; ?*=sharded; *=reduce_rows"};
    options.pins = rarely() ? text_.c_str() : kPins[data_.ConsumeIntegralInRange<size_t>(0, 3)];
    set_size(&sized);
    parallax_job_t* job = nullptr;
    check(parallax_open(&options, &job));
    if (job == nullptr) return;
    if (job_ != nullptr) {
      check(parallax_close(job));
    } else {
      job_ = job;
    }
  }

  void add_variable() {
    Sized<parallax_variable_t> sized;
    draw(&sized.now);
    set_size(&sized);
    uint32_t id = 0;
    check(parallax_register(job_, &sized.now, rarely() ? nullptr : &id));
  }

  void commit() { check(parallax_commit(job_)); }
  void step_begin() { check(parallax_step_begin(job_, &step_)); }

  void* any_values() {
    auto* values = reinterpret_cast<std::byte*>(values_[next_buffer_++ % values_.size()].data());
    if (buffer_ != nullptr && buffer_holds_ && data_.ConsumeBool()) return buffer_;
    return rarely() ? nullptr : rarely() ? values + 1 : values;
  }

  void fill(parallax_slice_t* slice) {
    slice->size = sizeof *slice;
    if (rarely()) slice->size = data_.ConsumeIntegralInRange<size_t>(0, sizeof *slice);
    slice->variable = number<uint32_t>(0, 3);
    slice->form = number<uint32_t>(data_.ConsumeBool() ? 1 : 0, 1);
    std::vector<int64_t>& ids = ids_[next_buffer_ % ids_.size()];
    std::vector<int32_t>& narrow = narrow_ids_[next_buffer_ % narrow_ids_.size()];
    for (size_t i = 0; i < kRowsMaxTaken; ++i) {
      ids[i] = i >= 8 ? ids[i % 8] : rarely() ? -1 : number<int64_t>(0, 7);
      narrow[i] = static_cast<int32_t>(ids[i]);
    }
    const bool wide = data_.ConsumeBool();
    slice->ids = wide != rarely() ? ids.data() : nullptr;
    slice->ids_i32 = wide == rarely() ? narrow.data() : nullptr;
    slice->row_count = number<uint64_t>(data_.ConsumeBool() ? 2 : 9, kRowsMaxTaken);
    if (slice->row_count > kRowsMaxTaken) slice->row_count = UINT64_MAX - slice->row_count;
    slice->as_dtype = number<uint32_t>(0, 7);
    slice->more = number<uint32_t>(0, 1);
    slice->values = any_values();
    slice->stream = rarely() ? slice : nullptr;
    slice->memory = rarely() ? number<uint32_t>(1, 2) : 0;
    slice->device = rarely() ? number<uint32_t>(1, 2) : 0;
  }

  void move_slices() {
    std::array<parallax_slice_t, 3> slices = {};
    const size_t count = data_.ConsumeIntegralInRange<size_t>(0, slices.size());
    for (size_t i = 0; i < count; ++i) fill(&slices[i]);
    const uint64_t step = number<uint64_t>(step_, 4);
    parallax_request_t* request = nullptr;
    const int which = data_.ConsumeIntegralInRange<int>(0, 2);
    for (size_t i = 0; i < count; ++i) {  // of a dense reduce; elsewhere it is to be refused
      if (which == 2 ? data_.ConsumeBool() : rarely()) slices[i].into = any_values();
    }
    keep(which == 0   ? parallax_pull(job_, step, slices.data(), count, &request)
         : which == 1 ? parallax_push(job_, step, slices.data(), count, &request)
                      : parallax_reduce(job_, step, slices.data(), count, &request),
         request);
  }

  // Between steps, by this rank alone; waited for.
  void evaluate() {
    parallax_slice_t slice = {};
    fill(&slice);
    parallax_request_t* request = nullptr;
    const parallax_status_t status = parallax_pull(job_, 0, &slice, 1, &request);
    keep(status, request);
    if (status == PARALLAX_OK) check(parallax_wait(&request, 1, 50));
  }

  void step_end() {
    Sized<parallax_step_end_options_t> sized;
    parallax_step_end_options_t& options = sized.now;
    options.learning_rate = real<float>(0.5f);
    options.clip_norm = real<float>(1);
    options.found_inf = number<uint32_t>(0, 1);
    options.absent = number<uint32_t>(0, 1);
    std::array<parallax_rates_t, 4> rates = {};  // room for larger ones than this version's
    if (data_.ConsumeBool()) {
      for (parallax_rates_t& each : rates) {
        each.size = rarely() ? data_.ConsumeIntegralInRange<size_t>(0, 48) : sizeof each;
        each.learning_rate = real<float>(0.5f);
        each.weight_decay = real<float>(0.25f);
        each.decoupled = number<uint32_t>(0, 1);
        each.maximize = number<uint32_t>(0, 1);
        each.clip_norm = real<float>(1);
      }
      options.learning_rate = rarely() ? options.learning_rate : 0;
      options.rates = rarely() ? nullptr : rates.data();
      options.rates_count = data_.ConsumeIntegralInRange<uint32_t>(0, 2);
    }
    set_size(&sized);
    parallax_request_t* request = nullptr;
    keep(parallax_step_end(job_, number<uint64_t>(step_, 4),
                           data_.ConsumeBool() ? &options : nullptr, &request),
         request);
  }

  // Of one rank. Borrowed for long, so buffers overlap at times with those of others under way.
  void on_buffers() {
    Sized<parallax_collective_t> sized;
    parallax_collective_t& what = sized.now;
    what.kind = number<uint32_t>(PARALLAX_ALLREDUCE, PARALLAX_GATHER);
    what.dtype = number<uint32_t>(0, 6);
    what.op = number<uint32_t>(0, 8);
    what.root = number<uint32_t>(0, 1);
    what.send = any_values();
    what.recv = data_.ConsumeBool() ? any_values() : const_cast<void*>(what.send);
    what.count = number<uint64_t>(3, 60);
    if (what.count > 60) what.count = data_.ConsumeBool() ? UINT64_MAX : uint64_t{1} << 41;
    const uint64_t counts[] = {data_.ConsumeBool() ? what.count : 2};
    what.send_counts = rarely() ? nullptr : counts;
    what.recv_counts = rarely() ? nullptr : counts;
    what.tag = number<uint64_t>(0, 3);
    what.memory = rarely() ? 1 : 0;
    what.device = rarely() ? 1 : 0;
    what.stream = rarely() ? &sized : nullptr;
    set_size(&sized);
    parallax_request_t* request = nullptr;
    keep(parallax_collective(job_, rarely() ? nullptr : &what, &request), request);
  }

  void together() {
    parallax_request_t* request = nullptr;
    if (data_.ConsumeBool()) return on_buffers();
    if (data_.ConsumeBool()) {
      keep(parallax_barrier(part_ != nullptr && data_.ConsumeBool() ? part_ : job_, &request),
           request);
    } else {
      keep(parallax_broadcast(job_, values_[0].data(), number<uint64_t>(4, 64) % 1024,
                              number<uint32_t>(0, 1), &request),
           request);
    }
  }

  void move_rows() {
    Sized<parallax_rows_t> sized;
    parallax_rows_t& rows = sized.now;
    rows.variable = number<uint32_t>(0, 3);
    rows.reserved = rarely() ? 1 : 0;
    rows.first_row = number<uint64_t>(0, kRowsMaxTaken);
    rows.row_count = number<uint64_t>(2, kRowsMaxTaken);
    rows.values = any_values();
    for (void*& state : rows.state) state = data_.ConsumeBool() ? any_values() : nullptr;
    static uint64_t updates;
    rows.updates = data_.ConsumeBool() ? &updates : nullptr;
    set_size(&sized);
    parallax_request_t* request = nullptr;
    keep(data_.ConsumeBool() ? parallax_read(job_, &rows, &request)
                             : parallax_write(job_, &rows, &request),
         request);
  }

  // Memory of the job: the one buffer that is kept, which calls then take at times, and what is not
  // to be freed or is freed already. Of any number of bytes, little of it is touched.
  void move_buffers() {
    if (data_.ConsumeBool()) {
      void* const other = rarely() ? nullptr : any_values();
      const auto bytes = number<size_t>(64, kElements);
      check(data_.ConsumeBool() ? parallax_buffer_register(job_, other, bytes)
                                : parallax_buffer_unregister(job_, other));
      return;
    }
    if (buffer_ != nullptr || rarely()) {
      void* const freed = rarely() ? any_values() : buffer_;
      const parallax_status_t status = parallax_buffer_free(job_, freed);
      check(status);
      if (status == PARALLAX_OK && freed == buffer_) buffer_ = nullptr;
      return;
    }
    Sized<parallax_buffer_options_t> sized;
    sized.now.numa_node = number<uint32_t>(0, 2);
    sized.now.huge_pages = number<uint32_t>(0, 2);
    sized.now.memory = number<uint32_t>(0, 1);
    sized.now.device = rarely() ? 1 : 0;
    set_size(&sized);
    const auto bytes = number<size_t>(sizeof(double) * (kElements + 1), size_t{1} << 40);
    const parallax_status_t status = parallax_buffer_alloc(
        job_, bytes, data_.ConsumeBool() ? &sized.now : nullptr, rarely() ? nullptr : &buffer_);
    check(status);
    if ((buffer_ != nullptr) != (status == PARALLAX_OK)) std::abort();
    buffer_holds_ = bytes >= sizeof(double) * (kElements + 1);
  }

  void of_the_process() {
    if (parallax_status_string(data_.ConsumeIntegral<int>()) == nullptr ||
        parallax_version_string() == nullptr || parallax_version() == 0) {
      std::abort();
    }
    if (data_.ConsumeBool()) {
      static uint64_t lines;
      const auto count = [](void* context, int, const char*, const char* message) {
        *static_cast<uint64_t*>(context) += message[0] != '\0' ? 1 : 0;
      };
      check(parallax_set_log_callback(data_.ConsumeBool() ? +count : nullptr, &lines,
                                      number<uint32_t>(0, 4)));
      return;
    }
    // As it would come from another rank, changed on its way.
    static const parallax_unique_id_t made = [this] {
      parallax_unique_id_t id = {};
      check(parallax_unique_id(&id));
      return id;
    }();
    parallax_unique_id_t id = made;
    id.bytes[data_.ConsumeIntegralInRange<size_t>(0, sizeof id.bytes - 1)] ^=
        data_.ConsumeIntegralInRange<uint8_t>(1, 255);
    parallax_options_t options = {};
    options.size = sizeof options;
    options.world = 2;
    options.timeout_ms = 50;
    options.unique_id = &id;
    parallax_job_t* job = nullptr;
    check(parallax_open(&options, &job));
    if (job != nullptr) std::abort();
  }

  void wait() {
    const int64_t timeout_ms = number<int64_t>(20, 50) % 50;
    if (data_.ConsumeBool()) {
      check(parallax_wait(requests_.data(), requests_.size(), timeout_ms));
      return;
    }
    parallax_request_t* request = any_request();
    const size_t count = request == nullptr ? 0 : 1;
    if (data_.ConsumeBool()) {
      check(parallax_stream_wait(&request, count, number<uint32_t>(0, 2), nullptr, timeout_ms));
      return;
    }
    check(parallax_wait(&request, count, timeout_ms));
  }
  void test() {
    parallax_request_t* request = any_request();
    const parallax_status_t status = parallax_request_test(request);
    check(status);
    if (parallax_request_error(request) == nullptr) std::abort();
    Sized<parallax_error_info_t> info;
    set_size(&info);
    const size_t bytes = info.now.size;
    const parallax_status_t told =
        parallax_request_error_info(request, rarely() ? nullptr : &info.now);
    check(told);
    if (told == PARALLAX_OK && bytes >= offsetof(parallax_error_info_t, rank) &&
        info.now.status != (status == PARALLAX_PENDING ? PARALLAX_OK : status)) {
      std::abort();
    }
  }
  void cancel() {
    if (data_.ConsumeIntegralInRange<int>(0, 7) == 0) check(parallax_request_cancel(any_request()));
  }
  void release() {
    if (requests_.empty()) return;
    const size_t at = data_.ConsumeIntegralInRange<size_t>(0, requests_.size() - 1);
    const parallax_status_t status = parallax_request_release(requests_[at]);
    check(status);
    if (status == PARALLAX_OK) requests_.erase(requests_.begin() + static_cast<ptrdiff_t>(at));
  }
  void results() {
    parallax_request_t* request = any_request();
    Sized<parallax_step_info_t> info;
    set_size(&info);
    check(parallax_request_step(request, &info.now));
    const int64_t* ids = nullptr;
    const void* values = nullptr;
    uint64_t count = 0;
    check(parallax_request_rows(request, number<size_t>(0, 2), &ids, &values, &count));
    for (uint64_t i = 1; i < count; ++i) {
      if (ids != nullptr && ids[i - 1] >= ids[i]) std::abort();
    }
  }
  // The deadline stays short: the fuzzer waits it out.
  void set() {
    static const std::array<const char*, 8> kNames = {"timeout_ms",   "timeout_ms", "memory_check",
                                                      "debug_subsys", "debug",      "lease_ms",
                                                      "timeout",      nullptr};
    static const std::array<const char*, 8> kValues = {"20",   "50",  "off",   "init,^net",
                                                       "none", "0x1", nullptr, ""};
    const char* const name = data_.PickValueInArray(kNames);
    std::string text = data_.ConsumeRandomLengthString(12);
    if (text == "debug_file") text.clear();  // it would be one
    if (name == kNames[0]) text = data_.ConsumeBool() ? "20" : text + "x";
    check(data_.ConsumeBool() ? parallax_set(job_, text.c_str(), data_.PickValueInArray(kValues))
                              : parallax_set(job_, name, text.c_str()));
  }
  void look() {
    Sized<parallax_job_info_t> info;
    info.now.bytes_touched = number<uint64_t>(0, 1);
    set_size(&info);
    check(parallax_query(job_, &info.now));
    std::array<char, 8192> text;
    size_t bytes = number<size_t>(text.size(), text.size());
    if (bytes > text.size()) bytes = 0;
    // The topology asks the kernel: too slow for a fuzzer.
    check(parallax_report(job_, data_.ConsumeIntegralInRange<uint32_t>(0, 1), text.data(), &bytes));
    check(parallax_progress(job_));
  }
  void end() {
    if (data_.ConsumeBool()) {
      check(parallax_abort(job_, "fuzz"));
    } else {
      close();
    }
  }

  using Call = void (Caller::*)();
  static constexpr std::array<Call, 23> kCalls = {
      &Caller::evaluate,     &Caller::evaluate, &Caller::open,       &Caller::add_variable,
      &Caller::add_variable, &Caller::commit,   &Caller::step_begin, &Caller::move_slices,
      &Caller::move_slices,  &Caller::step_end, &Caller::together,   &Caller::wait,
      &Caller::test,         &Caller::cancel,   &Caller::release,    &Caller::results,
      &Caller::look,         &Caller::end,      &Caller::move_rows,  &Caller::of_the_process,
      &Caller::move_buffers, &Caller::set,      &Caller::split};

  parallax_job_t* job_ = nullptr;
  parallax_job_t* part_ = nullptr;
  std::vector<parallax_request_t*> requests_;
  uint64_t step_ = 0;
  size_t next_buffer_ = 0;
  void* buffer_ = nullptr;     // of the job
  bool buffer_holds_ = false;  // what a call may put there
  // Lent to several calls at once, at times: what is in them does not matter.
  inline static std::array<std::vector<int64_t>, 8> ids_ = [] {
    std::array<std::vector<int64_t>, 8> all;
    all.fill(std::vector<int64_t>(kRowsMaxTaken));
    return all;
  }();
  inline static std::array<std::vector<int32_t>, 8> narrow_ids_ = [] {
    std::array<std::vector<int32_t>, 8> all;
    all.fill(std::vector<int32_t>(kRowsMaxTaken));
    return all;
  }();
  inline static std::array<std::vector<double>, 8> values_ = [] {
    std::array<std::vector<double>, 8> all;
    all.fill(std::vector<double>(kElements + 1));
    return all;
  }();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzedDataProvider provider(data, bytes);
  Caller caller(provider);
  caller.run();
  return 0;
}
