// SPDX-License-Identifier: Apache-2.0
// How a job begins and ends: ranks as threads that meet, train a step and part; and a rank that
// meets one which is not as it should be, whose part the test plays at the rendezvous itself.
#include "job/job.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/version.h"
#include "support/engine_world.h"
#include "support/environment_variable.h"
#include "support/real_time.h"
#include "support/temporary_folder.h"
#include "support/words.h"
#include "transport/endpoint.h"
#include "transport/shm/shm_transport.h"

namespace parallax {
namespace {

using nlohmann::json;
using testkit::has;
using testkit::in_ms;
using testkit::kClock;
using testkit::kPromptMs;

constexpr uint32_t kForeverMs = 600'000;  // a lease or a deadline that no test waits for

parallax_options_t options_of(uint32_t rank, uint32_t world, const char* rendezvous) {
  parallax_options_t options = {};
  options.size = sizeof options;
  options.rank = rank;
  options.world = world;
  options.rendezvous = rendezvous;
  options.lease_ms = kForeverMs;
  options.timeout_ms = kForeverMs;
  return options;
}

void in_threads(uint32_t world, const std::function<void(uint32_t)>& run) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < world; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

// Posts a call of the engine, waits, releases; the status of call or request.
Status done(Job& job, const std::function<Status(Engine&, Request**)>& call) {
  Request* request = nullptr;
  PARALLAX_RETURN_IF_ERROR(
      job.progress().call([&](Engine& engine) { return call(engine, &request); }));
  if (!job.progress().wait({&request, 1}, in_ms(kPromptMs))) {
    return timed_out(job.progress().look(
        [&](const Engine& engine) { return engine.reports().missing(*request).message(); }));
  }
  const Status status = request->status;
  bool last = false;
  PARALLAX_RETURN_IF_ERROR(job.release(request, &last));
  EXPECT_FALSE(last) << "the job was not abandoned";
  return status;
}

constexpr uint64_t kElements = 5;

void register_and_commit(Job& job) {
  const Status registered = job.progress().call([](Engine& engine) {
    uint32_t id = 0;
    return engine.job_calls().register_variable(
        testkit::dense_variable("v", kElements, 1, PARALLAX_RULE_SGD), &id);
  });
  ASSERT_TRUE(registered.ok()) << registered.message();
  const Status committed = done(
      job, [](Engine& engine, Request** request) { return engine.job_calls().commit(request); });
  ASSERT_TRUE(committed.ok()) << committed.message();
}

// A step in which each element's gradient is `gradient`, at a learning rate of 1; then what the
// variable is.
std::vector<float> train(Job& job, float gradient) {
  std::vector<float> gradients(kElements, gradient), values(kElements, -1);
  uint64_t step = 0;
  EXPECT_TRUE(
      job.progress().call([&](Engine& engine) { return engine.step_calls().begin(&step); }).ok());
  const parallax_slice_t push = testkit::dense_slice(0, gradients.data());
  const parallax_slice_t pull = testkit::dense_slice(0, values.data());
  Request* pushed = nullptr;
  EXPECT_TRUE(job.progress()
                  .call([&](Engine& engine) {
                    return engine.step_calls().push(step, {&push, 1}, &pushed);
                  })
                  .ok());
  const Status ended = done(job, [&](Engine& engine, Request** request) {
    return engine.step_calls().end(step, testkit::end_options(1), request);
  });
  EXPECT_TRUE(ended.ok()) << ended.message();
  EXPECT_TRUE(job.progress().wait({&pushed, 1}, in_ms(kPromptMs)));
  bool last = false;
  EXPECT_TRUE(job.release(pushed, &last).ok());
  const Status pulled = done(job, [&](Engine& engine, Request** request) {
    return engine.step_calls().pull(0, {&pull, 1}, request);
  });
  EXPECT_TRUE(pulled.ok()) << pulled.message();
  return values;
}

// Given one rank, expect a job without a rendezvous and without a network, and every deadline
// and lease that was not named to be the documented one.
TEST(Job, OneRankNeedsNoNetwork) {
  parallax_options_t options = {};
  options.size = sizeof options;
  std::unique_ptr<Job> job;
  const Status opened = Job::open(options, &job);
  ASSERT_TRUE(opened.ok()) << opened.message();
  EXPECT_EQ(job->timeout_ns(), 120'000 * kNanosecondsPerMillisecond);
  EXPECT_EQ(job->lease_ns(), 5000 * kNanosecondsPerMillisecond);
  EXPECT_TRUE(job->check_process("wait").ok());
  const json report = json::parse(job->topology_report());
  EXPECT_EQ(report["transport"], "inproc");
  EXPECT_EQ(report["network"], "");
  EXPECT_EQ(report["module"]["library"], "");
  ASSERT_EQ(report["hosts"].size(), 1u);
  EXPECT_EQ(report["hosts"][0]["ranks"], json::array({0}));
  EXPECT_TRUE(json::parse(job->settings_report())["settings"].is_array());
  register_and_commit(*job);
  EXPECT_EQ(train(*job, 3), std::vector<float>(kElements, -3));
  EXPECT_TRUE(job->close().ok());
  EXPECT_TRUE(job->abandon()) << "no request is left";
}

// Given ranks as threads on hosts of two, expect each to know the others' places, a step to
// apply the sum of what they gave, and all to part in order; and the name to be free for the next
// job.
TEST(Job, RanksMeetTrainAndPart) {
  for (const uint32_t world : {2u, 4u, 4u}) {
    in_threads(world, [world](uint32_t rank) {
      parallax_options_t options = options_of(rank, world, "inproc:job_test");
      const std::string host = "host" + std::to_string(rank / 2);
      options.host = host.c_str();
      options.manual_progress = rank == 1 ? 1 : 0;
      options.compute_threads = rank == 0 ? 2 : 0;
      std::unique_ptr<Job> job;
      const Status opened = Job::open(options, &job);
      ASSERT_TRUE(opened.ok()) << opened.message();
      const json hosts = json::parse(job->topology_report())["hosts"];
      ASSERT_EQ(hosts.size(), world / 2);
      EXPECT_EQ(hosts[rank / 2]["name"], host);
      EXPECT_EQ(hosts[rank / 2]["ranks"], json::array({rank / 2 * 2, rank / 2 * 2 + 1}));
      register_and_commit(*job);
      float sum = 0, value = 0;
      for (uint32_t each = 0; each < world; ++each) sum += static_cast<float>(each + 1);
      for (int step = 0; step < 3; ++step) {
        value -= sum;
        EXPECT_EQ(train(*job, static_cast<float>(rank + 1)), std::vector<float>(kElements, value));
      }
      const Status closed = job->close();
      EXPECT_TRUE(closed.ok()) << closed.message();
    });
  }
}

// Given options that must be the same and are not, expect both ranks to be told which, and
// whose.
TEST(Job, OptionsThatDifferAreNamed) {
  std::array<Status, 2> statuses;
  in_threads(2, [&](uint32_t rank) {
    parallax_options_t options = options_of(rank, 2, "inproc:job_test_lease");
    options.lease_ms = kForeverMs + rank;
    std::unique_ptr<Job> job;
    statuses[rank] = Job::open(options, &job);
    EXPECT_EQ(job, nullptr);
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), PARALLAX_MISMATCH);
    EXPECT_TRUE(has(status, "option lease_ms: rank 0 has 600000, rank 1 has 600001"))
        << status.message();
  }
  in_threads(2, [&](uint32_t rank) {
    parallax_options_t options = options_of(rank, 2, "inproc:job_test_mode");
    options.plan_mode = rank == 0 ? PARALLAX_PLAN_PS : PARALLAX_PLAN_AR;
    std::unique_ptr<Job> job;
    ASSERT_TRUE(Job::open(options, &job).ok()) << "that is told at commit";
    statuses[rank] = done(
        *job, [](Engine& engine, Request** request) { return engine.job_calls().commit(request); });
    EXPECT_FALSE(job->close().ok());
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), PARALLAX_MISMATCH);
    EXPECT_TRUE(has(status, "option plan_mode: rank 0 (host ") &&
                has(status, ") has ps, rank 1 (host ") && has(status, ") has ar"))
        << status.message();
  }
}

// Given a number of slots that the ranks cannot share evenly, expect what to set instead, and where
// it was set; given one that they can, a job that trains.
TEST(Job, SlotsMustBeAMultipleOfTheRanks) {
  {
    const testkit::EnvironmentVariable slots("PARALLAX_SLOTS", "7");
    parallax_options_t alone = options_of(0, 2, "inproc:job_test_slots");
    alone.timeout_ms = 1000;  // nobody comes, should it not be refused
    std::unique_ptr<Job> job;
    const Status refused = Job::open(alone, &job);
    EXPECT_EQ(refused.code(), PARALLAX_INVALID);
    EXPECT_TRUE(has(refused, "open: slots is 7; it must be a multiple of the 2 ranks") &&
                has(refused, "set it to 8 on every rank") && has(refused, "PARALLAX_SLOTS"))
        << refused.message();
  }
  const testkit::EnvironmentVariable slots("PARALLAX_SLOTS", "6");
  in_threads(2, [](uint32_t rank) {
    std::unique_ptr<Job> job;
    const Status opened = Job::open(options_of(rank, 2, "inproc:job_test_slots"), &job);
    ASSERT_TRUE(opened.ok()) << opened.message();
    EXPECT_EQ(job->progress().look(
                  [](const Engine& engine) { return engine.options().view.slots.slots(); }),
              6u);
    register_and_commit(*job);
    EXPECT_EQ(train(*job, 3), std::vector<float>(kElements, -6));
    EXPECT_TRUE(job->close().ok());
  });
}

// Given a rank of another world, expect it to be refused with both numbers, and the first to
// say at its deadline whom it waited for.
TEST(Job, WhoIsOfAnotherWorldIsRefusedAndWhoNeverComesIsNamed) {
  std::unique_ptr<Rendezvous> first;
  parallax_options_t options = options_of(0, 3, "inproc:job_test_world");
  ASSERT_TRUE(make_rendezvous(options, "a", kClock, &first).ok());
  std::unique_ptr<Job> job;
  options.rank = 1;
  options.world = 2;
  Status status = Job::open(options, &job);
  EXPECT_EQ(status.code(), PARALLAX_MISMATCH);
  EXPECT_TRUE(has(status, "2") && has(status, "3")) << status.message();
  first.reset();

  options = options_of(0, 3, "inproc:job_test_missing");
  options.timeout_ms = 30;
  status = Job::open(options, &job);
  EXPECT_EQ(status.code(), PARALLAX_TIMEOUT);
  EXPECT_TRUE(has(status, "ranks 1 and 2 never came")) << status.message();
  EXPECT_EQ(job, nullptr);
}

// Rank 1 of two at the rendezvous that rank 0 opens its job at: what it brings in each round, by
// hand.
class MetBy : public testing::Test {
 protected:
  Endpoint honest(uint32_t rank) const {
    Endpoint endpoint;
    endpoint.version = kVersion;
    endpoint.rank = rank;
    endpoint.job = 7;
    endpoint.pid = 1;
    endpoint.lease_ms = kForeverMs;
    endpoint.host = "a";
    endpoint.machine = shm_machine_id();
    return endpoint;
  }

