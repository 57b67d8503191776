// SPDX-License-Identifier: Apache-2.0
// SeenMessages: copies of what was on the simulated wires, for the faults that send something like
// it: replays, and strays that are a real message cut short. One thread.
#ifndef PARALLAX_TRANSPORT_SIM_SEEN_MESSAGES_H_
#define PARALLAX_TRANSPORT_SIM_SEEN_MESSAGES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace parallax {

class SeenMessages {
 public:
  struct Remembered {
    uint32_t from = 0;
    std::vector<std::byte> bytes;  // empty before the first
  };

  // From now on the last message that the rank consumed is kept.
  void remember(uint32_t rank) { remembered_.try_emplace(rank); }
  const Remembered& remembered(uint32_t rank) const { return remembered_.at(rank); }
  // The head of some recent message; empty before the first.
  std::span<const std::byte> sample() const { return sample_; }

  void sent(std::span<const std::byte> message) {
    sent_bytes_ += message.size();
    if (sent_count_++ % kSampleEvery != 0) return;
    const size_t bytes = std::min(message.size(), kSampleBytesMax);
    sample_.assign(message.begin(), message.begin() + static_cast<ptrdiff_t>(bytes));
  }
  void consumed(uint32_t rank, uint32_t from, std::span<const std::byte> message) {
    const auto kept = remembered_.find(rank);
    if (kept == remembered_.end()) return;
    kept->second.from = from;
    kept->second.bytes.assign(message.begin(), message.end());
  }
  uint64_t sent_count() const { return sent_count_; }
  uint64_t sent_bytes() const { return sent_bytes_; }

 private:
  static constexpr size_t kSampleBytesMax = 256;
  static constexpr uint64_t kSampleEvery = 37;

  uint64_t sent_count_ = 0;
  uint64_t sent_bytes_ = 0;
  std::vector<std::byte> sample_;
  std::map<uint32_t, Remembered> remembered_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_SEEN_MESSAGES_H_
