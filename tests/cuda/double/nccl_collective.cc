// SPDX-License-Identifier: Apache-2.0
// Collectives of the double of NCCL: each is checked where it is called, and executed by the thread
// of its stream, piece by piece through what the ranks share. What a rank is about to do must be
// what all are about to do; if it is not, the communicator has failed and says who differs.
#include <cstring>

#include "cuda/double/nccl_communicator.h"
#include "cuda/double/nccl_numbers.h"

namespace nccl_double {

namespace {

std::atomic<uint64_t>& launched_count() {
  static std::atomic<uint64_t> count{0};
  return count;
}
std::atomic<uint64_t>& finished_count() {
  static std::atomic<uint64_t> count{0};
  return count;
}

std::string words_of(const Descriptor& what) {
  static const char* const kNames[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                       "Reduce"};
  const auto place = [](const char* lead, uint64_t window, uint64_t offset) {
    return window == 0 ? std::string()
                       : lead + std::to_string(window) + " at " + std::to_string(offset);
  };
  return std::string(kNames[what.kind]) + " number " + std::to_string(what.number) + " of " +
         std::to_string(what.count) + " elements of type " + std::to_string(what.type) +
         ", operation " + std::to_string(what.op) + ", root " + std::to_string(what.root) + ", " +
         std::to_string(what.group_index + 1) + " of a group of " +
         std::to_string(what.group_size) +
         place(", sent from window ", what.send_window, what.send_offset) +
         place(", received in window ", what.receive_window, what.receive_offset);
}

// One collective under way on a stream's thread.
class Execution {
 public:
  explicit Execution(const Collective& collective)
      : of_(collective), own_(*collective.communicator), world_(*own_.world) {}

  // False: given up.
  bool run() {
    if (!agree()) return false;
    send_ = reach(of_.send, of_.send_bytes);
    receive_ = reach(of_.receive, of_.receive_bytes);
    element_bytes_ = bytes_of(static_cast<ncclDataType_t>(of_.what.type));
    switch (of_.what.kind) {
      case kAllReduce:
        return all_reduce();
      case kAllGather:
        return all_gather();
      case kReduceScatter:
        return reduce_scatter();
      case kReduce:
        return reduce();
      default:
        return broadcast();
    }
  }

 private:
  std::byte* reach(CUdeviceptr pointer, size_t bytes) const {
    return bytes == 0 ? nullptr
                      : static_cast<std::byte*>(cuda_double_alias(pointer, bytes, own_.device));
  }

  // Until all ranks have come here.
  bool come() {
    const uint64_t place = ++own_.places;
    world_.rank(own_.rank).arrived[kStreams].store(place, std::memory_order_release);
    int missing = -1;
    const World::Wait wait = world_.wait(
        kStreams, place, own_.rank_count, [this] { return own_.aborted.load(); }, &missing);
    if (wait == World::Wait::kLate) {
      fail(own_, ncclSystemError,
           "rank " + std::to_string(own_.rank) + " waited for rank " + std::to_string(missing) +
               " until its deadline, in " + words_of(of_.what));
    }
    return wait == World::Wait::kDone;
  }

  bool agree() {
    const uint64_t parity = own_.collectives++ % 2;
    world_.rank(own_.rank).descriptors[parity] = of_.what;
    if (!come()) return false;
    for (int i = 0; i < own_.rank_count; ++i) {
      const Descriptor& other = world_.rank(i).descriptors[parity];
      if (other == of_.what) continue;
      fail(own_, ncclInvalidUsage,
           "ranks differ: rank " + std::to_string(own_.rank) + " launched " + words_of(of_.what) +
               "; rank " + std::to_string(i) + " launched " + words_of(other));
      return false;
    }
    return true;
  }

  std::vector<const std::byte*> chunks(uint64_t turn, size_t offset) {
    std::vector<const std::byte*> all;
    for (int i = 0; i < own_.rank_count; ++i) all.push_back(world_.chunk(i, turn) + offset);
    return all;
  }

  // Calls hand(chunk, first, count), comes to the others, calls take(turn, first, count), for each
  // piece of `count` elements of which `elements_max` fit into a chunk.
  template <typename Hand, typename Take>
  bool pieces(uint64_t count, uint64_t elements_max, Hand hand, Take take) {
    for (uint64_t first = 0; first < count; first += elements_max) {
      const uint64_t here = count - first < elements_max ? count - first : elements_max;
      const uint64_t turn = own_.turns++;
      hand(world_.chunk(own_.rank, turn), first, here);
      if (!come()) return false;
      take(turn, first, here);
    }
    return true;
  }

  void copy_in(std::byte* chunk, uint64_t first, uint64_t count) const {
    std::memcpy(chunk, send_ + first * element_bytes_, count * element_bytes_);
  }
  void combine_into(uint64_t turn, size_t offset, uint64_t first, uint64_t count) {
    combine(static_cast<ncclDataType_t>(of_.what.type), static_cast<ncclRedOp_t>(of_.what.op),
            chunks(turn, offset), receive_ + first * element_bytes_, count);
  }

