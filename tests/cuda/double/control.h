/* SPDX-License-Identifier: Apache-2.0
 *
 * The doubles of libcuda.so.1 and libnccl.so.2: what a test tells them, and what it asks them. The
 * doubles export these functions beside CUDA's and NCCL's own, which have the types of cuda.h and
 * nccl.h. A process that cannot be told is told by its environment, read at the first call:
 *
 *   CUDA_DOUBLE_DEVICES    devices of the machine; 2 by default; 0: cuInit finds none
 *   CUDA_DOUBLE_DRIVER     what cuDriverGetVersion answers; 13000 by default
 *   CUDA_DOUBLE_DELAY      SEED:MOST_US, as cuda_double_set_delay
 *   CUDA_DOUBLE_FAIL       FUNCTION:NTH:CODE[:sticky], several with `;`, as cuda_double_fail
 *   CUDA_DOUBLE_LOG        a file to which every sentence of the log is appended
 *   CUDA_DOUBLE_LEAKS      `fail`: a process that leaves streams, events, memory or communicators
 *                          behind ends with status 86
 *   NCCL_DOUBLE_VERSION    what ncclGetVersion answers; by default the version of the library
 *   NCCL_DOUBLE_DEADLINE_MS  how long a rank waits for the others before its communicator fails;
 *                          60000 by default
 *
 * Any thread may call. Nothing here counts as a call of CUDA. */
#ifndef PARALLAX_TESTS_CUDA_DOUBLE_CONTROL_H_
#define PARALLAX_TESTS_CUDA_DOUBLE_CONTROL_H_

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PARALLAX_DOUBLE_API __attribute__((visibility("default")))

/* ---- failures */

/* The nth call from now on (1: the next) of `function`, a symbol of either library, answers `code`
 * and does nothing. "*" is any function; "operation" is any operation as a stream executes it, and
 * "collective" any collective: its code is that of an asynchronous error. Sticky: the current
 * context of that call, all of them where it has none, answers `code` from then on. */
PARALLAX_DOUBLE_API void cuda_double_fail(const char* function, uint64_t nth, int code, int sticky);
/* Every call of the function, until it is told otherwise. */
PARALLAX_DOUBLE_API void cuda_double_fail_always(const char* function, int code);
PARALLAX_DOUBLE_API void cuda_double_clear_failures(void);
/* The primary context of the device, which has failed on its own; every later call answers `code`
 * and no queued operation is executed. */
PARALLAX_DOUBLE_API void cuda_double_poison(int device, int code);
/* How often a function was called since the process began. */
PARALLAX_DOUBLE_API uint64_t cuda_double_calls(const char* function);

/* ---- time */

/* Each operation is preceded by a pause of 0..most_us, drawn per stream from the seed. Kernels run
 * their blocks, and the threads of a block between two barriers, in an order that the seed draws.
 */
PARALLAX_DOUBLE_API void cuda_double_set_delay(uint64_t seed, uint32_t most_us);
/* A context takes so long to be made, as they do: hundreds of milliseconds on most machines. */
PARALLAX_DOUBLE_API void cuda_double_set_open_ms(uint32_t milliseconds);
/* A held stream executes nothing; 0 lets it go on. NULL: the default stream of the current context.
 * What it executes at the moment is not taken back. */
PARALLAX_DOUBLE_API void cuda_double_hold(CUstream stream, int held);
/* All streams, those made later too. */
PARALLAX_DOUBLE_API void cuda_double_hold_all(int held);
/* No stream executes an operation of this name, such as "cuMemcpyHtoDAsync", and what is behind it
 * waits; NULL: any is. */
PARALLAX_DOUBLE_API void cuda_double_hold_operation(const char* name);
/* The same on the streams of one device, once so many more of these were executed there. */
PARALLAX_DOUBLE_API void cuda_double_hold_after(int device, const char* name, uint64_t count);
/* Calls of a function do not go on, and count as called; NULL: those of none are held. */
PARALLAX_DOUBLE_API void cuda_double_hold_call(const char* function);
/* Until every stream is idle: 1, or 0 where that took longer than timeout_ms. */
PARALLAX_DOUBLE_API int cuda_double_drain(uint32_t timeout_ms);

/* ---- the machine */

/* Back to the devices that the environment names, or to `devices` if it is not negative. To be
 * called where no context is retained. Log, failures, delay and holds are gone too. */
PARALLAX_DOUBLE_API void cuda_double_reset(int devices);
PARALLAX_DOUBLE_API void cuda_double_set_driver_version(int version);
PARALLAX_DOUBLE_API void cuda_double_set_attribute(int device, CUdevice_attribute attribute,
                                                   int value);
/* The GPU that a device says it is by its bus, and by its UUID; by default its own number in both.
 * Two of one bus are instances of a GPU; two of one UUID are one, seen at two places. */
PARALLAX_DOUBLE_API void cuda_double_set_identity(int device, int bus, int uuid);
PARALLAX_DOUBLE_API void cuda_double_set_capture(CUstream stream, CUstreamCaptureStatus status);
/* Memory that one device may have; cuMemAlloc answers OUT_OF_MEMORY beyond. */
PARALLAX_DOUBLE_API void cuda_double_set_memory(int device, size_t bytes);

/* ---- what happened */

/* Where the host may read and write what lies at `pointer` on a device; null where that is not a
 * block of `bytes` or more, or `device`, if not negative, cannot reach it. It is what copies and
 * kernels use: the pointer itself cannot be touched. */
PARALLAX_DOUBLE_API void* cuda_double_alias(CUdeviceptr pointer, size_t bytes, int device);
/* Asynchronous copies between a device and pageable memory, which CUDA stages or waits for. */
PARALLAX_DOUBLE_API uint64_t cuda_double_pageable_copies(void);
/* Bytes that copies of devices to the host, and of the host to devices, were asked for since the
 * reset. */
