// SPDX-License-Identifier: Apache-2.0
// The compute pool. See compute.h.
#include "base/compute.h"

#include "base/float_environment.h"
#include "base/threads.h"

namespace parallax {

namespace {

void append(ComputeJob*& head, ComputeJob*& tail, ComputeJob& job) {
  job.next = nullptr;
  (tail == nullptr ? head : tail->next) = &job;
  tail = &job;
}

ComputeJob* take(ComputeJob*& head, ComputeJob*& tail) {
  ComputeJob* job = head;
  if (job != nullptr) head = job->next;
  if (head == nullptr) tail = nullptr;
  return job;
}

}  // namespace

Status ThreadCompute::start(unsigned threads) {
  threads_.resize(threads);
  for (std::thread& thread : threads_) {
    PARALLAX_RETURN_IF_ERROR(start_thread(&thread, [this] { work(); }));
    if (started_) started_(thread);
  }
  return {};
}

ThreadCompute::~ThreadCompute() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  queued_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ThreadCompute::submit(ComputeJob& job) {
  {
    const MutexLock lock(mutex_);
    append(queue_head_, queue_tail_, job);
    ++unfinished_;
  }
  queued_.notify_one();
}

ComputeJob* ThreadCompute::take_done() {
  const MutexLock lock(mutex_);
  ComputeJob* job = take(done_head_, done_tail_);
  if (job == nullptr && failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return job;
}

void ThreadCompute::drain() {
  const MutexLock lock(mutex_);
  while (unfinished_ > 0) idle_.wait(mutex_);
}

void ThreadCompute::work() {
  const FloatEnvironment environment;  // else that of the thread that made the pool
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && queue_head_ == nullptr) queued_.wait(mutex_);
    if (stopping_) return;
    ComputeJob* job = take(queue_head_, queue_tail_);
    lock.unlock();
    std::exception_ptr failure;
    try {
      job->run(*job);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) failure_ = std::move(failure);
    append(done_head_, done_tail_, *job);
    if (--unfinished_ == 0) idle_.notify_all();
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace parallax
