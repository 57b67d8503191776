// SPDX-License-Identifier: Apache-2.0
// What a test tells the double, and what it asks it. See control.h.
#include "cuda/double/control.h"

#include <chrono>
#include <cstdio>
#include <cstring>

#include "cuda/double/machine.h"

using namespace cuda_double;

namespace {

size_t put_text(const std::string& from, char* text, size_t bytes) {
  if (text != nullptr && bytes > 0) std::snprintf(text, bytes, "%s", from.c_str());
  return from.size();
}

}  // namespace

extern "C" {

void cuda_double_fail(const char* function, uint64_t nth, int code, int sticky) {
  const Lock lock(machine().mutex);
  machine().failures.add(function, nth, {code, sticky != 0});
}

void cuda_double_fail_always(const char* function, int code) {
  const Lock lock(machine().mutex);
  machine().failures.add_always(function, {code, false});
}

void cuda_double_clear_failures() {
  const Lock lock(machine().mutex);
  machine().failures.clear();
}

void cuda_double_poison(int device, int code) {
  Lock lock(machine().mutex);
  // Well again, once what it had when it failed is over.
  if (code == CUDA_SUCCESS) machine().changed.wait(lock, [] { return is_idle(machine()); });
  machine().contexts.at(static_cast<size_t>(device)).error = CUresult(code);
  machine().changed.notify_all();
}

uint64_t cuda_double_calls(const char* function) {
  const Lock lock(machine().mutex);
  return machine().failures.calls(function);
}

void cuda_double_set_delay(uint64_t seed, uint32_t most_us) {
  const Lock lock(machine().mutex);
  machine().seed = seed;
  machine().delay_us = most_us;
  for (CUstream_st& stream : machine().streams) stream.random.seed(seed * 1000003 + stream.number);
}

void cuda_double_set_open_ms(uint32_t milliseconds) {
  const Lock lock(machine().mutex);
  machine().open_ms = milliseconds;
}

void cuda_double_hold(CUstream handle, int held) {
  const Lock lock(machine().mutex);
  const CUstream stream = stream_of(machine(), handle);
  if (stream == nullptr) fault("cuda_double_hold: there is no such stream");
  stream->held = held != 0;
  machine().changed.notify_all();
}

void cuda_double_hold_all(int held) {
  const Lock lock(machine().mutex);
  machine().held = held != 0;
  machine().changed.notify_all();
}

void cuda_double_hold_operation(const char* name) {
  const Lock lock(machine().mutex);
  machine().held_operation = name == nullptr ? "" : name;
  machine().changed.notify_all();
}

void cuda_double_hold_after(int device, const char* name, uint64_t count) {
  const Lock lock(machine().mutex);
  machine().held_after[device] = {name == nullptr ? "" : name, count};
  machine().changed.notify_all();
}

void cuda_double_hold_call(const char* function) {
  const Lock lock(machine().mutex);
  machine().held_call = function == nullptr ? "" : function;
  machine().changed.notify_all();
}

int cuda_double_drain(uint32_t timeout_ms) {
  Lock lock(machine().mutex);
  return machine().changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                    [] { return is_idle(machine()); })
             ? 1
             : 0;
}

void cuda_double_reset(int count) {
  Machine fresh;
  const Lock lock(machine().mutex);
  Machine& all = machine();
  for (const CUctx_st& context : all.contexts) {
    if (context.retained > 0) {
      fault("cuda_double_reset: the context of device " + std::to_string(context.device) +
            " is retained");
    }
  }
  if (count >= 0) {
    fresh.devices.assign(static_cast<size_t>(count), Device());
    fresh.contexts.assign(static_cast<size_t>(count), CUctx_st());
  }
  // Streams keep pointers to their contexts: those that there were stay where they are.
  while (all.contexts.size() < fresh.contexts.size()) all.contexts.emplace_back();
  for (size_t i = 0; i < all.contexts.size(); ++i) {
    all.contexts[i].device = static_cast<int>(i);
    all.contexts[i].error = CUDA_SUCCESS;
  }
  all.devices = fresh.devices;
  all.failures = fresh.failures;
  all.driver_version = fresh.driver_version;
  all.seed = fresh.seed;
  all.delay_us = fresh.delay_us;
  all.open_ms = fresh.open_ms;
  all.held = false;
  all.held_operation.clear();
  all.held_call.clear();
  all.held_after.clear();
  all.log.clear();
  all.pageable_copies = all.bytes_to_host = all.bytes_to_device = 0;
  all.initialised = false;
  all.changed.notify_all();
}

void cuda_double_set_driver_version(int version) {
  const Lock lock(machine().mutex);
  machine().driver_version = version;
}

void cuda_double_set_attribute(int device, CUdevice_attribute attribute, int value) {
  const Lock lock(machine().mutex);
  machine().devices.at(static_cast<size_t>(device)).attributes[attribute] = value;
}

