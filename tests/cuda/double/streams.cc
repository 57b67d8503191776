// SPDX-License-Identifier: Apache-2.0
// Streams of the double: queues with a thread each, in the order of which operations are executed,
// and events that mark a place in one. The legacy default stream waits for what the blocking
// streams of its context were given before, and they wait for it.
#include <algorithm>
#include <chrono>

#include "cuda/double/machine.h"

namespace cuda_double {

namespace {

bool may_run(const Machine& all, const CUstream_st& stream) {
  if (stream.queue.empty() || stream.held || all.held) return false;
  const std::string& name = stream.queue.front().name;
  if (!name.empty() && name == all.held_operation) return false;
  const auto after = all.held_after.find(stream.context->device);
  if (after != all.held_after.end() && !name.empty() && name == after->second.first &&
      after->second.second == 0) {
    return false;
  }
  for (const Mark& mark : stream.queue.front().waits) {
    if (!is_executed(mark)) return false;
  }
  return true;
}

// Executes the operation at the head, which stays there meanwhile: the stream is not idle.
void execute(Machine& all, Lock& lock, CUstream_st& stream) {
  Operation& operation = stream.queue.front();
  CUctx_st& context = *stream.context;
  const uint64_t pause = all.delay_us == 0 ? 0 : stream.random() % (uint64_t{all.delay_us} + 1);
  const Failure failure = all.failures.count("operation");
  if (failure.code != 0 && context.error == CUDA_SUCCESS) context.error = CUresult(failure.code);
  const auto after = all.held_after.find(context.device);
  if (after != all.held_after.end() && operation.name == after->second.first) {
    --after->second.second;
  }
  lock.unlock();
  if (pause > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause));
  lock.lock();
  const int failed = context.error;
  lock.unlock();
  in_host_function() = operation.host_function;
  if (operation.run) operation.run(failed);
  in_host_function() = false;
  operation.run = nullptr;  // what it holds goes outside of the lock
  lock.lock();
  for (const uint64_t number : operation.blocks) {
    for (auto& [first, block] : all.blocks) {
      if (block.number == number) --block.users;
    }
  }
  stream.queue.pop_front();
  ++stream.executed;
  ++all.executed;
  all.changed.notify_all();
}

void work(CUstream stream) {
  Machine& all = machine();
  Lock lock(all.mutex);
  while (true) {
    all.changed.wait(lock, [&] {
      return may_run(all, *stream) || (stream->destroyed && stream->queue.empty());
    });
    if (stream->queue.empty()) return;
    execute(all, lock, *stream);
  }
}

CUstream legacy_stream(Machine& all, CUcontext context) {
  if (context->legacy == nullptr) context->legacy = make_stream(all, context, true);
  return context->legacy;
}

CUstream stream_of_thread(Machine& all, CUcontext context) {
  CUstream& kept = context->of_threads[std::this_thread::get_id()];
  if (kept == nullptr) kept = make_stream(all, context, true);
  return kept;
}

}  // namespace

bool is_executed(const Mark& mark) {
  return mark.stream == nullptr || mark.stream->executed >= mark.number;
}

bool is_idle(const Machine& all) {
  for (const CUstream_st& stream : all.streams) {
    if (stream.executed < stream.submitted) return false;
  }
  return true;
}

CUstream make_stream(Machine& all, CUcontext context, bool blocking) {
  CUstream_st& stream = all.streams.emplace_back();
  stream.context = context;
  stream.number = all.streams.size();
  stream.blocking = blocking;
  stream.random.seed(all.seed * 1000003 + stream.number);
  std::thread(work, &stream).detach();
  return &stream;
}

CUstream stream_of(Machine& all, CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    const CUcontext context = current_context();
    if (context == nullptr) return nullptr;
    return handle == CU_STREAM_PER_THREAD ? stream_of_thread(all, context)
                                          : legacy_stream(all, context);
  }
  for (CUstream_st& stream : all.streams) {
    if (&stream != handle) continue;
    if (stream.destroyed)
      fault("stream " + std::to_string(stream.number) + " is used after its end");
    return handle;
  }
  return nullptr;
}

CUevent event_of(Machine& all, CUevent handle) {
  if (all.destroyed_events.count(handle) != 0) fault("an event is used after its end");
  return all.events.count(handle) == 0 ? nullptr : handle;
}

// The legacy default stream orders the blocking ones, of which one captures.
bool is_in_the_way_of_capture(const Machine& all, const CUstream_st& stream) {
  if (&stream != stream.context->legacy) return false;
  return std::any_of(all.streams.begin(), all.streams.end(), [&](const CUstream_st& other) {
    return other.context == stream.context && other.blocking && !other.destroyed &&
           other.capture != CU_STREAM_CAPTURE_STATUS_NONE;
  });
}

CUresult enqueue(Machine& all, CUstream stream, Operation operation) {
  if (stream->context->error != CUDA_SUCCESS) return stream->context->error;
  if (is_in_the_way_of_capture(all, *stream)) {
    say(all, operation.name + " on the default stream, while a blocking one captures a graph");
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream->capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    say(all, operation.name + " was called for a stream that captures a graph");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  const CUstream legacy = stream->context->legacy;
  if (stream == legacy) {
    for (CUstream_st& other : all.streams) {
      if (other.context == stream->context && other.blocking && &other != legacy) {
        operation.waits.push_back({&other, other.submitted});
      }
    }
  } else if (stream->blocking && legacy != nullptr) {
    operation.waits.push_back({legacy, legacy->submitted});
  }
  for (const uint64_t number : operation.blocks) {
    for (auto& [first, block] : all.blocks) {
      if (block.number == number) ++block.users;
    }
  }
  stream->queue.push_back(std::move(operation));
  ++stream->submitted;
  all.changed.notify_all();
  return CUDA_SUCCESS;
}

}  // namespace cuda_double