  bool all_reduce() {
    return pieces(
        of_.what.count, kChunkBytes / element_bytes_,
        [&](std::byte* chunk, uint64_t first, uint64_t count) { copy_in(chunk, first, count); },
        [&](uint64_t turn, uint64_t first, uint64_t count) {
          combine_into(turn, 0, first, count);
        });
  }

  bool all_gather() {
    return pieces(
        of_.what.count, kChunkBytes / element_bytes_,
        [&](std::byte* chunk, uint64_t first, uint64_t count) { copy_in(chunk, first, count); },
        [&](uint64_t turn, uint64_t first, uint64_t count) {
          for (int i = 0; i < own_.rank_count; ++i) {
            const uint64_t at = static_cast<uint64_t>(i) * of_.what.count + first;
            std::memcpy(receive_ + at * element_bytes_, world_.chunk(i, turn),
                        count * element_bytes_);
          }
        });
  }

  bool reduce_scatter() {
    const uint64_t ranks = static_cast<uint64_t>(own_.rank_count);
    const uint64_t most = kChunkBytes / element_bytes_ / ranks;
    return pieces(
        of_.what.count, most,
        [&](std::byte* chunk, uint64_t first, uint64_t count) {
          for (uint64_t i = 0; i < ranks; ++i) {
            copy_in(chunk + i * most * element_bytes_, i * of_.what.count + first, count);
          }
        },
        [&](uint64_t turn, uint64_t first, uint64_t count) {
          const size_t offset = static_cast<size_t>(own_.rank) * most * element_bytes_;
          combine_into(turn, offset, first, count);
        });
  }

  bool reduce() {
    return pieces(
        of_.what.count, kChunkBytes / element_bytes_,
        [&](std::byte* chunk, uint64_t first, uint64_t count) { copy_in(chunk, first, count); },
        [&](uint64_t turn, uint64_t first, uint64_t count) {
          if (own_.rank == of_.what.root) combine_into(turn, 0, first, count);
        });
  }

  bool broadcast() {
    const bool root = own_.rank == of_.what.root;
    return pieces(
        of_.what.count, kChunkBytes / element_bytes_,
        [&](std::byte* chunk, uint64_t first, uint64_t count) {
          if (root) copy_in(chunk, first, count);
        },
        [&](uint64_t turn, uint64_t first, uint64_t count) {
          std::memcpy(receive_ + first * element_bytes_, world_.chunk(of_.what.root, turn),
                      count * element_bytes_);
        });
  }

