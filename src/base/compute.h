// SPDX-License-Identifier: Apache-2.0
// Compute: where the engine's heavy work (merging a slice, applying an update) is done. A job owns
// what it touches from submit() until it is handed back by take_done(), which only the engine's
// owner calls. Drivers: InlineCompute (at once, on the caller), ThreadCompute (a small pool), and
// the simulator's, which charges virtual time.
#ifndef PARALLAX_BASE_COMPUTE_H_
#define PARALLAX_BASE_COMPUTE_H_

#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace parallax {

class ComputeShare;

// A unit of work, embedded in the state machine that needs it; reused, never allocated in a step.
struct ComputeJob {
  void (*run)(ComputeJob& job) = nullptr;   // on a pool thread
  void (*done)(ComputeJob& job) = nullptr;  // on the engine's owner
  void* context = nullptr;
  size_t cost_bytes = 0;  // memory it moves, for the simulator
  ComputeJob* next = nullptr;
  ComputeShare* share = nullptr;  // it was submitted to
};

class Compute {
 public:
  virtual ~Compute() = default;
  virtual void submit(ComputeJob& job) = 0;
  // A finished job, or null. Its done() is for the caller to run. What a job threw (a failed check,
  // no memory) is thrown here once all finished jobs are handed back, so that none stays under way.
  virtual ComputeJob* take_done() = 0;
  // Waits until no job is under way or queued. Blocks; for the end of the engine's life.
  virtual void drain() = 0;
  // A job has run when submit() returns.
  virtual bool at_once() const { return false; }
};

// The pool as one of several has it who share it: it knows how many of its own jobs are not handed
// back yet. Whoever takes a job from the pool may get one of another share, and tells that.
class ComputeShare final : public Compute {
 public:
  explicit ComputeShare(Compute& pool) : pool_(pool) {}  // which outlives this
  ComputeShare(const ComputeShare&) = delete;
  ComputeShare& operator=(const ComputeShare&) = delete;

  void submit(ComputeJob& job) override {
    job.share = this;
    ++under_way_;
    pool_.submit(job);
  }
  ComputeJob* take_done() override {
    ComputeJob* job = pool_.take_done();
    if (job != nullptr) taken(*job);
    return job;
  }
  // Of a job that was taken from the pool itself.
  static void taken(const ComputeJob& job) {
    if (job.share != nullptr) --job.share->under_way_;
  }
  void drain() override { pool_.drain(); }
  bool at_once() const override { return pool_.at_once(); }
  size_t under_way() const { return under_way_; }

 private:
  Compute& pool_;
  size_t under_way_ = 0;
};

class InlineCompute final : public Compute {
 public:
  void submit(ComputeJob& job) override {
    try {
      job.run(job);
    } catch (...) {
      failure_ = std::current_exception();
    }
    job.next = nullptr;
    (tail_ == nullptr ? head_ : tail_->next) = &job;
    tail_ = &job;
  }
  void drain() override {}
  bool at_once() const override { return true; }
  ComputeJob* take_done() override {
    ComputeJob* job = head_;
    if (job != nullptr) head_ = job->next;
    if (head_ == nullptr) tail_ = nullptr;
    if (job == nullptr && failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return job;
  }

 private:
  std::exception_ptr failure_;
  ComputeJob* head_ = nullptr;
  ComputeJob* tail_ = nullptr;
};

class ThreadCompute final : public Compute {
 public:
  // `wake` is called from pool threads after a job is done, to wake the engine's owner. `started`,
  // if given, is called by start() with each new thread.
  explicit ThreadCompute(std::function<void()> wake,
                         std::function<void(std::thread& thread)> started = {})
      : wake_(std::move(wake)), started_(std::move(started)) {}
  // Once. LIMIT, with the threads there are kept.
  Status start(unsigned threads);
  ~ThreadCompute() override;  // waits for jobs under way; those queued are dropped
  void submit(ComputeJob& job) override;
  ComputeJob* take_done() override;
  void drain() override;

 private:
  void work();

  Mutex mutex_;
  CondVar queued_;
  CondVar idle_;
  ComputeJob* queue_head_ PARALLAX_GUARDED_BY(mutex_) = nullptr;
  ComputeJob* queue_tail_ PARALLAX_GUARDED_BY(mutex_) = nullptr;
  ComputeJob* done_head_ PARALLAX_GUARDED_BY(mutex_) = nullptr;
  ComputeJob* done_tail_ PARALLAX_GUARDED_BY(mutex_) = nullptr;
  size_t unfinished_ PARALLAX_GUARDED_BY(mutex_) = 0;  // queued or under way
  std::exception_ptr failure_ PARALLAX_GUARDED_BY(mutex_);
  bool stopping_ PARALLAX_GUARDED_BY(mutex_) = false;
  const std::function<void()> wake_;
  const std::function<void(std::thread& thread)> started_;
  std::vector<std::thread> threads_;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_COMPUTE_H_