  // What rank 0's open says, with these options, of a rank 1 that brings `blob` to every round.
  Status opened_with(const std::string& blob, const parallax_options_t& options) {
    Status said;
    std::thread other([&] {
      parallax_options_t its = options;
      its.rank = 1;
      std::unique_ptr<Rendezvous> rendezvous;
      ASSERT_TRUE(make_rendezvous(its, "a", kClock, &rendezvous).ok());
      std::vector<std::string> all;
      const auto bytes = std::as_bytes(std::span(blob));
      for (int round = 0; round < 3 && said.ok(); ++round) {
        said = rendezvous->allgather(bytes, in_ms(kForeverMs), &all);
      }
    });
    std::unique_ptr<Job> job;
    const Status status = Job::open(options, &job);
    other.join();
    EXPECT_EQ(job, nullptr);
    EXPECT_FALSE(said.ok());
    EXPECT_TRUE(has(said, status.message())) << "the other rank hears it too: " << said.message();
    return status;
  }
  Status opened_with(const Endpoint& endpoint) {
    return opened_with(encode_endpoint(endpoint), options_of(0, 2, "inproc:job_test_met"));
  }
};

TEST_F(MetBy, AnotherVersion) {
  Endpoint endpoint = honest(1);
  endpoint.version = kVersion + 1;
  const Status status = opened_with(endpoint);
  EXPECT_EQ(status.code(), PARALLAX_MISMATCH);
  EXPECT_TRUE(has(status, "rank 1 (host a) runs libparallax " + version_text(kVersion + 1)))
      << status.message();
  EXPECT_TRUE(has(status, "this rank " + version_text(kVersion))) << status.message();
}

TEST_F(MetBy, ARankInAnothersPlace) {
  const Status status = opened_with(honest(0));
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "rank 0 came to the rendezvous as rank 1")) << status.message();
}