using namespace cuda_double;

extern "C" {

PARALLAX_DOUBLE_API CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int) {
  Lock lock;
  if (CUresult code = enter(lock, "cuStreamCreateWithPriority", Needs::kContext)) return code;
  if (stream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *stream = make_stream(machine(), current_context(), flags == CU_STREAM_DEFAULT);
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuStreamDestroy(CUstream handle) {
  Lock lock;
  if (CUresult code = enter(lock, "cuStreamDestroy_v2", Needs::kContext)) return code;
  Machine& all = machine();
  const CUstream stream = stream_of(all, handle);
  // The default streams are nobody's to destroy.
  if (stream == nullptr || stream != handle) return CUDA_ERROR_INVALID_HANDLE;
  // At once: what it has is still executed.
  stream->destroyed = true;
  all.changed.notify_all();
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuStreamQuery(CUstream handle) {
  Lock lock;
  if (CUresult code = enter(lock, "cuStreamQuery", Needs::kDriver)) return code;
  const CUstream stream = stream_of(machine(), handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->context->error != CUDA_SUCCESS) return stream->context->error;
  if (stream->capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    stream->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return stream->executed == stream->submitted ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

PARALLAX_DOUBLE_API CUresult cuStreamSynchronize(CUstream handle) {
  Lock lock;
  if (CUresult code = enter(lock, "cuStreamSynchronize", Needs::kDriver)) return code;
  const CUstream stream = stream_of(machine(), handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t number = stream->submitted;
  machine().changed.wait(lock, [&] { return stream->executed >= number; });
  return stream->context->error;
}

PARALLAX_DOUBLE_API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  Lock lock;
  if (CUresult code = enter(lock, "cuStreamIsCapturing", Needs::kDriver)) return code;
  const CUstream stream = stream_of(machine(), handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_in_the_way_of_capture(machine(), *stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = stream->capture;
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  Lock lock;
  if (CUresult code = enter(lock, "cuStreamGetCtx", Needs::kContext)) return code;
  const CUstream stream = stream_of(machine(), handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = stream->context;
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
  Lock lock;
  if (CUresult code = enter(lock, "cuStreamWaitEvent", Needs::kContext)) return code;
  Machine& all = machine();
  const CUstream stream = stream_of(all, handle);
  if (stream == nullptr || event_of(all, event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  // Legal, and orders nothing.
  if (event->mark.stream == nullptr) say(all, "cuStreamWaitEvent: the event was never recorded");
  Operation operation;
  operation.name = "cuStreamWaitEvent";
  operation.waits.push_back(event->mark);
  return enqueue(all, stream, std::move(operation));
}

PARALLAX_DOUBLE_API CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  Lock lock;
  if (CUresult code = enter(lock, "cuEventCreate", Needs::kContext)) return code;
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *event = new CUevent_st{current_context(), flags, {}};
  machine().events.insert(*event);
  return CUDA_SUCCESS;
}

PARALLAX_DOUBLE_API CUresult cuEventRecord(CUevent event, CUstream handle) {
  Lock lock;
  if (CUresult code = enter(lock, "cuEventRecord", Needs::kContext)) return code;
  Machine& all = machine();
  const CUstream stream = stream_of(all, handle);
  if (stream == nullptr || event_of(all, event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->context != stream->context) {
    say(all, "cuEventRecord: the event and the stream are of different contexts");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Operation operation;
  operation.name = "cuEventRecord";
  const CUresult code = enqueue(all, stream, std::move(operation));
  if (code == CUDA_SUCCESS) event->mark = {stream, stream->submitted};
  return code;
}

PARALLAX_DOUBLE_API CUresult cuEventQuery(CUevent event) {
  Lock lock;
  if (CUresult code = enter(lock, "cuEventQuery", Needs::kDriver)) return code;
  if (event_of(machine(), event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->mark.stream == nullptr) say(machine(), "cuEventQuery: the event was never recorded");
  if (event->context->error != CUDA_SUCCESS) return event->context->error;
  return is_executed(event->mark) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

PARALLAX_DOUBLE_API CUresult cuEventSynchronize(CUevent event) {
  Lock lock;
  if (CUresult code = enter(lock, "cuEventSynchronize", Needs::kDriver)) return code;
  if (event_of(machine(), event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Mark mark = event->mark;
  const CUcontext context = event->context;
  machine().changed.wait(lock, [&] { return is_executed(mark); });
  return context->error;
}

PARALLAX_DOUBLE_API CUresult cuEventDestroy(CUevent event) {
  Lock lock;
  if (CUresult code = enter(lock, "cuEventDestroy_v2", Needs::kContext)) return code;
  // Who waits for it waits for the place that it marked.
  if (event_of(machine(), event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  machine().events.erase(event);
  machine().destroyed_events.insert(event);
  return CUDA_SUCCESS;
}

}  // extern "C"
