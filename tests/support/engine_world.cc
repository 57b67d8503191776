// SPDX-License-Identifier: Apache-2.0
// The seeded scheduling of a world of engines. See engine_world.h.
#include "support/engine_world.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "support/member_transport.h"

namespace parallax::testkit {

namespace {
constexpr uint32_t kSlowPollsMax = 40;
// Of every rank, and of all of them together: far beyond any script, and soon over where many wait
// for what does not come.
constexpr uint32_t kPassesMax = 100'000;
constexpr uint32_t kRankPassesMax = 1'600'000;
constexpr int64_t kPassNs = 1000;

// Has the rest of each message that came received where that goes, in two pieces.
class Placing final : public Receiver {
 public:
  Placing(Receiver& receiver, const SlowTransport::Watch& watch)
      : receiver_(receiver), watch_(watch) {}
  void on_message(uint32_t from, std::span<const std::byte> message) override {
    if (watch_) watch_(receiver_, from, message);
    const size_t rest_bytes = message.size() - std::min(message.size(), kMessageHeadBytes);
    const std::span<const std::byte> head = message.first(message.size() - rest_bytes);
    std::byte* const first = rest_bytes < 2 ? nullptr : receiver_.place(from, head, rest_bytes);
    if (first == nullptr) return receiver_.on_message(from, message);
    const std::span<const std::byte> rest = message.subspan(head.size());
    std::memcpy(first, rest.data(), rest_bytes / 2);
    std::byte* const again = receiver_.place(from, head, rest_bytes);
    PARALLAX_CHECK(again == first);
    std::memcpy(again + rest_bytes / 2, rest.data() + rest_bytes / 2, rest_bytes - rest_bytes / 2);
    receiver_.on_placed(from, head, rest_bytes);
  }
  void on_sent(uint64_t cookie) override { receiver_.on_sent(cookie); }
  void on_lost(uint32_t rank, Loss loss, std::string_view why) override {
    receiver_.on_lost(rank, loss, why);
  }

 private:
  Receiver& receiver_;
  const SlowTransport::Watch& watch_;
};

}  // namespace

SlowTransport::SlowTransport(std::unique_ptr<Transport> inner, uint32_t world,
                             size_t message_bytes_max, uint32_t slow_percent, uint64_t seed)
    : inner_(std::move(inner)),
      message_bytes_max_(std::min(message_bytes_max, inner_->message_bytes_max())),
      slow_percent_(slow_percent),
      random_(seed),
      slow_(world) {}

Status SlowTransport::send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) {
  PARALLAX_CHECK(writable(to));
  if (tap_) tap_(to, segments);
  inside_transport = true;
  Status status = inner_->send(to, segments, cookie);
  inside_transport = false;
  return status;
}

bool SlowTransport::poll(Receiver& receiver) {
  for (uint32_t& polls : slow_) {
    if (polls > 0) --polls;
    if (slow_percent_ > 0 && polls == 0 && random_.chance(slow_percent_)) {
      polls = static_cast<uint32_t>(random_.below(kSlowPollsMax));
    }
  }
  if (!places_) return inner_->poll(receiver);
  Placing placing(receiver, watch_);
  return inner_->poll(placing);
}

void LateCompute::submit(ComputeJob& job) {
  job.next = nullptr;
  (tail_ == nullptr ? head_ : tail_->next) = &job;
  tail_ = &job;
}

ComputeJob* LateCompute::take_done() {
  if (head_ == nullptr || (late_ && random_.chance(80))) return nullptr;
  ComputeJob* job = head_;
  head_ = job->next;
  if (head_ == nullptr) tail_ = nullptr;
  job->run(*job);
  return job;
}

void LateCompute::drain() {
  for (; head_ != nullptr; head_ = head_->next) head_->run(*head_);
  tail_ = nullptr;
}

EngineWorld::EngineWorld(const WorldOptions& options) : random_(options.seed) {
  const auto world = static_cast<uint32_t>(options.hosts.size());
  std::vector<std::string> names;
  for (const uint32_t host : options.hosts) names.push_back("host" + std::to_string(host));
  hosts_ = map_hosts(names);
  hub_ = options.hub != nullptr ? options.hub : std::make_shared<InprocHub>(world);
  ranks_.resize(world);
  const View view = first_view(hosts_, 1, options.slots);
  for (uint32_t rank = 0; rank < world; ++rank) {
    Rank& each = ranks_[rank];
    each.transport = std::make_unique<SlowTransport>(transport_of(options, rank), world,
                                                     options.message_bytes_max,
                                                     options.slow_percent, random_.next());
    if (options.lenders != nullptr) each.transport->use_memory(&options.lenders->rank(rank));
    options.seed % 2 == 1 ? each.transport->copy_sends() : each.transport->use_boards();
    if (options.seed % 4 == 1) each.transport->place_messages();
    if (options.compute_threads > 0) {
      auto threads = std::make_unique<ThreadCompute>([] {});
      PARALLAX_CHECK(threads->start(options.compute_threads).ok());
      each.compute = std::move(threads);
    } else if (options.inline_jobs || (!options.late_jobs && options.seed % 5 < 2)) {
      each.compute = std::make_unique<InlineCompute>();
    } else {
      each.compute = std::make_unique<LateCompute>(options.late_jobs, random_.next());
    }
    EngineOptions engine_options = {.rank = rank,
                                    .view = view,
                                    .lease_ns = options.lease_ns,
                                    .plan_mode = options.plan_mode,
                                    .plan_after_steps = options.plan_after_steps,
                                    .deterministic = options.deterministic,
                                    .memory_max_bytes = options.memory_max_bytes};
    if (options.seed % 3 == 0) engine_options.row_ways.coding = RowCodingMode::kOn;
    if (options.adjust) options.adjust(rank, &engine_options);
    each.groups =
        std::make_unique<JobGroups>(engine_options, *each.transport, clock_, *each.compute);
    PARALLAX_CHECK(each.groups->start().ok());
  }
}