  const Collective& of_;
  ncclComm& own_;
  World& world_;
  std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
  size_t element_bytes_ = 1;
};

// A kernel whose communicator has failed never ends by itself.
void wait_for_abort(ncclComm& own) {
  std::unique_lock lock(own.mutex);
  own.executing = false;
  own.changed.notify_all();
  const auto most = std::chrono::milliseconds(deadline_ms());
  own.changed.wait_for(lock, most, [&] { return own.aborted.load(); });
}

bool has_failed(ncclComm& own) {
  const std::lock_guard lock(own.mutex);
  return own.error != ncclSuccess;
}

bool reaches(const Collective& collective, const char* what, CUdeviceptr pointer, size_t bytes) {
  ncclComm& own = *collective.communicator;
  if (bytes == 0 || cuda_double_alias(pointer, bytes, own.device) != nullptr) return true;
  refuse(&own, ncclInvalidArgument,
         std::string(collective.name) + ": the " + what + " buffer is no memory of " +
             std::to_string(bytes) + " bytes that device " + std::to_string(own.device) +
             " can reach");
  return false;
}

// What is sent and what is received are apart, or in place as NCCL knows it.
bool may_overlap(const Collective& of, size_t bytes) {
  const bool apart =
      of.send + of.send_bytes <= of.receive || of.receive + of.receive_bytes <= of.send;
  const size_t own = static_cast<size_t>(of.communicator->rank) * bytes;
  if (of.what.kind == kAllGather) return apart || of.send == of.receive + own;
  if (of.what.kind == kReduceScatter) return apart || of.receive == of.send + own;
  return apart || of.send == of.receive;
}

ncclResult_t call(Collective collective, ncclComm_t handle) {
  const std::string name = collective.name;
  if (ncclResult_t code = nccl_double::enter(collective.name)) return code;
  collective.communicator = find(handle);
  if (ncclResult_t code = ready(collective.communicator, collective.name)) return code;
  ncclComm& own = *collective.communicator;
  const auto type = static_cast<ncclDataType_t>(collective.what.type);
  const auto op = static_cast<ncclRedOp_t>(collective.what.op);
  const bool root = collective.what.root >= 0 && collective.what.root < own.rank_count;
  if (!may_combine(type, op) || !root) {
    return refuse(&own, ncclInvalidArgument, name + ": type, operation or root are none");
  }
  const size_t bytes = collective.what.count * bytes_of(type);
  const size_t all_bytes = bytes * static_cast<size_t>(own.rank_count);
  collective.send_bytes = collective.what.kind == kReduceScatter ? all_bytes : bytes;
  collective.receive_bytes = collective.what.kind == kAllGather ? all_bytes : bytes;
  if (collective.what.kind == kBroadcast && own.rank != collective.what.root) {
    collective.send_bytes = 0;
  }
  if (collective.what.kind == kReduce && own.rank != collective.what.root) {
    collective.receive_bytes = 0;
  }
  if (!reaches(collective, "send", collective.send, collective.send_bytes) ||
      !reaches(collective, "receive", collective.receive, collective.receive_bytes)) {
    return ncclInvalidArgument;
  }
  if (cuda_double_stream_device(collective.stream) != own.device) {
    return refuse(&own, ncclInvalidUsage,
                  name + ": the stream is not of the communicator's device");
  }
  if (!may_overlap(collective, bytes)) {
    return refuse(&own, ncclInvalidUsage, name + ": the buffers overlap, and not in place");
  }
  look_for_windows(&collective);
  return launch(std::move(collective));
}

CUdeviceptr number_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

void count_launched(uint64_t count) { launched_count() += count; }

void execute(const std::vector<Collective>& together, uint64_t number) {
  ncclComm& own = *together.front().communicator;
  {
    // In the order of launches, whichever streams they were launched on.
    std::unique_lock lock(own.mutex);
    own.changed.wait(lock, [&] { return own.finished == number || own.aborted; });
    own.executing = !own.aborted;
  }
  bool done = !own.aborted;
  for (const Collective& each : together) {
    const int told = done ? cuda_double_enter("collective") : 0;
    if (told != 0) {
      fail(own, static_cast<ncclResult_t>(told), "an asynchronous error that a test asked for");
    }
    done = done && !has_failed(own) && Execution(each).run();
  }
  if (!done && !own.aborted) wait_for_abort(own);
  const std::lock_guard lock(own.mutex);
  own.executing = false;
  own.finished += together.size();
  if (done) finished_count() += together.size();
  own.changed.notify_all();
}

}  // namespace nccl_double

using namespace nccl_double;

extern "C" {

PARALLAX_DOUBLE_API ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count,
                                               ncclDataType_t type, ncclRedOp_t op,
                                               ncclComm_t handle, cudaStream_t stream) {
  Collective collective;
  collective.name = "ncclAllReduce";
  collective.what = {.count = count, .kind = kAllReduce, .type = type, .op = op, .root = 0};
  collective.send = number_of(send);
  collective.receive = number_of(receive);
  collective.stream = stream;
  return call(std::move(collective), handle);
}

PARALLAX_DOUBLE_API ncclResult_t ncclAllGather(const void* send, void* receive, size_t count,
                                               ncclDataType_t type, ncclComm_t handle,
                                               cudaStream_t stream) {
  Collective collective;
  collective.name = "ncclAllGather";
  collective.what = {.count = count, .kind = kAllGather, .type = type, .op = ncclSum, .root = 0};
  collective.send = number_of(send);
  collective.receive = number_of(receive);
  collective.stream = stream;
  return call(std::move(collective), handle);
}

PARALLAX_DOUBLE_API ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count,
                                                   ncclDataType_t type, ncclRedOp_t op,
                                                   ncclComm_t handle, cudaStream_t stream) {
  Collective collective;
  collective.name = "ncclReduceScatter";
  collective.what = {.count = count, .kind = kReduceScatter, .type = type, .op = op, .root = 0};
  collective.send = number_of(send);
  collective.receive = number_of(receive);
  collective.stream = stream;
  return call(std::move(collective), handle);
}

PARALLAX_DOUBLE_API ncclResult_t ncclReduce(const void* send, void* receive, size_t count,
                                            ncclDataType_t type, ncclRedOp_t op, int root,
                                            ncclComm_t handle, cudaStream_t stream) {
  Collective collective;
  collective.name = "ncclReduce";
  collective.what = {.count = count, .kind = kReduce, .type = type, .op = op, .root = root};
  collective.send = number_of(send);
  collective.receive = number_of(receive);
  collective.stream = stream;
  return call(std::move(collective), handle);
}

PARALLAX_DOUBLE_API ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count,
                                               ncclDataType_t type, int root, ncclComm_t handle,
                                               cudaStream_t stream) {
  Collective collective;
  collective.name = "ncclBroadcast";
  collective.what = {.count = count, .kind = kBroadcast, .type = type, .op = ncclSum, .root = root};
  collective.send = number_of(send);
  collective.receive = number_of(receive);
  collective.stream = stream;
  return call(std::move(collective), handle);
}

uint64_t nccl_double_launched() { return launched_count(); }
uint64_t nccl_double_finished() { return finished_count(); }

}  // extern "C"
