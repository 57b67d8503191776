// SPDX-License-Identifier: Apache-2.0
// What this machine allows: AllReduces among the ranks of one host over memory that all have
// mapped, without any check, lease or failure handling. Not a contender but the column to measure
// against.
//
// Variants: `alloc`, the ranks' buffers themselves are shared, each rank sums its part of all of
// them and writes it to all; `slots`, every rank copies into a slot of its own and sums all slots,
// in one round without a closing one; `staged`, private buffers go piece by piece through shared
// windows that stay in the cache, each rank sums its part of the piece.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "dense.h"
#include "flags.h"

namespace parallax::peers {
namespace {

constexpr uint32_t kWorldMax = 16;
constexpr uint64_t kWindow = 32768;  // elements of a piece of `staged`

struct Control {
  Flag given[kWorldMax];
  Flag done[kWorldMax];
  std::atomic<uint32_t> here;
};

void sum_two(float* out, const float* a, const float* b, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}
void add_to(float* out, const float* a, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) out[i] += a[i];
}

void scale(float* out, float factor, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) out[i] *= factor;
}

class Limit final : public FloatDense {
 public:
  Limit(uint32_t rank, uint32_t world, uint64_t bytes_max, const std::string& path)
      : FloatDense(rank, world),
        crowded_(world > std::thread::hardware_concurrency()),
        stride_((std::max<uint64_t>(bytes_max, kWindow * sizeof(float)) + 8191) / 4096 * 4096) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    const uint64_t bytes = sizeof(Control) + 4096 + stride_ * world * 2;
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) fail("cannot make " + path);
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fail("cannot map " + path);
    close(file);
    control_ = static_cast<Control*>(memory);
    data_ = static_cast<char*>(memory) + (sizeof(Control) + 4095) / 4096 * 4096;
    ++control_->here;
    while (control_->here < world) sched_yield();
  }

 protected:
  // Many tensors are one buffer here: nothing can be faster.
  Tensors tensors(const std::string& variant, const std::vector<uint64_t>& bytes) override {
    variant_ = variant;
    count_ = slab_elements(bytes, Gaps::kNone);
    if (variant == "alloc") return on_slab(slot(rank_, 0), bytes, Gaps::kNone);
    if (private_.size() < count_) private_.resize(count_);
    return on_slab(private_.data(), bytes, Gaps::kNone);
  }

  bool multiplies() const override { return true; }

  Took allreduce() override {
    const int64_t start_ns = now_ns();
    if (variant_ == "alloc") {
      in_place();
    } else if (variant_ == "slots") {
      by_slots();
    } else {
      staged();
    }
    const int64_t took_ns = now_ns() - start_ns;
    return {took_ns, took_ns};
  }

 private:
  float* slot(uint32_t rank, uint32_t parity) const {
    return reinterpret_cast<float*>(data_ + stride_ * (rank * 2 + parity));
  }
  // A rank's part of so many elements begins here; whole cache lines.
  uint64_t begin_of(uint32_t rank, uint64_t count) const {
    return rank == world_ ? count : count * rank / world_ / 16 * 16;
  }

  void all_given() {
    for (uint32_t each = 0; each < world_; ++each) await(control_->given[each], given_, crowded_);
  }
  void all_done() {
    for (uint32_t each = 0; each < world_; ++each) await(control_->done[each], done_, crowded_);
  }

  // The sum of all ranks' `at`... in the order of ranks.
  void sum(float* out, uint32_t parity, uint64_t at, uint64_t count) const {
    if (world_ == 1) {
      std::memmove(out, slot(0, parity) + at, count * sizeof(float));
      return;
    }
    sum_two(out, slot(0, parity) + at, slot(1, parity) + at, count);
    for (uint32_t each = 2; each < world_; ++each) add_to(out, slot(each, parity) + at, count);
    if (factor() != 1.0F) scale(out, factor(), count);
  }

  void in_place() {
    post(control_->given[rank_], ++given_);
    all_given();
    constexpr uint64_t kPiece = 4096;
    float piece[kPiece];
    const uint64_t end = begin_of(rank_ + 1, count_);
    for (uint64_t at = begin_of(rank_, count_); at < end; at += kPiece) {
      const uint64_t count = std::min(kPiece, end - at);
      sum(piece, 0, at, count);
      for (uint32_t each = 0; each < world_; ++each) {
        std::memcpy(slot(each, 0) + at, piece, count * sizeof(float));
      }
    }
    post(control_->done[rank_], ++done_);
    all_done();
  }

  void by_slots() {
    const uint32_t parity = ++given_ & 1;
    std::memcpy(slot(rank_, parity), private_.data(), count_ * sizeof(float));
    post(control_->given[rank_], given_);
    all_given();
    sum(private_.data(), parity, 0, count_);
  }

  // Windows alternate, so that nobody writes one that another still reads: who gives the piece
  // after next has seen everybody done with the last.
  void staged() {
    for (uint64_t at = 0; at < count_; at += kWindow) {
      const uint64_t count = std::min(kWindow, count_ - at);
      const uint32_t parity = ++given_ & 1;
      std::memcpy(slot(rank_, parity), &private_[at], count * sizeof(float));
      post(control_->given[rank_], given_);
      all_given();
      const uint64_t begin = begin_of(rank_, count), end = begin_of(rank_ + 1, count);
      sum(&private_[at + begin], parity, begin, end - begin);
      std::memcpy(slot(rank_, parity) + begin, &private_[at + begin],
                  (end - begin) * sizeof(float));
      post(control_->done[rank_], ++done_);
      for (uint32_t i = 1; i < world_; ++i) {
        const uint32_t each = (rank_ + i) % world_;
        await(control_->done[each], done_, crowded_);
        const uint64_t first = begin_of(each, count), last = begin_of(each + 1, count);
        std::memcpy(&private_[at + first], slot(each, parity) + first,
                    (last - first) * sizeof(float));
      }
    }
  }

  const bool crowded_;  // more ranks than processors
  const uint64_t stride_;
  Control* control_ = nullptr;
  char* data_ = nullptr;
  std::string variant_;
  uint64_t count_ = 0;
  std::vector<float> private_;
  uint32_t given_ = 0, done_ = 0;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER RANK WORLD BYTES_MAX MEMORY
int main(int count, char** all) {
  using namespace parallax::peers;
  const auto [folder, rank, world] = started_as(count, all);
  const std::string memory = argument(count, all, 5);
  if (world > kWorldMax) fail("at most 16 ranks");
  Limit limit(rank, world, std::stoull(argument(count, all, 4)), memory);
  serve(limit, rank, folder);
  return 0;
}