PARALLAX_DOUBLE_API uint64_t cuda_double_bytes_to_host(void);
PARALLAX_DOUBLE_API uint64_t cuda_double_bytes_to_device(void);
/* Operations executed so far by one stream, or by all of them (NULL). */
PARALLAX_DOUBLE_API uint64_t cuda_double_executed(CUstream stream);
/* Streams, events, blocks of memory, modules and retained contexts that are there; one line each in
 * `text`, cut at `bytes`. `text` may be null. Communicators are told by nccl_double_leaks. */
PARALLAX_DOUBLE_API size_t cuda_double_leaks(char* text, size_t bytes);
/* The log so far, a line a sentence, cut at `bytes`; what it has in all. */
PARALLAX_DOUBLE_API size_t cuda_double_log(char* text, size_t bytes);
PARALLAX_DOUBLE_API void cuda_double_clear_log(void);

/* ---- kernels */

/* What a kernel is on the host. Pointers among the parameters were translated already. */
typedef struct cuda_double_launch {
  unsigned grid[3];
  unsigned block[3];
  uint64_t seed; /* draws the order of blocks and threads; 0: ascending */
} cuda_double_launch;
typedef void (*cuda_double_kernel)(const cuda_double_launch* launch, void** parameters);
/* Each parameter in turn: its size if it is a value, 0 if it is a pointer into device memory. */
PARALLAX_DOUBLE_API void cuda_double_add_kernel(const char* name, cuda_double_kernel kernel,
                                                const size_t* parameters, unsigned parameter_count);

/* ---- for the double of NCCL */

/* Runs on the stream's thread; `failed`: the code of the stream's context, and nothing is done. */
typedef void (*cuda_double_operation)(void* argument, int failed);
PARALLAX_DOUBLE_API CUresult cuda_double_enqueue(CUstream stream, const char* name,
                                                 cuda_double_operation run, void* argument,
                                                 const CUdeviceptr* touched,
                                                 unsigned touched_count);
/* What opens a call: the code that it is to answer instead of doing anything, 0 for none. */
PARALLAX_DOUBLE_API int cuda_double_enter(const char* function);
PARALLAX_DOUBLE_API void cuda_double_say(const char* sentence);
/* A communicator registers memory (1) or does no longer (-1): it is not to be given back meanwhile.
 */
PARALLAX_DOUBLE_API void cuda_double_count_registration(CUdeviceptr pointer, int change);
/* Device memory as ncclMemAlloc has it, which other processes can map; cuMemFree does not take it.
 */
PARALLAX_DOUBLE_API CUresult cuda_double_allocate_shareable(CUdeviceptr* pointer, size_t bytes);
PARALLAX_DOUBLE_API CUresult cuda_double_free_shareable(CUdeviceptr pointer);
PARALLAX_DOUBLE_API int cuda_double_is_shareable(CUdeviceptr pointer);
/* The device of the current context; -1: there is none. */
PARALLAX_DOUBLE_API int cuda_double_current_device(void);
/* The device of a stream; -1 where there is no such stream. */
PARALLAX_DOUBLE_API int cuda_double_stream_device(CUstream stream);
/* What else is left behind, asked at the end of the process: a count, and lines as above. */
typedef size_t (*cuda_double_leak_source)(char* text, size_t bytes);
PARALLAX_DOUBLE_API void cuda_double_add_leaks(cuda_double_leak_source source);

/* ---- the double of NCCL: libnccl.so.2 */

/* An asynchronous error of the communicator, as of a peer that died: what it has launched and not
 * finished stays so until ncclCommAbort. `communicator` is an ncclComm_t. */
PARALLAX_DOUBLE_API void nccl_double_set_async_error(void* communicator, int code);
/* Of communicators that do not block: each launch answers ncclInProgress, and so do the next
 * `answers` calls of ncclCommGetAsyncError, before which the communicator is not to be used. 0:
 * none. -1: all of them, until something else is said. */
PARALLAX_DOUBLE_API void nccl_double_set_launch_in_progress(int answers);
/* 0: no window is taken, as where devices do not reach each other's memory: to register one
 * succeeds and gives none. 1, and by default: they are. */
PARALLAX_DOUBLE_API void nccl_double_take_windows(int taken);
/* 1: communicators that are made out of others stay in progress until 0, or an abort. */
PARALLAX_DOUBLE_API void nccl_double_hold_splits(int held);
/* Those of this rank of the one that they are made out of, once the other ranks have theirs; -1: of
 * none. */
PARALLAX_DOUBLE_API void nccl_double_hold_splits_of(int rank);
/* 1: a buffer's registration, or its end, does not return until 0, or an abort of its communicator,
 * as where it waits for a rank that is gone. */
PARALLAX_DOUBLE_API void nccl_double_hold_registrations(int held);
/* How many of them are being held. */
PARALLAX_DOUBLE_API int nccl_double_held_registrations(void);
/* Collectives that this process has launched on windows of symmetric memory. */
PARALLAX_DOUBLE_API uint64_t nccl_double_symmetric(void);
/* Collectives that this process has launched, and those that it finished. */
PARALLAX_DOUBLE_API uint64_t nccl_double_launched(void);
PARALLAX_DOUBLE_API uint64_t nccl_double_finished(void);
/* Communicators and registrations that are there; as cuda_double_leaks. */
PARALLAX_DOUBLE_API size_t nccl_double_leaks(char* text, size_t bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PARALLAX_TESTS_CUDA_DOUBLE_CONTROL_H_ */