std::unique_ptr<Transport> EngineWorld::transport_of(const WorldOptions& options, uint32_t rank) {
  std::unique_ptr<InprocTransport> inproc;
  const bool member = !options.members.empty();
  PARALLAX_CHECK(
      InprocTransport::create(hub_, member ? options.members[rank] : rank, &inproc).ok());
  if (!member) return inproc;
  return std::make_unique<MemberTransport>(std::move(inproc), options.members);
}

EngineWorld::~EngineWorld() {
  for (Rank& each : ranks_) each.compute->drain();
}

void EngineWorld::shuffle(uint64_t passes) {
  for (uint64_t i = 0; i < passes; ++i) {
    const auto rank = static_cast<uint32_t>(random_.below(size()));
    if (!alive(rank)) continue;
    random_.chance(20) ? groups(rank).kick() : (void)groups(rank).run();
  }
}

bool EngineWorld::run_until(const std::function<bool()>& done) {
  const uint32_t passes_max = std::min(kPassesMax, kRankPassesMax / size());
  for (uint32_t pass = 0; pass < passes_max; ++pass) {
    if (done()) return true;
    shuffle(random_.below(2 * size()));
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (alive(rank)) groups(rank).run();
    }
    clock_.advance(kPassNs);
    if (pass % 64 == 63) std::this_thread::yield();  // to threads of a compute pool
  }
  return done();
}

bool EngineWorld::run_until_done(std::span<Request* const> requests) {
  return run_until([&] {
    return std::all_of(requests.begin(), requests.end(),
                       [](const Request* request) { return request->done(); });
  });
}

void EngineWorld::settle() {
  constexpr int kQuietPasses = 200;
  for (int quiet = 0; quiet < kQuietPasses; ++quiet) {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (alive(rank) && groups(rank).run()) quiet = 0;
    }
  }
}

std::vector<Status> EngineWorld::commit(std::span<const parallax_variable_t> variables) {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    for (const parallax_variable_t& variable : variables) {
      uint32_t id = 0;
      const Status status = engine(rank).job_calls().register_variable(variable, &id);
      if (!status.ok()) return std::vector<Status>(size(), status);
    }
  }
  return everywhere([this](uint32_t rank, Request** request) {
    return engine(rank).job_calls().commit(request);
  });
}

std::vector<Status> EngineWorld::everywhere(
    const std::function<Status(uint32_t rank, Request** request)>& call) {
  std::vector<Status> statuses(size());
  std::vector<Request*> requests(size());
  std::vector<Request*> waited;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (!alive(rank)) continue;
    statuses[rank] = call(rank, &requests[rank]);
    if (!statuses[rank].ok()) requests[rank] = nullptr;
    if (requests[rank] != nullptr) waited.push_back(requests[rank]);
    shuffle(random_.below(4));
  }
  const bool all = run_until_done(waited);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (requests[rank] == nullptr) continue;
    if (!requests[rank]->done()) {
      statuses[rank] = engine(rank).reports().missing(*requests[rank]);
      continue;
    }
    statuses[rank] = requests[rank]->status;
    PARALLAX_CHECK(engine(rank).release(requests[rank]).ok());
  }
  (void)all;
  return statuses;
}

void EngineWorld::kill(uint32_t rank) {
  ranks_[rank].compute->drain();
  ranks_[rank].groups.reset();
  ranks_[rank].transport.reset();
}

Transport& EngineWorld::take_over(uint32_t rank) {
  ranks_[rank].compute->drain();
  ranks_[rank].groups.reset();
  return *ranks_[rank].transport;
}

parallax_variable_t dense_variable(const char* name, uint64_t rows, uint64_t row_elements,
                                   parallax_rule_t rule) {
  parallax_variable_t variable = {};
  variable.size = sizeof variable;
  variable.name = name;
  variable.rows = rows;
  variable.row_elements = row_elements;
  variable.rule = rule;
  return variable;
}

parallax_variable_t sparse_variable(const char* name, uint64_t rows, uint64_t row_elements,
                                    uint64_t rows_max, parallax_rule_t rule) {
  parallax_variable_t variable = dense_variable(name, rows, row_elements, rule);
  variable.tag = PARALLAX_SPARSE;
  variable.rows_max = rows_max;
  return variable;
}

parallax_step_end_options_t end_options(float learning_rate, float clip_norm) {
  parallax_step_end_options_t options = {};
  options.size = sizeof options;
  options.learning_rate = learning_rate;
  options.clip_norm = clip_norm;
  return options;
}

parallax_slice_t dense_slice(uint32_t variable, float* values) {
  parallax_slice_t slice = {};
  slice.size = sizeof slice;
  slice.variable = variable;
  slice.form = PARALLAX_FORM_DENSE;
  slice.values = values;
  return slice;
}

parallax_slice_t rows_slice(uint32_t variable, const std::vector<int64_t>& ids, float* values) {
  parallax_slice_t slice = {};
  slice.size = sizeof slice;
  slice.variable = variable;
  slice.form = PARALLAX_FORM_ROWS;
  slice.ids = ids.data();
  slice.row_count = ids.size();
  slice.values = values;
  return slice;
}

parallax_rows_t rows_call(uint32_t variable, uint64_t first_row, uint64_t count, float* values) {
  parallax_rows_t call = {};
  call.size = sizeof call;
  call.variable = variable;
  call.first_row = first_row;
  call.row_count = count;
  call.values = values;
  return call;
}

}  // namespace parallax::testkit
