// SPDX-License-Identifier: Apache-2.0
// What opens every function of the double, and what is said at the end of the process. See
// machine.h.
#include "cuda/double/machine.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace cuda_double {

namespace {

const char* told(const char* variable) { return std::getenv(variable); }

void say_leaks() {
  char text[4096] = "";
  size_t count = cuda_double_leaks(text, sizeof text);
  std::string all = text;
  std::vector<cuda_double_leak_source> sources;
  {
    const Lock lock(machine().mutex);
    sources = machine().leak_sources;
  }
  for (const cuda_double_leak_source source : sources) {
    text[0] = 0;
    count += source(text, sizeof text);
    all += text;
  }
  if (count == 0) return;
  cuda_double_say(("left behind at the end of the process:\n" + all).c_str());
  std::fprintf(stderr, "cuda double: left behind at the end of the process:\n%s", all.c_str());
  const char* leaks = told("CUDA_DOUBLE_LEAKS");
  if (leaks != nullptr && std::string(leaks) == "fail") _exit(86);
}

}  // namespace

Machine::Machine() {
  if (const char* path = told("CUDA_DOUBLE_LOG")) log_path = path;
  if (const char* failing = told("CUDA_DOUBLE_FAIL")) failures.add_all(failing);
  if (const char* version = told("CUDA_DOUBLE_DRIVER")) driver_version = std::atoi(version);
  if (const char* delay = told("CUDA_DOUBLE_DELAY")) {
    char* end = nullptr;
    seed = std::strtoull(delay, &end, 10);
    if (*end == ':') delay_us = static_cast<uint32_t>(std::strtoul(end + 1, nullptr, 10));
  }
  const char* count = told("CUDA_DOUBLE_DEVICES");
  const int device_count = count == nullptr ? 2 : std::atoi(count);
  devices.resize(static_cast<size_t>(device_count));
  contexts.resize(static_cast<size_t>(device_count));
  for (int i = 0; i < device_count; ++i) contexts[static_cast<size_t>(i)].device = i;
}

Machine& machine() {
  static Machine* const kept = [] {
    std::atexit(say_leaks);
    return new Machine;
  }();
  return *kept;
}

std::vector<CUcontext>& pushed_contexts() {
  static thread_local std::vector<CUcontext> pushed;
  return pushed;
}

CUcontext current_context() {
  const std::vector<CUcontext>& pushed = pushed_contexts();
  return pushed.empty() ? nullptr : pushed.back();
}

bool& in_host_function() {
  static thread_local bool within = false;
  return within;
}

CUstreamCaptureMode& capture_mode() {
  static thread_local CUstreamCaptureMode of_thread = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return of_thread;
}

namespace {

// What CUDA calls potentially unsafe: while a stream captures, it spoils the capture, whichever
// thread calls, unless that thread has said that it knows (cuThreadExchangeStreamCaptureMode).
bool spoils_capture(Machine& all, const std::string& function) {
  static const std::set<std::string> kUnsafe = {
      "cuEventQuery",     "cuEventSynchronize",  "cuMemAlloc_v2",        "cuMemFree_v2",
      "cuMemHostAlloc",   "cuMemFreeHost",       "cuMemHostRegister_v2", "cuMemHostUnregister",
      "cuModuleLoadData", "cuStreamSynchronize", "cuCtxSynchronize"};
  if (capture_mode() != CU_STREAM_CAPTURE_MODE_GLOBAL || kUnsafe.count(function) == 0) return false;
  bool spoilt = false;
  for (CUstream_st& stream : all.streams) {
    if (stream.capture != CU_STREAM_CAPTURE_STATUS_ACTIVE) continue;
    stream.capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    spoilt = true;
  }
  if (spoilt) say(all, function + " spoils the capture of a graph");
  return spoilt;
}

}  // namespace

CUresult enter(Lock& lock, const char* function, Needs needs) {
  Machine& all = machine();
  if (!lock.owns_lock()) lock = Lock(all.mutex);
  CUcontext context = current_context();
  const Failure failure = all.failures.count(function);
  all.changed.wait(lock, [&] { return all.held_call != function; });
  if (failure.code != 0) {
    if (failure.sticky) {
      for (CUctx_st& each : all.contexts) {
        if (context == nullptr || context == &each) each.error = CUresult(failure.code);
      }
      all.changed.notify_all();
    }
    return CUresult(failure.code);
  }
  if (in_host_function()) {
    say(all, std::string(function) + " was called by a host function, which may call no CUDA");
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if (needs == Needs::kNothing) return CUDA_SUCCESS;
  if (!all.initialised || all.process != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  if (spoils_capture(all, function)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (needs == Needs::kDriver) return CUDA_SUCCESS;
  if (context == nullptr) {
    say(all, std::string(function) + " was called without a current context");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (context->retained == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return context->error;
}

void say(Machine& all, const std::string& sentence) {
  all.log += sentence + "\n";
  if (all.log_path.empty()) return;
  if (FILE* file = std::fopen(all.log_path.c_str(), "a")) {
    std::fprintf(file, "%s\n", sentence.c_str());
    std::fclose(file);
  }
}

void fault(const std::string& sentence) {
  std::fprintf(stderr, "cuda double: %s\n", sentence.c_str());
  say(machine(), sentence);
  std::abort();
}

}  // namespace cuda_double