TEST_F(MetBy, Garbage) {
  const std::string good = encode_endpoint(honest(1));
  for (const std::string& garbage :
       {std::string(), std::string("hello"), good.substr(0, good.size() - 1), good + "x"}) {
    const Status status = opened_with(garbage, options_of(0, 2, "inproc:job_test_met"));
    EXPECT_EQ(status.code(), PARALLAX_IO);
    EXPECT_TRUE(has(status, "what rank 1 brought to the rendezvous is wrong")) << status.message();
  }
}

// Given processes that meet in a directory, expect one host's name on two machines to be
// refused, and shared memory to be refused between two hosts.
TEST_F(MetBy, HostsThatCannotShareMemory) {
  const testkit::TemporaryFolder folder;
  const std::string name = "machine", hosts = "hosts";
  Endpoint endpoint = honest(1);
  endpoint.machine = "another";
  const std::string first = "file:" + folder.path() + "/" + name;
  parallax_options_t options = options_of(0, 2, first.c_str());
  options.host = "a";
  Status status = opened_with(encode_endpoint(endpoint), options);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "ranks 0 and 1 both say host 'a' but cannot share memory"))
      << status.message();

  endpoint = honest(1);
  endpoint.host = "b";
  const std::string second = "file:" + folder.path() + "/" + hosts;
  options = options_of(0, 2, second.c_str());
  options.host = "a";
  options.transport = "shm";
  status = opened_with(encode_endpoint(endpoint), options);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "transport is \"shm\", but the ranks are on 2 hosts"))
      << status.message();
}

