// SPDX-License-Identifier: Apache-2.0
// The life of a communicator of the double of NCCL. See nccl_communicator.h.
#include "cuda/double/nccl_communicator.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace nccl_double {

namespace {

struct Communicators {
  Communicators() { cuda_double_add_leaks(nccl_double_leaks); }
  std::mutex mutex;
  std::map<ncclComm_t, Communicator> alive;
};

Communicators& communicators() {
  static Communicators* const kept = new Communicators;
  return *kept;
}

uint64_t host_of_process() {
  const char* told = std::getenv("NCCL_HOSTID");
  return told == nullptr ? 0 : std::hash<std::string>()(told);
}

// Two ranks of one device, which NCCL refuses; -1: none.
int rank_on_same_device(ncclComm& own) {
  const RankState& here = own.world->rank(own.rank);
  for (int i = 0; i < own.rank_count; ++i) {
    const RankState& other = own.world->rank(i);
    if (i != own.rank && other.device == here.device && other.host == here.host) return i;
  }
  return -1;
}

ncclResult_t failed(ncclComm& own, ncclResult_t code, const std::string& sentence) {
  fail(own, code, sentence);
  return code;
}

bool is_config(const ncclConfig_t* config) {
  return config == nullptr || (config->magic == 0xcafebeef && config->size <= sizeof *config);
}

// Waits for what was launched; false: it was given up.
void wait_for_launched(ncclComm& own) {
  std::unique_lock lock(own.mutex);
  own.changed.wait(lock, [&] { return own.finished == own.launched; });
}

}  // namespace

ncclResult_t attach(ncclComm& own) {
  own.world = World::open(own.path, true);
  if (own.world == nullptr) {
    return failed(own, ncclSystemError, "the file of the unique id cannot be opened");
  }
  World& world = *own.world;
  uint32_t none = 0;
  const uint32_t count = static_cast<uint32_t>(own.rank_count);
  if (!world.shared().rank_count.compare_exchange_strong(none, count) && none != count) {
    return failed(own, ncclInvalidArgument,
                  "rank " + std::to_string(own.rank) + " says that there are " +
                      std::to_string(count) + " ranks, another one says " + std::to_string(none));
  }
  RankState& here = world.rank(own.rank);
  here.device = own.device;
  here.host = host_of_process();
  if (here.present.exchange(1) != 0) {
    return failed(own, ncclInvalidUsage,
                  "there are two ranks " + std::to_string(own.rank) + " of one unique id");
  }
  int missing = -1;
  switch (world.wait_present(
      own.rank_count, [&] { return own.aborted.load(); }, &missing)) {
    case World::Wait::kStopped:
      return ncclSystemError;
    case World::Wait::kLate:
      return failed(own, ncclSystemError,
                    "rank " + std::to_string(own.rank) + " waited for rank " +
                        std::to_string(missing) + " to come until its deadline");
    default:
      break;
  }
  if (own.rank == 0) world.remove_file();
  if (const int other = rank_on_same_device(own); other >= 0) {
    return failed(own, ncclInvalidUsage,
                  "ranks " + std::to_string(own.rank) + " and " + std::to_string(other) +
                      " are both on device " + std::to_string(own.device) +
                      " (duplicate GPU; NCCL_HOSTID tells hosts apart)");
  }
  return ncclSuccess;
}

bool is_blocking(const ncclConfig_t* config, bool otherwise) {
  if (config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT) return otherwise;
  return config->blocking != 0;
}

Communicator find(ncclComm_t handle) {
  const std::lock_guard lock(communicators().mutex);
  const auto found = communicators().alive.find(handle);
  return found == communicators().alive.end() ? nullptr : found->second;
}

void add(const Communicator& communicator) {
  const std::lock_guard lock(communicators().mutex);
  communicators().alive[communicator.get()] = communicator;
}

void remove(ncclComm_t handle) {
  const std::lock_guard lock(communicators().mutex);
  communicators().alive.erase(handle);
}

