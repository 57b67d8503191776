// SPDX-License-Identifier: Apache-2.0
// Telling apart whose message, completion or loss it is. See transport_shares.h.
#include "message/transport_shares.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "message/wire.h"

namespace parallax {

// What all shares have from the transport as it is.
class TransportShares::Share : public Transport, private RemoteWrites {
 public:
  explicit Share(TransportShares& shares) : shares_(shares) {}
  std::string_view name() const override { return shares_.transport_.name(); }
  size_t message_bytes_max() const override { return shares_.transport_.message_bytes_max(); }
  RemoteWrites* remote_writes() override { return writes() == nullptr ? nullptr : this; }

  // Memory is the rank's, whatever groups it is in.
  size_t piece_bytes_max(uint32_t to) override {
    return writes() == nullptr ? 0 : writes()->piece_bytes_max(to);
  }
  using Transport::send;
  Status send(uint32_t to, std::span<const Segment> segments, const PlacedPiece& piece,
              uint64_t cookie) override {
    return writes()->send(to, segments, piece, cookie);
  }
  bool know(const ByteRange& area) override { return writes() != nullptr && writes()->know(area); }
  void forget_area(const ByteRange& area) override {
    if (writes() != nullptr) writes()->forget_area(area);
  }
  bool has_room(const ByteRange& part) const override {
    return writes() != nullptr && writes()->has_room(part);
  }
  bool share(const ByteRange& part, SharedPart* shared) override {
    return writes() != nullptr && writes()->share(part, shared);
  }
  void unshare(uint32_t area) override {
    if (writes() != nullptr) writes()->unshare(area);
  }
  void withdraw() override {
    if (writes() != nullptr) writes()->withdraw();
  }
  std::string json() const override { return writes() == nullptr ? "" : writes()->json(); }

 protected:
  RemoteWrites* writes() const {
    return shares_.left_ ? nullptr : shares_.transport_.remote_writes();
  }
  Transport& transport() const { return shares_.transport_; }
  TransportShares& shares_;
};

class TransportShares::Whole final : public Share {
 public:
  using Share::send;
  explicit Whole(TransportShares& shares) : Share(shares), boards_(shares.transport_) {}
  bool writable(uint32_t to) const override { return transport().writable(to); }
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override {
    return transport().send(to, segments, cookie);
  }
  bool copies_sends(uint32_t to) const override { return transport().copies_sends(to); }
  bool poll(Receiver& receiver) override {
    shares_.whole_receiver_ = &receiver;
    return transport().poll(shares_);
  }
  int wait_fd() const override { return transport().wait_fd(); }
  bool arm() override { return transport().arm(); }
  void forget(uint32_t rank) override { transport().forget(rank); }
  PeerMemory* peer_memory() override { return shares_.left_ ? nullptr : transport().peer_memory(); }
  Boards* boards() override {
    return shares_.left_ || transport().boards() == nullptr ? nullptr : &boards_;
  }

 private:
  WholeBoards boards_;
};

class TransportShares::Part final : public Share {
 public:
  Part(TransportShares& shares, uint64_t place, uint32_t epoch, std::span<const uint32_t> ranks)
      : Share(shares), place_(place), ranks_(ranks.begin(), ranks.end()) {
    for (uint32_t i = 0; i < ranks_.size(); ++i) number_of_[ranks_[i]] = i;
    if (shares.left_ || transport().boards() == nullptr) return;
    boards_.emplace(transport(), shares.regions_, epoch, ranks_);
    memory_.emplace(transport(), *boards_, ranks_);
  }

  bool writable(uint32_t to) const override { return transport().writable(ranks_[to]); }
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override {
    PARALLAX_CHECK(cookie >> kPlaceShift == 0);
    if (shares_.watch_) shares_.watch_(ranks_[to], true);
    return transport().send(ranks_[to], segments, place_ << kPlaceShift | cookie);
  }
  bool copies_sends(uint32_t to) const override { return transport().copies_sends(ranks_[to]); }
  // Only ranks and cookies are the part's own.
  size_t piece_bytes_max(uint32_t to) override { return Share::piece_bytes_max(ranks_[to]); }
  Status send(uint32_t to, std::span<const Segment> segments, const PlacedPiece& piece,
              uint64_t cookie) override {
    PARALLAX_CHECK(cookie >> kPlaceShift == 0);
    if (shares_.watch_) shares_.watch_(ranks_[to], true);
    return Share::send(ranks_[to], segments, piece, place_ << kPlaceShift | cookie);
  }
  // Only notes who listens: the whole job's poll delivers.
  bool poll(Receiver& receiver) override {
    receiver_ = &receiver;
    return false;
  }
  int wait_fd() const override { return -1; }
  bool arm() override { return true; }
  void forget(uint32_t) override {}
  // By the words on boards it takes back what it lends, so it has both or neither.
  PeerMemory* peer_memory() override {
    return shares_.left_ || !memory_ || transport().peer_memory() == nullptr ? nullptr : &*memory_;
  }
  Boards* boards() override { return shares_.left_ || !boards_ ? nullptr : &*boards_; }
  void leave_boards() {
    if (!shares_.left_ && boards_) boards_->give_back();
  }

