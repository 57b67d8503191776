// SPDX-License-Identifier: Apache-2.0
// What the ranks of a communicator of the double do together and not on a stream: splits and
// shrinks; and the registration of buffers, which each does by itself.
//
// As NCCL 2.28 has it: a split is a call of all ranks, a shrink one of those that remain, who find
// each other by what neighbours in the new ring tell each other over the parent, told apart by its
// sender alone. What is made is there when it is over, and the parent is in progress until then.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

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

ncclResult_t split(ncclComm& parent, ncclComm* child, int color, int key) {
  std::vector<Offer> offers;
  const uint64_t number = parent.offers;
  if (ncclResult_t code = exchange(parent, {kSplit, color, key, 0}, &offers)) return code;
  if (child == nullptr) return ncclSuccess;
  place_child(parent, offers, *child);
  child->path = parent.path + "." + std::to_string(number) + "." + std::to_string(color);
  return attach(*child);
}

// Ranks that come to two shrinks in different orders read each other's letters of the wrong one.
ncclResult_t meet_neighbours(ncclComm& parent, const std::vector<int>& ranks, int place,
                             const std::function<bool()>& stop) {
  const auto count = static_cast<int>(ranks.size());
  const int previous = ranks[static_cast<size_t>((place + count - 1) % count)];
  const int next = ranks[static_cast<size_t>((place + 1) % count)];
  uint64_t list = 1;
  for (const int rank : ranks) list = list * 64 + static_cast<uint64_t>(rank) + 1;
  Mail& mine = parent.world->rank(previous).mail[static_cast<size_t>(parent.rank)];
  const uint64_t sent = mine.sent.load(std::memory_order_relaxed);
  mine.letters[sent % Mail::kRoom] = list;
  mine.sent.store(sent + 1, std::memory_order_release);
  uint64_t& read = parent.mail_read[next];
  const World::Wait wait = parent.world->wait_mail(parent.rank, next, read + 1, stop);
  if (wait == World::Wait::kStopped) return ncclSystemError;
  if (wait == World::Wait::kLate) {
    fail(parent, ncclSystemError,
         "rank " + std::to_string(parent.rank) + " waited for rank " + std::to_string(next) +
             " to shrink until its deadline");
    return ncclSystemError;
  }
  const Mail& its = parent.world->rank(parent.rank).mail[static_cast<size_t>(next)];
  if (its.letters[read++ % Mail::kRoom] == list) return ncclSuccess;
  fail(parent, ncclInvalidUsage,
       "ranks differ: rank " + std::to_string(next) + " shrinks to other ranks than rank " +
           std::to_string(parent.rank) + " does, who take each other for neighbours");
  return ncclInvalidUsage;
}

ncclResult_t shrink(ncclComm& parent, ncclComm& child, const std::vector<int>& ranks) {
  const auto own = std::find(ranks.begin(), ranks.end(), parent.rank);
  child.rank = static_cast<int>(own - ranks.begin());
  child.rank_count = static_cast<int>(ranks.size());
  std::string list;
  for (const int rank : ranks) list += "." + std::to_string(rank);
  child.path = parent.path + ".shrink" + std::to_string(parent.shrunk[list]++) + list;
  const auto stop = [&] { return parent.aborted.load() || child.aborted.load(); };
  const ncclResult_t met = meet_neighbours(parent, ranks, child.rank, stop);
  return met == ncclSuccess ? attach(child) : met;
}

std::atomic<int>& splits_held() {
  static std::atomic<int> held{0};
  return held;
}

std::atomic<int>& rank_of_held_splits() {
  static std::atomic<int> rank{-1};
  return rank;
}

struct HeldRegistrations {
  std::atomic<int> held{0}, within{0};
};
HeldRegistrations& registrations() {
  static HeldRegistrations all;
  return all;
}

// A registration, or its end, by this thread alone. False: it was aborted meanwhile.
bool enter_registration(ncclComm& own, const char* function) {
  {
    const std::lock_guard lock(own.mutex);
    if (own.registering) say(std::string(function) + ": two threads call NCCL at once");
    if (in_progress(own)) {
      say(std::string(function) + " was called for a communicator whose last operation is in " +
          "progress");
    }
    own.registering = true;
  }
  if (registrations().held != 0) {
    ++registrations().within;
    while (registrations().held != 0 && !own.aborted) std::this_thread::yield();
    --registrations().within;
  }
  const std::lock_guard lock(own.mutex);
  own.registering = false;
  return !own.aborted;
}

Communicator child_of(const ncclComm& parent, const ncclConfig_t* config) {
  auto child = std::make_shared<ncclComm>();
  child->device = parent.device;
  child->blocking = is_blocking(config, parent.blocking);
  return child;
}

