// SPDX-License-Identifier: Apache-2.0
// What the ranks of a communicator of the double do together and not on a stream: splits; and the
// registration of buffers, which each does by itself.
#include <algorithm>
#include <chrono>

#include "cuda/double/nccl_communicator.h"

namespace nccl_double {

ncclResult_t exchange(ncclComm& own, const Offer& offer, std::vector<Offer>* all) {
  const uint64_t number = own.offers++;
  World& world = *own.world;
  world.rank(own.rank).offers[number % 2] = offer;
  for (uint64_t place = 2 * number + 1; place <= 2 * number + 2; ++place) {
    // Twice, so that nobody's next offer overwrites one that another has not read yet.
    world.rank(own.rank).arrived[kCallers].store(place, std::memory_order_release);
    int missing = -1;
    const World::Wait wait = world.wait(
        kCallers, place, own.rank_count, [&] { return own.aborted.load(); }, &missing);
    if (wait == World::Wait::kStopped) return ncclSystemError;
    if (wait == World::Wait::kLate) {
      fail(own, ncclSystemError,
           "rank " + std::to_string(own.rank) + " waited for rank " + std::to_string(missing) +
               " to split or to register a window until its deadline");
      return ncclSystemError;
    }
    if (place % 2 == 0) break;
    for (int i = 0; i < own.rank_count; ++i) {
      all->push_back(world.rank(i).offers[number % 2]);
      if (all->back().kind != offer.kind) {
        fail(own, ncclInvalidUsage,
             "ranks differ: of ranks " + std::to_string(own.rank) + " and " + std::to_string(i) +
                 " one splits and the other registers a window");
        return ncclInvalidUsage;
      }
    }
  }
  return ncclSuccess;
}

namespace {

// Which rank of which communicator this one becomes.
void place_child(const ncclComm& parent, const std::vector<Offer>& offers, ncclComm& child) {
  const Offer own = offers[static_cast<size_t>(parent.rank)];
  for (int i = 0; i < parent.rank_count; ++i) {
    const Offer& other = offers[static_cast<size_t>(i)];
    if (other.color != own.color) continue;
    ++child.rank_count;
    if (other.key < own.key || (other.key == own.key && i < parent.rank)) ++child.rank;
  }
}

ncclResult_t split(const Communicator& parent, const Communicator& child, int color, int key) {
  std::vector<Offer> offers;
  const uint64_t number = parent->offers;
  if (ncclResult_t code = exchange(*parent, {kSplit, color, key, 0}, &offers)) return code;
  if (child == nullptr) return ncclSuccess;
  place_child(*parent, offers, *child);
  child->path = parent->path + "." + std::to_string(number) + "." + std::to_string(color);
  return attach(*child);
}

}  // namespace

void drop_registrations(ncclComm& communicator) {
  const std::lock_guard lock(communicator.mutex);
  for (const auto& [registration, each] : communicator.registered) {
    cuda_double_count_registration(each.pointer, -1);
    delete static_cast<char*>(registration);
  }
  communicator.registered.clear();
  drop_windows(communicator);
}

}  // namespace nccl_double

using namespace nccl_double;

extern "C" {

PARALLAX_DOUBLE_API ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key,
                                               ncclComm_t* made, ncclConfig_t* config) {
  if (ncclResult_t code = nccl_double::enter("ncclCommSplit")) return code;
  const Communicator parent = find(handle);
  if (ncclResult_t code = ready(parent, "ncclCommSplit")) return code;
  if (made == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) return ncclInvalidArgument;
  *made = nullptr;
  Communicator child;
  if (color != NCCL_SPLIT_NOCOLOR) {
    child = std::make_shared<ncclComm>();
    child->device = parent->device;
    child->blocking = is_blocking(config, parent->blocking);
    child->under_way = 1;
    add(child);
    *made = child.get();
  }
  return meet(parent, [parent, child, color, key] {
    const ncclResult_t code = split(parent, child, color, key);
    if (child == nullptr) return code;
    const std::lock_guard lock(child->mutex);
    child->under_way = 0;
    if (code != ncclSuccess && child->error == ncclSuccess) child->error = code;
    child->changed.notify_all();
    return code;
  });
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommRegister(const ncclComm_t handle, void* buffer,
                                                  size_t bytes, void** registration) {
  if (ncclResult_t code = nccl_double::enter("ncclCommRegister")) return code;
  const Communicator own = find(handle);
  if (ncclResult_t code = ready(own, "ncclCommRegister")) return code;
  const auto pointer = reinterpret_cast<CUdeviceptr>(buffer);
  if (registration == nullptr || cuda_double_alias(pointer, bytes, own->device) == nullptr) {
    return refuse(own.get(), ncclInvalidArgument,
                  "ncclCommRegister: no memory of " + std::to_string(bytes) +
                      " bytes that device " + std::to_string(own->device) + " can reach");
  }
  const std::lock_guard lock(own->mutex);
  for (const auto& [handle, each] : own->registered) {
    if (each.pointer != pointer) continue;
    say("ncclCommRegister: the memory is registered already");
  }
  *registration = new char;
  own->registered[*registration] = {pointer, bytes};
  cuda_double_count_registration(pointer, 1);
  return ncclSuccess;
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* registration) {
  if (ncclResult_t code = nccl_double::enter("ncclCommDeregister")) return code;
  const Communicator own = find(handle);
  if (own == nullptr) return ncclInvalidArgument;
  const std::lock_guard lock(own->mutex);
  const auto found = own->registered.find(registration);
  if (found == own->registered.end()) return ncclInvalidArgument;
  cuda_double_count_registration(found->second.pointer, -1);
  own->registered.erase(found);
  delete static_cast<char*>(registration);
  return ncclSuccess;
}

}  // extern "C"
