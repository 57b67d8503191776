// SPDX-License-Identifier: Apache-2.0
// Communicators of the double of NCCL. A communicator lives until what it launched is executed or
// given up; its handle ends with ncclCommDestroy or ncclCommAbort. Its state is guarded by its own
// lock; waiting for other ranks happens outside of it.
#ifndef PARALLAX_TESTS_CUDA_DOUBLE_NCCL_COMMUNICATOR_H_
#define PARALLAX_TESTS_CUDA_DOUBLE_NCCL_COMMUNICATOR_H_

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/double/control.h"
#include "cuda/double/nccl_world.h"

struct ncclComm {
  int rank = 0;
  int rank_count = 0;
  int device = 0;
  bool blocking = true;
  std::string path;
  std::atomic<bool> aborted{false};

  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<nccl_double::World> world;
  int under_way = 0;            // inits, splits, windows and ends: ncclInProgress
  int answers_in_progress = 0;  // -1: as long as all are so
  ncclResult_t error = ncclSuccess;
  std::string last_error;
  bool finalised = false;
  bool registering = false;  // a thread registers a buffer, or deregisters one
  uint64_t launched = 0;
  uint64_t finished = 0;
  bool executing = false;
  uint64_t collectives = 0;  // descriptors posted
  uint64_t places = 0;       // that this rank has come to, on streams
  uint64_t turns = 0;        // chunks handed over
  uint64_t offers = 0;       // splits and windows; places of callers
  uint64_t windows_made = 0;
  // By what a communicator that is made out of this one consists of, how many there were; and what
  // was read of each rank's mail.
  std::map<std::string, uint64_t> shrunk;
  std::map<int, uint64_t> mail_read;
  // One that is made out of this, in progress: what aborts this one aborts that.
  std::shared_ptr<ncclComm> child;
  struct Registration {
    CUdeviceptr pointer = 0;
    size_t bytes = 0;
    int uses = 1;  // less those that were to end, whether that succeeded or not
  };
  std::map<void*, Registration> registered;
  // In the order of their numbers, which all ranks have alike.
  std::map<uint64_t, ncclWindow_t> windows;
};

struct ncclWindow_vidmem {
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  uint64_t number = 0;  // of the communicator's, from 1
  bool symmetric = false;
};

namespace nccl_double {

using Communicator = std::shared_ptr<ncclComm>;

// Those of this process that were neither destroyed nor aborted.
Communicator find(ncclComm_t handle);
void add(const Communicator& communicator);
void remove(ncclComm_t handle);
// What it has registered goes with it.
void drop_registrations(ncclComm& communicator);

void say(const std::string& sentence);
// Into the log, ncclGetLastError and, where it is not there yet, the asynchronous error.
void fail(ncclComm& communicator, ncclResult_t code, const std::string& sentence);
// An argument that is wrong: into the log and ncclGetLastError alone.
ncclResult_t refuse(ncclComm* communicator, ncclResult_t code, const std::string& sentence);
// What a function that uses a communicator begins with: ncclSuccess, or what it answers.
ncclResult_t ready(const Communicator& communicator, const char* function);
// Its last operation is not over. With its lock.
bool in_progress(const ncclComm& communicator);
// Launches are in progress until a test says otherwise.
bool launches_held();
// Meets the other ranks of the world that the communicator's path names.
ncclResult_t attach(ncclComm& communicator);
bool is_blocking(const ncclConfig_t* config, bool otherwise);
// What a function begins with: the code that it was told to answer.
ncclResult_t enter(const char* function);

// Says `own` to all ranks and hears theirs; in order of ranks (nccl_split.cc).
ncclResult_t exchange(ncclComm& own, const Offer& offer, std::vector<Offer>* all);

// ---- groups (nccl_group.cc)

struct Collective {
  Communicator communicator;
  const char* name = "";
  Descriptor what;
  CUdeviceptr send = 0;
  CUdeviceptr receive = 0;
  size_t send_bytes = 0;
  size_t receive_bytes = 0;
  cudaStream_t stream = nullptr;
};

// Now, or at the end of the group of this thread.
ncclResult_t launch(Collective collective);
// Work that waits for other ranks: on a thread of its own where the communicator does not block,
// and at the end of a group together with what else is in it. `work` answers with the result.
ncclResult_t meet(const Communicator& communicator, std::function<ncclResult_t()> work);

// ---- collectives (nccl_collective.cc)

enum Kind : int32_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kSplit,
  kWindow
};
// Whether it works in symmetric memory, and where, which has to be alike on all ranks
// (nccl_windows.cc).
void look_for_windows(Collective* collective);
void drop_windows(ncclComm& communicator);
// On the stream's thread.
void execute(const std::vector<Collective>& together, uint64_t number);
void count_launched(uint64_t count);

}  // namespace nccl_double

#endif  // PARALLAX_TESTS_CUDA_DOUBLE_NCCL_COMMUNICATOR_H_