// It is the caller's, whatever became of it.
void hand_over(ncclComm& parent, const Communicator& child, ncclResult_t code, ncclComm_t* made) {
  {
    const std::lock_guard lock(parent.mutex);
    parent.child = nullptr;
  }
  {
    const std::lock_guard lock(child->mutex);
    if (code != ncclSuccess && child->error == ncclSuccess) child->error = code;
  }
  add(child);
  __atomic_store_n(made, child.get(), __ATOMIC_RELEASE);
}

// `form(parent, child)` on a thread of its own, if the parent does not block.
template <typename Form>
ncclResult_t make_child(const Communicator& parent, const Communicator& child, ncclComm_t* made,
                        Form form) {
  {
    const std::lock_guard lock(parent->mutex);
    parent->child = child;
  }
  return meet(parent, [parent, child, made, form = std::move(form)] {
    while (splits_held() != 0 && !parent->aborted) std::this_thread::yield();
    const ncclResult_t code = parent->aborted ? ncclSystemError : form(*parent, *child);
    while (rank_of_held_splits() == parent->rank && !parent->aborted) std::this_thread::yield();
    hand_over(*parent, child, code, made);
    return code;
  });
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
  if (color == NCCL_SPLIT_NOCOLOR) {
    return meet(parent, [parent, color, key] { return split(*parent, nullptr, color, key); });
  }
  return make_child(
      parent, child_of(*parent, config), made,
      [color, key](ncclComm& from, ncclComm& child) { return split(from, &child, color, key); });
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommShrink(ncclComm_t handle, int* without, int without_count,
                                                ncclComm_t* made, ncclConfig_t* config, int flags) {
  if (ncclResult_t code = nccl_double::enter("ncclCommShrink")) return code;
  const Communicator parent = find(handle);
  if (ncclResult_t code = ready(parent, "ncclCommShrink")) return code;
  if (made == nullptr || without == nullptr || without_count <= 0 || flags != NCCL_SHRINK_DEFAULT) {
    return refuse(parent.get(), ncclInvalidArgument,
                  "ncclCommShrink: nobody to leave out, nowhere to put it, or other flags");
  }
  std::vector<int> ranks;
  for (int rank = 0; rank < parent->rank_count; ++rank) {
    if (std::find(without, without + without_count, rank) == without + without_count) {
      ranks.push_back(rank);
    }
  }
  if (std::find(ranks.begin(), ranks.end(), parent->rank) == ranks.end()) {
    return refuse(parent.get(), ncclInvalidArgument, "ncclCommShrink of a rank that is left out");
  }
  {
    const std::lock_guard lock(parent->mutex);
    if (parent->launched != parent->finished) {
      say("ranks differ: ncclCommShrink of a communicator that has collectives under way");
    }
  }
  *made = nullptr;
  return make_child(
      parent, child_of(*parent, config), made,
      [ranks](ncclComm& from, ncclComm& child) { return shrink(from, child, ranks); });
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommRegister(const ncclComm_t handle, void* buffer,
                                                  size_t bytes, void** registration) {
  if (ncclResult_t code = nccl_double::enter("ncclCommRegister")) return code;
  const Communicator own = find(handle);
  if (ncclResult_t code = ready(own, "ncclCommRegister")) return code;
  if (!enter_registration(*own, "ncclCommRegister")) return ncclInternalError;
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
  own->registered[*registration] = {.pointer = pointer, .bytes = bytes};
  cuda_double_count_registration(pointer, 1);
  return ncclSuccess;
}

PARALLAX_DOUBLE_API ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* registration) {
  const ncclResult_t told = nccl_double::enter("ncclCommDeregister");
  const Communicator own = find(handle);
  if (told != ncclSuccess) {
    if (own == nullptr) return told;
    const std::lock_guard lock(own->mutex);
    const auto found = own->registered.find(registration);
    if (found != own->registered.end()) --found->second.uses;
    return told;
  }
  if (own == nullptr) {
    return refuse(nullptr, ncclInvalidArgument, "ncclCommDeregister of a communicator that ended");
  }
  if (!enter_registration(*own, "ncclCommDeregister")) return ncclInternalError;
  const std::lock_guard lock(own->mutex);
  const auto found = own->registered.find(registration);
  if (found == own->registered.end()) return ncclInvalidArgument;
  // As NCCL: who asks again after an error is told of success, and the memory is registered still.
  if (--found->second.uses != 0) return ncclSuccess;
  cuda_double_count_registration(found->second.pointer, -1);
  own->registered.erase(found);
  delete static_cast<char*>(registration);
  return ncclSuccess;
}

void nccl_double_hold_splits(int held) { splits_held() = held; }
void nccl_double_hold_splits_of(int rank) { rank_of_held_splits() = rank; }
void nccl_double_hold_registrations(int held) { registrations().held = held; }
int nccl_double_held_registrations() { return registrations().within; }

}  // extern "C"