void say(const std::string& sentence) { cuda_double_say(("nccl: " + sentence).c_str()); }

void fail(ncclComm& communicator, ncclResult_t code, const std::string& sentence) {
  say(sentence);
  const std::lock_guard lock(communicator.mutex);
  if (communicator.error == ncclSuccess) communicator.error = code;
  communicator.last_error = sentence;
}

ncclResult_t refuse(ncclComm* communicator, ncclResult_t code, const std::string& sentence) {
  say(sentence);
  if (communicator != nullptr) {
    const std::lock_guard lock(communicator->mutex);
    communicator->last_error = sentence;
  }
  return code;
}

ncclResult_t enter(const char* function) {
  return static_cast<ncclResult_t>(cuda_double_enter(function));
}

bool in_progress(const ncclComm& communicator) {
  return communicator.under_way > 0 || communicator.answers_in_progress > 0 ||
         (communicator.answers_in_progress < 0 && launches_held());
}

ncclResult_t ready(const Communicator& communicator, const char* function) {
  if (communicator == nullptr) {
    return refuse(nullptr, ncclInvalidArgument,
                  std::string(function) + " was called for no communicator that is alive");
  }
  std::unique_lock lock(communicator->mutex);
  if (communicator->error != ncclSuccess) return communicator->error;
  if (communicator->registering) say(std::string(function) + ": two threads call NCCL at once");
  const bool early = in_progress(*communicator);
  if (!early && !communicator->finalised) return ncclSuccess;
  lock.unlock();
  return refuse(communicator.get(), ncclInvalidArgument,
                std::string(function) + " was called for a communicator " +
                    (early ? "whose last operation is in progress" : "that is finalised"));
}

}  // namespace nccl_double

using namespace nccl_double;

