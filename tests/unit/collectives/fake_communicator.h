// SPDX-License-Identifier: Apache-2.0
// FakeCommunicator: a communicator of one rank, which notes what it is told and ends it when the
// test says so; and devices that form it.
#ifndef PARALLAX_TESTS_UNIT_COLLECTIVES_FAKE_COMMUNICATOR_H_
#define PARALLAX_TESTS_UNIT_COLLECTIVES_FAKE_COMMUNICATOR_H_

#include <memory>
#include <vector>

#include "support/fake_devices.h"

namespace parallax::testkit {

// What the test says and sees, beyond the communicator's life.
struct FakeLaunching {
  bool formed = true, is_quiet = true;
  uint64_t may_end = 0;
  Status fails;
  // Seen.
  uint32_t device = 0;
  uint32_t id = 0;  // a byte of it
  uint32_t aborts = 0;
  std::vector<std::vector<DeviceReduction>> launches;
  // Each time, and behind how many launches.
  std::vector<std::pair<std::vector<ByteRange>, size_t>> windows;
  bool holds_windows = false;  // they are not over by themselves,
  bool registering = false;    // but when the test says so here
};

class FakeCommunicator final : public Communicator {
 public:
  explicit FakeCommunicator(FakeLaunching& told) : told_(told) {}
  Status advance() override {
    if (aborted_) return {};
    ended_ = std::min<uint64_t>(told_.may_end, told_.launches.size());
    return told_.fails;
  }
  bool ready() const override { return told_.formed && !aborted_ && !told_.registering; }
  Status register_windows(std::span<const ByteRange> windows) override {
    EXPECT_TRUE(idle());
    told_.windows.push_back({{windows.begin(), windows.end()}, told_.launches.size()});
    told_.registering = told_.holds_windows;
    return told_.fails;
  }
  Status launch(std::span<const DeviceReduction> together) override {
    told_.launches.emplace_back(together.begin(), together.end());
    return {};
  }
  uint64_t launched() const override { return told_.launches.size(); }
  uint64_t ended() const override { return ended_; }
  bool to_be_asked() const override { return !told_.formed; }
  void abort() override {
    ++told_.aborts;
    aborted_ = true;
  }
  bool quiet() override { return aborted_ && told_.is_quiet; }
  bool drain(int64_t) override { return quiet(); }

 private:
  FakeLaunching& told_;
  uint64_t ended_ = 0;
  bool aborted_ = false;
};

class FormingDevices : public FakeDevices {
 public:
  using FakeDevices::FakeDevices;
  FakeLaunching told;
  CollectiveSupport support = {.there = true,
                               .library_version = 22809,
                               .driver_version = 13000,
                               .devices = 2,
                               .why = "",
                               .splits = true,
                               .why_no_splits = "",
                               .ordered_ranks_max = 64,
                               .why_not_ordered = ""};
  CollectiveSupport collectives() const override { return support; }
  Status make_id(CommunicatorId* id) override {
    id->bytes[0] = std::byte{7};
    return {};
  }
  Status form(const CommunicatorOptions& options,
              std::unique_ptr<Communicator>* communicator) override {
    told.device = options.device;
    told.id = static_cast<uint32_t>(options.id.bytes[5]);
    *communicator = std::make_unique<FakeCommunicator>(told);
    return {};
  }
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_UNIT_COLLECTIVES_FAKE_COMMUNICATOR_H_
