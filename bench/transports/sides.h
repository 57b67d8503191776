// SPDX-License-Identifier: Apache-2.0
// One side of a connection between two processes, by each way that bench/transports compares: what
// it sends, and the sums of what it hears. One thread.
#ifndef PARALLAX_BENCH_TRANSPORTS_SIDES_H_
#define PARALLAX_BENCH_TRANSPORTS_SIDES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace parallax::transports {

// The library's default, a multiple of a float's bytes.
inline constexpr size_t kPieceBytes = 60 << 10;

[[noreturn]] void fail(const std::string& why);
int64_t now_ns();

// Whether a side that has nothing to do looks again at once, or blocks after a moment, as a job
// does.
enum class Idle : uint8_t { kLooks, kBlocks };

class Side {
 public:
  virtual ~Side() = default;
  // Bytes stay as they are until the other side has heard them.
  virtual void send(const std::byte* bytes, size_t count) = 0;
  // Returns once `count` times so many bytes were heard: floats, each of which was added to `into`.
  virtual void hear(uint64_t count, size_t bytes, float* into) = 0;

  void set_idle(Idle idle) { idle_ = idle; }

 protected:
  // After something was moved; and where nothing was: true once it is time to block.
  void moved() { idle_since_ns_ = 0; }
  bool is_to_block();

 private:
  Idle idle_ = Idle::kLooks;
  int64_t idle_since_ns_ = 0;
};

// Where this process is, and how it tells the other one what that has to know.
struct Place {
  uint32_t rank = 0;  // of two; rank 0 listens
  std::string address = {};
  std::string device = {};
  std::string (*exchange)(const std::string& own) = nullptr;
};

// "raw", "raw-gmac", "raw-zerocopy", "handshake", "authenticate", "encrypt", "ucx"; connected.
std::unique_ptr<Side> make_side(const std::string& way, const Place& place);

}  // namespace parallax::transports

#endif  // PARALLAX_BENCH_TRANSPORTS_SIDES_H_
