// SPDX-License-Identifier: Apache-2.0
// One of the two processes that bench/transports/run starts for a way:
//
//   parallax_transports WAY RANK ADDRESS DEVICE TRIPS MEGABYTES
//
// What the other one has to know goes out as a line "address HEX", and comes in as one; the figures
// go out as the last line.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "phases.h"
#include "sides.h"

namespace parallax::transports {
namespace {

std::string exchanged(const std::string& own) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : own) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  std::cout << "address " << hex << std::endl;
  std::string there, bytes;
  if (!(std::cin >> there)) fail("the other side is gone");
  for (size_t i = 0; i + 1 < there.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(there.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

class Link {
 public:
  Link(std::unique_ptr<Side> side, uint32_t rank)
      : side_(std::move(side)),
        rank_(rank),
        ones_(kMessageBytes[1] / sizeof(float), 1.0f),
        sums_(ones_.size()) {}

  void trips(uint64_t count) {
    side_->set_idle(Idle::kLooks);
    for (uint64_t i = 0; i < count; ++i) {
      if (rank_ == 1) send(kTripBytes);
      side_->hear(1, kTripBytes, sums_.data());
      if (rank_ == 0) send(kTripBytes);
    }
    check(kTripBytes, count);
  }
  void one_way(uint64_t count, size_t bytes) {
    side_->set_idle(Idle::kBlocks);
    if (rank_ == 1) {
      for (uint64_t i = 0; i < count; ++i) send(bytes);
      side_->hear(1, kTripBytes, sums_.data());
      return check(kTripBytes, 1);
    }
    side_->hear(count, bytes, sums_.data());
    send(kTripBytes);
    check(bytes, count);
  }

 private:
  void send(size_t bytes) { side_->send(reinterpret_cast<const std::byte*>(ones_.data()), bytes); }
  void check(size_t bytes, uint64_t count) {
    if (!takes_sum(sums_, bytes, count)) fail("a sum is wrong");
  }

  std::unique_ptr<Side> side_;
  const uint32_t rank_;
  std::vector<float> ones_, sums_;
};

}  // namespace
}  // namespace parallax::transports

int main(int count, char** all) {
  using namespace parallax::transports;
  if (count != 7) fail("takes WAY RANK ADDRESS DEVICE TRIPS MEGABYTES");
  const Place place = {.rank = static_cast<uint32_t>(std::stoul(all[2])),
                       .address = all[3],
                       .device = all[4],
                       .exchange = exchanged};
  Link link(make_side(all[1], place), place.rank);
  print_figures(take_figures(link, std::stoull(all[5]), std::stoull(all[6])));
  return 0;
}