extern "C" {

PARALLAX_DOUBLE_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (ncclResult_t code = nccl_double::enter("ncclGetUniqueId")) return code;
  if (id == nullptr) return ncclInvalidArgument;
  const std::string path = make_world_file();
  if (path.empty() || path.size() >= sizeof id->internal) return ncclSystemError;
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, path.data(), path.size());
  return ncclSuccess;
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int rank_count,
                                                        ncclUniqueId id, int rank,
                                                        ncclConfig_t* config) {
  if (ncclResult_t code = nccl_double::enter("ncclCommInitRankConfig")) return code;
  if (handle == nullptr || rank_count < 1 || rank_count > kRanksMax || rank < 0 ||
      rank >= rank_count || !is_config(config)) {
    return refuse(nullptr, ncclInvalidArgument,
                  "ncclCommInitRankConfig: rank " + std::to_string(rank) + " of " +
                      std::to_string(rank_count) + ", or a configuration that is none");
  }
  *handle = nullptr;
  const int device = cuda_double_current_device();
  if (device < 0) {
    return refuse(nullptr, ncclUnhandledCudaError,
                  "ncclCommInitRankConfig was called without a current context");
  }
  auto made = std::make_shared<ncclComm>();
  made->rank = rank;
  made->rank_count = rank_count;
  made->device = device;
  made->path.assign(id.internal, strnlen(id.internal, sizeof id.internal));
  made->blocking = is_blocking(config, true);
  add(made);
  *handle = made.get();
  const ncclResult_t code = meet(made, [made] { return attach(*made); });
  if (code != ncclSuccess && code != ncclInProgress) {
    remove(made.get());
    *handle = nullptr;
  }
  return code;
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  if (ncclResult_t code = nccl_double::enter("ncclCommFinalize")) return code;
  const Communicator own = find(handle);
  if (ncclResult_t code = ready(own, "ncclCommFinalize")) return code;
  {
    const std::lock_guard lock(own->mutex);
    own->finalised = true;
  }
  return meet(own, [own] {
    wait_for_launched(*own);
    return ncclSuccess;
  });
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (ncclResult_t code = nccl_double::enter("ncclCommDestroy")) return code;
  if (handle == nullptr) return ncclSuccess;
  const Communicator own = find(handle);
  if (own == nullptr) return refuse(nullptr, ncclInvalidArgument, "ncclCommDestroy: not alive");
  {
    std::unique_lock lock(own->mutex);
    const uint64_t left = own->launched - own->finished;
    size_t registered = own->windows.size();
    for (const auto& [registration, each] : own->registered) registered += each.uses > 0 ? 1 : 0;
    lock.unlock();
    if (left > 0) say("ncclCommDestroy waits for " + std::to_string(left) + " collectives");
    if (registered > 0) {
      say("ncclCommDestroy: " + std::to_string(registered) + " registrations are left");
    }
  }
  wait_for_launched(*own);
  drop_registrations(*own);
  remove(handle);
  return ncclSuccess;
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (ncclResult_t code = nccl_double::enter("ncclCommAbort")) return code;
  if (handle == nullptr) return ncclSuccess;
  const Communicator own = find(handle);
  if (own == nullptr) return refuse(nullptr, ncclInvalidArgument, "ncclCommAbort: not alive");
  own->aborted = true;
  {
    const std::lock_guard lock(own->mutex);
    if (own->child != nullptr) own->child->aborted = true;
  }
  {
    // What is executed at the moment ends; what is queued behind does nothing when its turn comes.
    std::unique_lock lock(own->mutex);
    own->changed.notify_all();
    own->changed.wait(lock, [&] { return !own->executing && own->under_way == 0; });
  }
  if (own->rank == 0 && own->world != nullptr) own->world->remove_file();
  drop_registrations(*own);
  remove(handle);
  return ncclSuccess;
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  if (ncclResult_t code = nccl_double::enter("ncclCommGetAsyncError")) return code;
  const Communicator own = find(handle);
  if (own == nullptr || error == nullptr) return ncclInvalidArgument;
  const std::lock_guard lock(own->mutex);
  *error = own->error;
  if (own->error == ncclSuccess && in_progress(*own)) {
    *error = ncclInProgress;
    if (own->answers_in_progress > 0) --own->answers_in_progress;
  }
  return ncclSuccess;
}

PARALLAX_DOUBLE_API const char* ncclGetErrorString(ncclResult_t code) {
  static const char* const kSentences[] = {
      "no error",
      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)",
      "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error",
      "NCCL operation in progress"};
  return code >= 0 && code < ncclNumResults ? kSentences[code] : "unknown result code";
}

PARALLAX_DOUBLE_API const char* ncclGetLastError(ncclComm_t handle) {
  static thread_local std::string kept;
  const Communicator own = find(handle);
  if (own == nullptr) return "";
  const std::lock_guard lock(own->mutex);
  kept = own->last_error;
  return kept.c_str();
}

void nccl_double_set_async_error(void* handle, int code) {
  if (const Communicator own = find(static_cast<ncclComm_t>(handle))) {
    fail(*own, static_cast<ncclResult_t>(code), "an asynchronous error that a test asked for");
  }
}

size_t nccl_double_leaks(char* text, size_t bytes) {
  const std::lock_guard lock(communicators().mutex);
  std::string lines;
  size_t count = 0;
  for (const auto& [handle, own] : communicators().alive) {
    lines += "the communicator of rank " + std::to_string(own->rank) + " of " +
             std::to_string(own->rank_count) + "\n";
    ++count;
    const std::lock_guard inner(own->mutex);
    for (const auto& [registration, each] : own->registered) {
      lines += "a registration of " + std::to_string(each.bytes) + " bytes\n";
      ++count;
    }
    for (const auto& [number, window] : own->windows) {
      lines += "a window of " + std::to_string(window->bytes) + " bytes\n";
      ++count;
    }
  }
  if (text != nullptr && bytes > 0) std::snprintf(text, bytes, "%s", lines.c_str());
  return count;
}

}  // extern "C"
