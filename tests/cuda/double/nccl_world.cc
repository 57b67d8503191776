// SPDX-License-Identifier: Apache-2.0
// See nccl_world.h.
#include "cuda/double/nccl_world.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace nccl_double {

namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr size_t kSharedBytes = (sizeof(Shared) + 4095) / 4096 * 4096;
constexpr size_t kFileBytes = kSharedBytes + kRanksMax * 2 * kChunkBytes;

struct Mappings {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<World>> worlds;
};

Mappings& mappings() {
  static Mappings* const kept = new Mappings;
  return *kept;
}

// A file goes when its ranks have met. Of those that never did, whoever made it is the last.
std::vector<std::string>& made_files() {
  static auto* const kept = new std::vector<std::string>;
  return *kept;
}

void remember(const std::string& path) {
  const std::lock_guard lock(mappings().mutex);
  if (made_files().empty()) {
    std::atexit([] {
      for (const std::string& made : made_files()) unlink(made.c_str());
    });
  }
  made_files().push_back(path);
}

}  // namespace

uint64_t deadline_ms() {
  const char* told = std::getenv("NCCL_DOUBLE_DEADLINE_MS");
  return told == nullptr ? 60000 : std::strtoull(told, nullptr, 10);
}

std::string make_world_file() {
  // Where memory is; a folder for temporary files elsewhere.
  const char* told = std::getenv("TMPDIR");
  const std::string folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                             : told != nullptr             ? told
                                                           : "/tmp";
  std::string path = folder + "/nccl_double.XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return "";
  remember(path);
  const bool sized = ftruncate(file, static_cast<off_t>(kFileBytes)) == 0;
  close(file);
  return sized ? path : "";
}

std::shared_ptr<World> World::open(const std::string& path, bool create) {
  const std::lock_guard lock(mappings().mutex);
  std::weak_ptr<World>& kept = mappings().worlds[path];
  if (std::shared_ptr<World> world = kept.lock()) return world;
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
  if (file < 0) return nullptr;
  void* address = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(kFileBytes)) == 0) {
    address = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (address == MAP_FAILED) return nullptr;
  // A fresh file is zeros, which is what Shared begins as.
  std::shared_ptr<World> world(new World(path, static_cast<Shared*>(address),
                                         static_cast<std::byte*>(address) + kSharedBytes,
                                         kFileBytes));
  kept = world;
  return world;
}

World::~World() { munmap(shared_, bytes_); }

void World::remove_file() { unlink(path_.c_str()); }

World::Wait World::wait_until(const std::function<int()>& first_missing,
                              const std::function<bool()>& stop, int* missing) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms());
  for (uint64_t looks = 0;; ++looks) {
    *missing = first_missing();
    if (*missing < 0) return Wait::kDone;
    if (stop()) return Wait::kStopped;
    if (std::chrono::steady_clock::now() > end) return Wait::kLate;
    if (looks < 50) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

World::Wait World::wait(Lane lane, uint64_t number, int rank_count,
                        const std::function<bool()>& stop, int* missing) {
  return wait_until(
      [&] {
        for (int i = 0; i < rank_count; ++i) {
          if (rank(i).arrived[lane].load(std::memory_order_acquire) < number) return i;
        }
        return -1;
      },
      stop, missing);
}

World::Wait World::wait_mail(int to, int from, uint64_t count, const std::function<bool()>& stop) {
  const Mail& mail = rank(to).mail[static_cast<size_t>(from)];
  int missing = -1;
  return wait_until([&] { return mail.sent.load(std::memory_order_acquire) < count ? from : -1; },
                    stop, &missing);
}

World::Wait World::wait_present(int rank_count, const std::function<bool()>& stop, int* missing) {
  return wait_until(
      [&] {
        for (int i = 0; i < rank_count; ++i) {
          if (rank(i).present.load(std::memory_order_acquire) == 0) return i;
        }
        return -1;
      },
      stop, missing);
}

}  // namespace nccl_double
