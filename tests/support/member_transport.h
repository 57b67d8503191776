// SPDX-License-Identifier: Apache-2.0
// MemberTransport: the transport of a rank that is one of some ranks of a larger world, for a job
// of those alone: rank i of the job is rank members[i] there. Tests only.
#ifndef PARALLAX_TESTS_SUPPORT_MEMBER_TRANSPORT_H_
#define PARALLAX_TESTS_SUPPORT_MEMBER_TRANSPORT_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "transport/transport.h"

namespace parallax::testkit {

class MemberTransport final : public Transport {
 public:
  MemberTransport(std::unique_ptr<Transport> world, std::vector<uint32_t> members)
      : world_(std::move(world)), members_(std::move(members)) {}

  std::string_view name() const override { return world_->name(); }
  size_t message_bytes_max() const override { return world_->message_bytes_max(); }
  bool writable(uint32_t to) const override { return world_->writable(members_[to]); }
  Status send(uint32_t to, std::span<const Segment> segments, uint64_t cookie) override {
    return world_->send(members_[to], segments, cookie);
  }
  bool copies_sends(uint32_t to) const override { return world_->copies_sends(members_[to]); }
  bool poll(Receiver& receiver) override {
    Renumbering renumbering(members_, receiver);
    return world_->poll(renumbering);
  }
  int wait_fd() const override { return world_->wait_fd(); }
  bool arm() override { return world_->arm(); }
  void forget(uint32_t rank) override { world_->forget(members_[rank]); }

 private:
  class Renumbering final : public Receiver {
   public:
    Renumbering(const std::vector<uint32_t>& members, Receiver& job)
        : members_(members), job_(job) {}
    void on_message(uint32_t from, std::span<const std::byte> message) override {
      const uint32_t number = number_of(from);
      PARALLAX_CHECK(number != kNobody);  // who is not of the job does not speak to it
      job_.on_message(number, message);
    }
    void on_sent(uint64_t cookie) override { job_.on_sent(cookie); }
    void on_lost(uint32_t rank, Loss loss, std::string_view why) override {
      // Of the world's ranks any may be reported: another job's is no loss of this one.
      const uint32_t number = number_of(rank);
      if (number != kNobody) job_.on_lost(number, loss, why);
    }

   private:
    static constexpr uint32_t kNobody = UINT32_MAX;
    uint32_t number_of(uint32_t rank) const {
      const auto found = std::find(members_.begin(), members_.end(), rank);
      return found == members_.end() ? kNobody : static_cast<uint32_t>(found - members_.begin());
    }
    const std::vector<uint32_t>& members_;
    Receiver& job_;
  };

  const std::unique_ptr<Transport> world_;
  const std::vector<uint32_t> members_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_MEMBER_TRANSPORT_H_