// Given a rank that brings who it is where its addresses belong, expect it to be named.
TEST_F(MetBy, AddressesThatAreNone) {
  const testkit::TemporaryFolder folder;
  const std::string where = "file:" + folder.path() + "/addresses";
  parallax_options_t options = options_of(0, 2, where.c_str());
  options.host = "a";
  const Status status = opened_with(encode_endpoint(honest(1)), options);
  EXPECT_EQ(status.code(), PARALLAX_IO);
  EXPECT_TRUE(has(status, "what rank 1 brought to the rendezvous is wrong")) << status.message();
  EXPECT_TRUE(has(status, "not its addresses")) << status.message();
}

// Given a thread that waits for a barrier that nobody else joins, expect close to end its
// wait, and the request to keep the job until it is released.
TEST(Job, CloseEndsAnothersWait) {
  in_threads(2, [](uint32_t rank) {
    std::unique_ptr<Job> job;
    ASSERT_TRUE(Job::open(options_of(rank, 2, "inproc:job_test_close"), &job).ok());
    register_and_commit(*job);
    if (rank == 1) {
      EXPECT_TRUE(job->close().ok());
      return;
    }
    Request* request = nullptr;
    ASSERT_TRUE(
        job->progress()
            .call([&](Engine& engine) { return engine.collective_calls().barrier(&request); })
            .ok());
    std::thread waiter([&] {
      EXPECT_TRUE(job->progress().wait({&request, 1}, in_ms(kForeverMs)));
    });
    const Status closed = job->close();
    EXPECT_TRUE(closed.ok()) << closed.message();
    waiter.join();
    EXPECT_EQ(request->status.code(), PARALLAX_ABORTED);
    EXPECT_FALSE(job->abandon()) << "the request is still the caller's";
    bool last = false;
    EXPECT_TRUE(job->release(request, &last).ok());
    EXPECT_TRUE(last) << "whoever releases it destroys the job";
  });
}

// Given a rank that stays, expect close to end at its deadline, to say who stays, and that
// rank to hear who left.
TEST(Job, CloseEndsAtItsDeadline) {
  std::array<std::unique_ptr<Job>, 2> jobs;
  in_threads(2, [&](uint32_t rank) {
    parallax_options_t options = options_of(rank, 2, "inproc:job_test_leave");
    options.timeout_ms = rank == 0 ? 500 : kForeverMs;
    const Status opened = Job::open(options, &jobs[rank]);
    ASSERT_TRUE(opened.ok()) << opened.message();
  });
  ASSERT_TRUE(jobs[0] != nullptr && jobs[1] != nullptr);
  const Status closed = jobs[0]->close();
  EXPECT_EQ(closed.code(), PARALLAX_TIMEOUT);
  EXPECT_TRUE(has(closed, "close: after 500 ms ")) << closed.message();
  EXPECT_TRUE(has(closed, "rank 1")) << closed.message();
  jobs[0].reset();
  const Status left = done(*jobs[1], [](Engine& engine, Request** request) {
    return engine.job_calls().close(request);
  });
  EXPECT_EQ(left.code(), PARALLAX_PEER_LOST);
  EXPECT_TRUE(has(left, "rank 0")) << left.message();
}

