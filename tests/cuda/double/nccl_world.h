// SPDX-License-Identifier: Apache-2.0
// World: what the ranks of a communicator of the double share: a file that is named in the unique
// id and mapped by all of them, threads of a process and processes alike. There they meet, say what
// they are about to do, and hand over what they have.
//
// Nothing in it is locked, so that a rank may be killed at any place: ranks count the places that
// they have come to, and wait for one another by looking. Who waits asks `stop` whether to go on.
#ifndef PARALLAX_TESTS_CUDA_DOUBLE_NCCL_WORLD_H_
#define PARALLAX_TESTS_CUDA_DOUBLE_NCCL_WORLD_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace nccl_double {

inline constexpr int kRanksMax = 32;
inline constexpr size_t kChunkBytes = size_t{256} << 10;

// What a rank is about to do; it must be what the others are.
struct Descriptor {
  uint64_t number = 0;  // of the collectives of this communicator
  uint64_t count = 0;
  int32_t kind = 0;
  int32_t type = 0;
  int32_t op = 0;
  int32_t root = 0;
  int32_t group_index = 0;  // among those that were launched together
  int32_t group_size = 1;
  // Of those in symmetric memory: the windows, from 1, and how far in; of AllGather what is
  // received alone, since each rank sends from memory that no other reads.
  uint64_t send_window = 0, send_offset = 0;
  uint64_t receive_window = 0, receive_offset = 0;
  bool operator==(const Descriptor&) const = default;
};

// What a rank says in a split or in the registration of a window.
struct Offer {
  int32_t kind = 0;
  int32_t color = 0;
  int32_t key = 0;
  uint64_t bytes = 0;
};

// From one rank to another, in their order: what it tells a neighbour of a communicator that is
// made out of this one. Few are under way at a time.
struct Mail {
  static constexpr uint64_t kRoom = 8;
  std::atomic<uint64_t> sent{0};
  std::array<uint64_t, kRoom> letters{};
};

// Collectives go on streams' threads, splits and windows on callers'.
enum Lane : uint8_t { kStreams = 0, kCallers = 1 };

struct RankState {
  std::atomic<uint32_t> present{0};
  std::atomic<int32_t> device{0};
  std::atomic<uint64_t> host{0};
  std::array<std::atomic<uint64_t>, 2> arrived{};  // by lane
  std::array<Descriptor, 2> descriptors{};         // by the parity of the collective's number
  std::array<Offer, 2> offers{};
  std::array<Mail, kRanksMax> mail;  // to this rank, by sender
};

struct Shared {
  std::atomic<uint32_t> rank_count{0};
  std::array<RankState, kRanksMax> ranks;
};

class World {
 public:
  // The mapping of this process, one a path. Null: the file is not there and is not to be made.
  static std::shared_ptr<World> open(const std::string& path, bool create);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Shared& shared() { return *shared_; }
  RankState& rank(int rank) { return shared_->ranks[static_cast<size_t>(rank)]; }
  // Two halves a rank, used in turn: who has come to the next place has read the one before.
  std::byte* chunk(int rank, uint64_t turn) {
    return chunks_ + (static_cast<size_t>(rank) * 2 + turn % 2) * kChunkBytes;
  }
  void remove_file();

  enum class Wait : uint8_t { kDone, kStopped, kLate };
  // Until each of `rank_count` ranks has come to place `number` of the lane. *missing: one that has
  // not.
  Wait wait(Lane lane, uint64_t number, int rank_count, const std::function<bool()>& stop,
            int* missing);
  Wait wait_mail(int to, int from, uint64_t count, const std::function<bool()>& stop);
  Wait wait_present(int rank_count, const std::function<bool()>& stop, int* missing);

 private:
  World(std::string path, Shared* shared, std::byte* chunks, size_t bytes)
      : path_(std::move(path)), shared_(shared), chunks_(chunks), bytes_(bytes) {}
  Wait wait_until(const std::function<int()>& first_missing, const std::function<bool()>& stop,
                  int* missing);

  const std::string path_;
  Shared* const shared_;
  std::byte* const chunks_;
  const size_t bytes_;
};

// A new file, for a unique id; empty: it could not be made.
std::string make_world_file();
uint64_t deadline_ms();

}  // namespace nccl_double

#endif  // PARALLAX_TESTS_CUDA_DOUBLE_NCCL_WORLD_H_
