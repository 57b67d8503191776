// SPDX-License-Identifier: Apache-2.0
// Machine: everything that the double of libcuda.so.1 knows: devices with their primary contexts,
// blocks of memory, streams with a thread each, events, and what it was told to fail. One lock
// guards all of it; a stream's thread executes its operations outside of it.
//
// The machine is never destroyed: threads of streams outlive main. Streams, too, stay when they are
// destroyed, so that an event that was recorded in one has something to ask.
#ifndef PARALLAX_TESTS_CUDA_DOUBLE_MACHINE_H_
#define PARALLAX_TESTS_CUDA_DOUBLE_MACHINE_H_

#include <cuda.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/double/control.h"
#include "cuda/double/failures.h"

namespace cuda_double {

// That stream has executed so many operations.
struct Mark {
  CUstream stream = nullptr;
  uint64_t number = 0;
};

struct Operation {
  std::string name;
  std::function<void(int failed)> run;  // outside of the lock; 0, or the error of its context
  std::vector<Mark> waits;
  std::vector<uint64_t> blocks;  // by number; in use until it is executed
  bool host_function = false;
};

enum class MemoryKind : uint8_t { kDevice, kPinned, kRegistered };

struct Block {
  uint64_t number = 0;
  MemoryKind kind = MemoryKind::kDevice;
  uintptr_t first = 0;
  size_t bytes = 0;
  std::byte* alias = nullptr;  // where the host reaches it
  size_t mapped_bytes = 0;
  CUcontext context = nullptr;
  uint32_t users = 0;          // operations that are queued or executed
  uint32_t registrations = 0;  // of communicators
  bool shareable = false;      // by ncclMemAlloc
};

struct Kernel {
  cuda_double_kernel run = nullptr;
  std::vector<size_t> parameters;  // bytes; 0: a device pointer
};

struct Device {
  std::map<int, int> attributes;
  int bus = -1, uuid = -1;  // as it is told; -1: by its number
  size_t memory_bytes = size_t{8} << 30;
  size_t memory_used = 0;
};

}  // namespace cuda_double

struct CUctx_st {
  int device = 0;
  uint32_t retained = 0;
  CUresult error = CUDA_SUCCESS;  // sticky
  CUstream legacy = nullptr;
  std::map<std::thread::id, CUstream> of_threads;
};

struct CUstream_st {
  CUcontext context = nullptr;
  uint64_t number = 0;  // of the process, for the log
  bool blocking = true;
  bool destroyed = false;
  bool held = false;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t submitted = 0;
  uint64_t executed = 0;
  std::deque<cuda_double::Operation> queue;
  std::mt19937_64 random;
};

struct CUevent_st {
  CUcontext context = nullptr;
  unsigned flags = 0;
  cuda_double::Mark mark;
};

struct CUfunc_st {
  CUmodule module = nullptr;
  std::string name;
  cuda_double::Kernel kernel;
};

struct CUmod_st {
  CUcontext context = nullptr;
  std::map<std::string, CUfunc_st> functions;
};

namespace cuda_double {

struct Machine {
  Machine();

  std::mutex mutex;
  std::condition_variable changed;  // any stream's queue, progress, hold or end
  Failures failures;
  bool initialised = false;
  int process = 0;  // that initialised it: a forked child has no CUDA
  int driver_version = 13000;
  std::deque<Device> devices;
  std::deque<CUctx_st> contexts;  // the primary ones, by device
  std::map<uintptr_t, Block> blocks;
  uint64_t blocks_made = 0;
  std::deque<CUstream_st> streams;
  std::set<CUevent> events;
  std::set<CUevent> destroyed_events;  // kept, so that no other has the handle
  std::set<CUmodule> modules;
  std::map<std::string, Kernel> kernels;
  std::vector<cuda_double_leak_source> leak_sources;
  uint64_t seed = 0;
  uint32_t delay_us = 0;
  uint32_t open_ms = 0;
  bool held = false;
  std::string held_operation;  // no stream executes one of this name
  // By device: an operation, and how many of it are executed before no other is.
  std::map<int, std::pair<std::string, uint64_t>> held_after;
  std::string held_call;  // no call of this function goes on
  uint64_t executed = 0;
  uint64_t pageable_copies = 0;
  uint64_t bytes_to_host = 0, bytes_to_device = 0;
  std::string log;
  std::string log_path;
};

Machine& machine();
using Lock = std::unique_lock<std::mutex>;

// The contexts that this thread pushed; the last is current.
std::vector<CUcontext>& pushed_contexts();
CUcontext current_context();
// This thread executes a host function, which may call nothing of CUDA.
bool& in_host_function();
CUstreamCaptureMode& capture_mode();  // of this thread

// What a function needs beside its arguments.
enum class Needs : uint8_t { kNothing, kDriver, kContext };
// What opens every function: the code that it is to answer, CUDA_SUCCESS where it may go on.
CUresult enter(Lock& lock, const char* function, Needs needs);

// A fault of the program under test that CUDA would answer with undefined behaviour: one sentence
// into the log and onto stderr, and the process aborts.
[[noreturn]] void fault(const std::string& sentence);
void say(Machine& all, const std::string& sentence);

// ---- memory (memory.cc)

// The block that has these bytes, or null.
Block* block_of(Machine& all, uintptr_t pointer, size_t bytes);
// Of the device or of the host, as the device may reach it; null where it may not.
std::byte* reach(Machine& all, CUcontext context, CUdeviceptr pointer, size_t bytes);

// ---- streams (streams.cc)

// The stream that a handle names, default streams included; null: none that is alive.
CUstream stream_of(Machine& all, CUstream handle);
CUstream make_stream(Machine& all, CUcontext context, bool blocking);
// Null: no such event. Whoever destroyed it is at fault.
CUevent event_of(Machine& all, CUevent handle);
// Puts it behind what the stream has, and behind what its kind of stream waits for.
CUresult enqueue(Machine& all, CUstream stream, Operation operation);
bool is_executed(const Mark& mark);
bool is_idle(const Machine& all);

}  // namespace cuda_double

#endif  // PARALLAX_TESTS_CUDA_DOUBLE_MACHINE_H_