// A rule of the caller's that waits, not for ever, until it is let go.
struct HeldRule {
  std::atomic<bool> called{false}, let_go{false}, in_time{false};

  static int apply(void* context, const parallax_rule_block_t*) {
    auto& held = *static_cast<HeldRule*>(context);
    held.called = true;
    const int64_t end_ns = in_ms(kPromptMs);
    while (!held.let_go && kClock.now_ns() < end_ns) std::this_thread::yield();
    held.in_time = held.let_go.load();
    return 0;
  }
};

// Given a compute job of the whole job that is held up until a part of it is closed, expect the
// part to close: it has none, and whoever waits holds up nobody.
TEST(Job, APartClosesWhileTheWholeComputes) {
  HeldRule rule;
  parallax_options_t options = {};
  options.size = sizeof options;
  options.compute_threads = 1;
  options.timeout_ms = kForeverMs;
  std::unique_ptr<Job> job;
  ASSERT_TRUE(Job::open(options, &job).ok());
  const Status registered = job->progress().call([&rule](Engine& engine) {
    parallax_variable_t variable =
        testkit::dense_variable("held up", kElements, 1, PARALLAX_RULE_CALLBACK);
    variable.rule_fn = HeldRule::apply;
    variable.rule_context = &rule;
    uint32_t id = 0;
    return engine.job_calls().register_variable(variable, &id);
  });
  ASSERT_TRUE(registered.ok()) << registered.message();
  register_and_commit(*job);
  Request* split = nullptr;
  const uint32_t self[] = {0};
  ASSERT_TRUE(job->progress()
                  .call([&](Engine& engine) { return engine.job_calls().split(self, &split); })
                  .ok());
  ASSERT_TRUE(job->progress().wait({&split, 1}, in_ms(kPromptMs)));
  const uint32_t part = split->part;
  bool last = false;
  EXPECT_TRUE(job->release(split, &last).ok());
  job->hold(part);
  std::vector<float> gradients(kElements, 1);
  const parallax_slice_t push = testkit::dense_slice(0, gradients.data());
  uint64_t step = 0;
  std::array<Request*, 2> requests = {};
  ASSERT_TRUE(job->progress()
                  .call([&](Engine& engine) {
                    StepCalls& steps = engine.step_calls();
                    PARALLAX_RETURN_IF_ERROR(steps.begin(&step));
                    PARALLAX_RETURN_IF_ERROR(steps.push(step, {&push, 1}, &requests[0]));
                    return steps.end(step, testkit::end_options(1), &requests[1]);
                  })
                  .ok());
  while (!rule.called) std::this_thread::yield();
  const Status closed = job->close_part(part);
  EXPECT_TRUE(closed.ok()) << closed.message();
  EXPECT_EQ(job->part_count(), 0u);
  rule.let_go = true;
  ASSERT_TRUE(job->progress().wait(requests, in_ms(kPromptMs)));
  EXPECT_TRUE(rule.in_time) << "the part waited for the pool";
  for (Request* request : requests) {
    EXPECT_TRUE(request->status.ok()) << request->status.message();
    EXPECT_TRUE(job->release(request, &last).ok());
  }
  EXPECT_TRUE(job->close().ok());
}

// Given faults that are no rules, expect the option to be named; with rules, the transport to
// be the one that breaks.
TEST(Job, FaultsAreThisRanksTransport) {
  parallax_options_t options = {};
  options.size = sizeof options;
  options.faults = "explode:at=3";
  std::unique_ptr<Job> job;
  const Status status = Job::open(options, &job);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_TRUE(has(status, "explode")) << status.message();
  options.faults = "seed=7; delay:percent=1,ms=1";
  ASSERT_TRUE(Job::open(options, &job).ok());
  EXPECT_EQ(json::parse(job->topology_report())["faults"]["closed"], 0);
  EXPECT_TRUE(job->close().ok());
}

}  // namespace
}  // namespace parallax
