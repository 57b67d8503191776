// SPDX-License-Identifier: Apache-2.0
// Groups of the double of NCCL: what a thread calls between ncclGroupStart and ncclGroupEnd happens
// at the end, together: communicators meet at once, and collectives of a communicator are one
// operation of its stream.
#include <thread>

#include "cuda/double/nccl_communicator.h"

namespace nccl_double {

namespace {

struct Meeting {
  Communicator communicator;
  std::function<ncclResult_t()> work;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Meeting> meetings;
  std::vector<Collective> collectives;
};

Group& group_of_thread() {
  static thread_local Group group;
  return group;
}

std::atomic<int>& answers_in_progress() {
  static std::atomic<int> answers{0};
  return answers;
}

}  // namespace

bool launches_held() { return answers_in_progress() < 0; }

namespace {

// One operation of a stream, alive until it is executed.
struct Launch {
  std::vector<Collective> together;
  uint64_t number = 0;
};

void run_launch(void* argument, int failed) {
  const std::unique_ptr<Launch> launch(static_cast<Launch*>(argument));
  ncclComm& own = *launch->together.front().communicator;
  if (failed != 0) {
    fail(own, ncclUnhandledCudaError,
         "the context of device " + std::to_string(own.device) + " has failed");
  }
  execute(launch->together, launch->number);
}

ncclResult_t launch_together(std::vector<Collective> together) {
  const Communicator own = together.front().communicator;
  std::vector<CUdeviceptr> touched;
  for (size_t i = 0; i < together.size(); ++i) {
    together[i].what.group_index = static_cast<int32_t>(i);
    together[i].what.group_size = static_cast<int32_t>(together.size());
    if (together[i].send_bytes > 0) touched.push_back(together[i].send);
    if (together[i].receive_bytes > 0) touched.push_back(together[i].receive);
    if (together[i].stream != together[0].stream) {
      return refuse(own.get(), ncclInvalidUsage,
                    "a group launches collectives of one communicator on two streams");
    }
  }
  const uint64_t count = together.size();
  auto launch = std::make_unique<Launch>();
  {
    const std::lock_guard lock(own->mutex);
    for (Collective& each : together) each.what.number = own->launched++;
    launch->number = together.front().what.number;
  }
  launch->together = std::move(together);
  const cudaStream_t stream = launch->together.front().stream;
  const CUresult code =
      cuda_double_enqueue(stream, launch->together.front().name, run_launch, launch.get(),
                          touched.data(), static_cast<unsigned>(touched.size()));
  if (code != CUDA_SUCCESS) {
    const std::lock_guard lock(own->mutex);
    own->launched -= count;
    return ncclUnhandledCudaError;
  }
  launch.release();
  count_launched(count);
  const int answers = answers_in_progress();
  if (own->blocking || answers == 0) return ncclSuccess;
  const std::lock_guard lock(own->mutex);
  own->answers_in_progress = answers;
  return ncclInProgress;
}

ncclResult_t run_meeting(const Meeting& meeting) {
  const ncclResult_t code = meeting.work();
  ncclComm& own = *meeting.communicator;
  const std::lock_guard lock(own.mutex);
  --own.under_way;
  // An init that was aborted is no error of its own.
  if (code != ncclSuccess && own.error == ncclSuccess && !own.aborted) own.error = code;
  own.changed.notify_all();
  return code;
}

// Starts them all; of those that block, the worst result.
ncclResult_t run_meetings(std::vector<Meeting> meetings) {
  ncclResult_t result = ncclSuccess;
  std::vector<std::thread> waited;
  std::vector<ncclResult_t> results(meetings.size(), ncclSuccess);
  for (size_t i = 0; i < meetings.size(); ++i) {
    if (meetings[i].communicator->blocking) {
      waited.emplace_back([&, i] { results[i] = run_meeting(meetings[i]); });
    } else {
      std::thread([meeting = meetings[i]] { run_meeting(meeting); }).detach();
      result = ncclInProgress;
    }
  }
  for (std::thread& each : waited) each.join();
  for (const ncclResult_t code : results) {
    if (code != ncclSuccess) result = code;
  }
  return result;
}

// The collectives of each communicator, in the order of their calls.
ncclResult_t run_collectives(std::vector<Collective> collectives) {
  std::vector<std::vector<Collective>> by_communicator;
  for (Collective& each : collectives) {
    auto found = by_communicator.begin();
    while (found != by_communicator.end() && found->front().communicator != each.communicator) {
      ++found;
    }
    if (found == by_communicator.end()) found = by_communicator.emplace(found);
    found->push_back(std::move(each));
  }
  ncclResult_t result = ncclSuccess;
  for (std::vector<Collective>& together : by_communicator) {
    const ncclResult_t code = launch_together(std::move(together));
    // An error counts more than what is in progress.
    if (result == ncclSuccess || (result == ncclInProgress && code != ncclSuccess)) result = code;
  }
  return result;
}

}  // namespace

ncclResult_t launch(Collective collective) {
  Group& group = group_of_thread();
  if (group.depth == 0) return launch_together({std::move(collective)});
  group.collectives.push_back(std::move(collective));
  return ncclSuccess;
}

ncclResult_t meet(const Communicator& communicator, std::function<ncclResult_t()> work) {
  {
    const std::lock_guard lock(communicator->mutex);
    ++communicator->under_way;
  }
  Group& group = group_of_thread();
  Meeting meeting{communicator, std::move(work)};
  if (group.depth > 0) {
    group.meetings.push_back(std::move(meeting));
    return ncclSuccess;
  }
  return run_meetings({std::move(meeting)});
}

}  // namespace nccl_double

using namespace nccl_double;

extern "C" {

PARALLAX_DOUBLE_API ncclResult_t ncclGroupStart() {
  if (ncclResult_t code = nccl_double::enter("ncclGroupStart")) return code;
  ++group_of_thread().depth;
  return ncclSuccess;
}

PARALLAX_DOUBLE_API ncclResult_t ncclGroupEnd() {
  const ncclResult_t told = nccl_double::enter("ncclGroupEnd");
  Group& group = group_of_thread();
  if (group.depth == 0) {
    return refuse(nullptr, ncclInvalidUsage, "ncclGroupEnd was called without ncclGroupStart");
  }
  if (--group.depth > 0) return told;
  std::vector<Meeting> meetings = std::move(group.meetings);
  std::vector<Collective> collectives = std::move(group.collectives);
  group = Group();
  if (told != ncclSuccess) {
    // Nothing of the group happens.
    for (const Meeting& meeting : meetings) {
      const std::lock_guard lock(meeting.communicator->mutex);
      --meeting.communicator->under_way;
    }
    return told;
  }
  const ncclResult_t met = run_meetings(std::move(meetings));
  const ncclResult_t launched = run_collectives(std::move(collectives));
  return met == ncclSuccess ? launched : met;
}

void nccl_double_set_launch_in_progress(int answers) { answers_in_progress() = answers; }

}  // extern "C"