void cuda_double_set_identity(int device, int bus, int uuid) {
  const Lock lock(machine().mutex);
  cuda_double::Device& told = machine().devices.at(static_cast<size_t>(device));
  told.bus = bus;
  told.uuid = uuid;
}

void cuda_double_set_capture(CUstream handle, CUstreamCaptureStatus status) {
  const Lock lock(machine().mutex);
  const CUstream stream = stream_of(machine(), handle);
  if (stream == nullptr) fault("cuda_double_set_capture: there is no such stream");
  stream->capture = status;
}

void cuda_double_set_memory(int device, size_t bytes) {
  const Lock lock(machine().mutex);
  machine().devices.at(static_cast<size_t>(device)).memory_bytes = bytes;
}

void* cuda_double_alias(CUdeviceptr pointer, size_t bytes, int device) {
  const Lock lock(machine().mutex);
  const CUcontext context =
      device < 0 ? nullptr : &machine().contexts.at(static_cast<size_t>(device));
  return reach(machine(), context, pointer, bytes);
}

uint64_t cuda_double_bytes_to_host() {
  const Lock lock(machine().mutex);
  return machine().bytes_to_host;
}

uint64_t cuda_double_bytes_to_device() {
  const Lock lock(machine().mutex);
  return machine().bytes_to_device;
}

uint64_t cuda_double_pageable_copies() {
  const Lock lock(machine().mutex);
  return machine().pageable_copies;
}

uint64_t cuda_double_executed(CUstream handle) {
  const Lock lock(machine().mutex);
  if (handle == nullptr) return machine().executed;
  for (const CUstream_st& stream : machine().streams) {
    if (&stream == handle) return stream.executed;
  }
  return 0;
}

size_t cuda_double_leaks(char* text, size_t bytes) {
  const Lock lock(machine().mutex);
  const Machine& all = machine();
  std::string lines;
  size_t count = 0;
  const auto leak = [&](const std::string& line) {
    lines += line + "\n";
    ++count;
  };
  for (const CUstream_st& stream : all.streams) {
    bool own = true;
    for (const CUctx_st& context : all.contexts) {
      if (context.legacy == &stream) own = false;
      for (const auto& [thread, of_thread] : context.of_threads) own &= of_thread != &stream;
    }
    if (own && !stream.destroyed) leak("stream " + std::to_string(stream.number));
  }
  for (size_t i = 0; i < all.events.size(); ++i) leak("an event");
  for (const auto& [first, block] : all.blocks) {
    const char* const kinds[] = {"device", "pinned", "registered"};
    leak("block " + std::to_string(block.number) + ", " + std::to_string(block.bytes) +
         " bytes of " + kinds[static_cast<size_t>(block.kind)] + " memory");
  }
  for (size_t i = 0; i < all.modules.size(); ++i) leak("a module");
  for (const CUctx_st& context : all.contexts) {
    if (context.retained > 0) {
      leak("the context of device " + std::to_string(context.device) + ", retained " +
           std::to_string(context.retained) + " times");
    }
  }
  put_text(lines, text, bytes);
  return count;
}

size_t cuda_double_log(char* text, size_t bytes) {
  const Lock lock(machine().mutex);
  return put_text(machine().log, text, bytes);
}

void cuda_double_clear_log() {
  const Lock lock(machine().mutex);
  machine().log.clear();
}

void cuda_double_add_kernel(const char* name, cuda_double_kernel run, const size_t* parameters,
                            unsigned parameter_count) {
  const Lock lock(machine().mutex);
  machine().kernels[name] = {run, {parameters, parameters + parameter_count}};
}

CUresult cuda_double_enqueue(CUstream handle, const char* name, cuda_double_operation run,
                             void* argument, const CUdeviceptr* touched, unsigned touched_count) {
  const Lock lock(machine().mutex);
  const CUstream stream = stream_of(machine(), handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Operation operation;
  operation.name = name;
  operation.run = [run, argument](int failed) { run(argument, failed); };
  for (unsigned i = 0; i < touched_count; ++i) {
    if (const Block* block = block_of(machine(), touched[i], 1)) {
      operation.blocks.push_back(block->number);
    }
  }
  return enqueue(machine(), stream, std::move(operation));
}

int cuda_double_enter(const char* function) {
  Lock lock;
  return enter(lock, function, Needs::kNothing);
}

void cuda_double_say(const char* sentence) {
  const Lock lock(machine().mutex);
  say(machine(), sentence);
}

int cuda_double_current_device() {
  const CUcontext context = current_context();
  return context == nullptr ? -1 : context->device;
}

int cuda_double_stream_device(CUstream handle) {
  const Lock lock(machine().mutex);
  const CUstream stream = stream_of(machine(), handle);
  return stream == nullptr ? -1 : stream->context->device;
}

void cuda_double_add_leaks(cuda_double_leak_source source) {
  const Lock lock(machine().mutex);
  machine().leak_sources.push_back(source);
}

}  // extern "C"