  // False: the sender is not of this part.
  bool deliver(uint32_t job_rank, std::span<const std::byte> message) {
    const auto found = number_of_.find(job_rank);
    if (found == number_of_.end() || receiver_ == nullptr) return false;
    if (shares_.watch_) shares_.watch_(job_rank, false);
    receiver_->on_message(found->second, message);
    return true;
  }
  std::byte* place(uint32_t job_rank, std::span<const std::byte> head, size_t rest_bytes) {
    const auto found = number_of_.find(job_rank);
    if (found == number_of_.end() || receiver_ == nullptr) return nullptr;
    return receiver_->place(found->second, head, rest_bytes);
  }
  // False: as above.
  bool deliver_placed(uint32_t job_rank, std::span<const std::byte> head, size_t rest_bytes) {
    const auto found = number_of_.find(job_rank);
    if (found == number_of_.end() || receiver_ == nullptr) return false;
    if (shares_.watch_) shares_.watch_(job_rank, false);
    receiver_->on_placed(found->second, head, rest_bytes);
    return true;
  }
  void deliver_sent(uint64_t cookie) {
    PARALLAX_CHECK(receiver_ != nullptr);
    receiver_->on_sent(cookie);
  }
  uint64_t place() const { return place_; }

 private:
  const uint64_t place_;
  const std::vector<uint32_t> ranks_;                 // the job's numbers, by the part's
  std::unordered_map<uint32_t, uint32_t> number_of_;  // and back
  std::optional<PartBoards> boards_;                  // none: ranks have no boards
  std::optional<PartPeerMemory> memory_;
  Receiver* receiver_ = nullptr;
};

TransportShares::TransportShares(Transport& transport, Watch watch)
    : transport_(transport), watch_(std::move(watch)), whole_(std::make_unique<Whole>(*this)) {}

TransportShares::~TransportShares() = default;

Transport& TransportShares::whole() { return *whole_; }

Transport* TransportShares::add(uint32_t epoch, std::span<const uint32_t> ranks) {
  if (parts_.contains(epoch)) return nullptr;
  const auto free = std::find(places_.begin(), places_.end(), nullptr);
  const auto place = static_cast<uint64_t>(free - places_.begin());
  if (free == places_.end()) places_.push_back(nullptr);
  const auto entry =
      parts_.try_emplace(epoch, std::make_unique<Part>(*this, place + 1, epoch, ranks)).first;
  places_[place] = entry->second.get();
  return entry->second.get();
}

void TransportShares::remove(uint32_t epoch) {
  const auto found = parts_.find(epoch);
  PARALLAX_CHECK(found != parts_.end());
  places_[found->second->place() - 1] = nullptr;
  found->second->leave_boards();
  parts_.erase(found);
}

// Null: the whole job's. The epoch stands where every message of ours has it.
TransportShares::Part* TransportShares::part_of(std::span<const std::byte> message) const {
  if (parts_.empty()) return nullptr;
  const SectionReader reader(message);
  const auto found = reader.malformed() ? parts_.end() : parts_.find(reader.header().epoch);
  return found == parts_.end() ? nullptr : found->second.get();
}

// What is too short for an epoch, and what a rank sends to a part that it is not of, is the whole
// job's to judge.
void TransportShares::on_message(uint32_t from, std::span<const std::byte> message) {
  Part* const part = part_of(message);
  if (part == nullptr || !part->deliver(from, message)) whole_receiver_->on_message(from, message);
}

std::byte* TransportShares::place(uint32_t from, std::span<const std::byte> head,
                                  size_t rest_bytes) {
  Part* const part = part_of(head);
  return part != nullptr ? part->place(from, head, rest_bytes)
                         : whole_receiver_->place(from, head, rest_bytes);
}

void TransportShares::on_placed(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) {
  Part* const part = part_of(head);
  if (part == nullptr) return whole_receiver_->on_placed(from, head, rest_bytes);
  // Its place was of a part that it is of.
  (void)part->deliver_placed(from, head, rest_bytes);
}

void TransportShares::on_sent(uint64_t cookie) {
  const uint64_t place = cookie >> kPlaceShift;
  if (place == 0) return whole_receiver_->on_sent(cookie);
  PARALLAX_CHECK(place <= places_.size() && places_[place - 1] != nullptr);
  places_[place - 1]->deliver_sent(cookie & ((uint64_t{1} << kPlaceShift) - 1));
}

void TransportShares::on_lost(uint32_t rank, Loss loss, std::string_view why) {
  whole_receiver_->on_lost(rank, loss, why);
}

}  // namespace parallax
