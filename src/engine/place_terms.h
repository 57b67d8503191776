// SPDX-License-Identifier: Apache-2.0
// PlaceTerms: what a rank says at commit of the buffers that places of the commit's variables lie
// in, so that all know which of them all can register together: a print of each, of its size and of
// which variables lie in it where, in an order that the variables give. Equal prints: the buffer
// has the same variables at the same offsets on every rank. A plain value with an encoding, a part
// of DeviceTerms.
#ifndef PARALLAX_ENGINE_PLACE_TERMS_H_
#define PARALLAX_ENGINE_PLACE_TERMS_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "world/host_map.h"

namespace parallax {

struct PlaceTerms {
  // Of one commit. What is said has a bound, whatever the world.
  static constexpr size_t kWindowsMax = 8;
  // In place of a print: why it is no window.
  static constexpr uint64_t kPlain = 0, kOtherDevice = 1, kEarlier = 2, kDiffer = 3,
                            kFirstPrint = 16;

  struct Window {
    uint64_t print = kPlain;
    uint32_t rank = 0;   // who says so
    uint32_t other = 0;  // kDiffer: than whom
  };

  uint32_t rank = 0;  // who speaks
  bool more = false;  // some rank has more than kWindowsMax
  std::vector<Window> windows;

  bool any() const { return more || !windows.empty(); }
  bool agreed(size_t window) const {
    return window < windows.size() && windows[window].print >= kFirstPrint;
  }

  void merge(const PlaceTerms& other) {
    more = more || other.more;
    for (size_t i = 0; i < windows.size() || i < other.windows.size(); ++i) {
      if (i == windows.size()) {
        windows.push_back({.print = kDiffer, .rank = rank, .other = other.windows[i].rank});
      } else if (i >= other.windows.size()) {
        if (agreed(i)) windows[i] = {kDiffer, windows[i].rank, other.rank};
      } else if (agreed(i) && other.windows[i].print != windows[i].print) {
        const Window& its = other.windows[i];
        windows[i] = other.agreed(i) ? Window{kDiffer, windows[i].rank, its.rank} : its;
      }
    }
  }

  // Why not every buffer that a rank named is a window, in the words of all; "": each is.
  std::string why_not(const HostMap& hosts) const {
    for (size_t i = 0; i < windows.size(); ++i) {
      const Window& window = windows[i];
      if (agreed(i)) continue;
      const std::string lead =
          "buffer " + std::to_string(i + 1) + " of those that places of the commit lie in ";
      if (window.print == kPlain) {
        return lead + "is not of NCCL's memory on " + rank_name(hosts, window.rank) +
               " (symmetric of parallax_buffer_alloc)";
      }
      if (window.print == kOtherDevice) {
        return lead + "is not on the device that " + rank_name(hosts, window.rank) +
               " takes part with";
      }
      if (window.print == kEarlier) {
        return lead + "has places of an earlier commit in it on " + rank_name(hosts, window.rank) +
               ", on which ranks did not agree";
      }
      return lead + "differs on " + rank_name(hosts, window.rank) + " and " +
             rank_name(hosts, window.other) +
             ": its size, or which variables lie in it at which offsets";
    }
    return more ? "places of the commit lie in more than " + std::to_string(kWindowsMax) +
                      " buffers of a rank, of which the first are registered"
                : "";
  }

  void encode(std::string* out) const {
    const uint32_t numbers[] = {rank, more, static_cast<uint32_t>(windows.size())};
    out->append(reinterpret_cast<const char*>(numbers), sizeof numbers);
    for (const Window& each : windows) {
      out->append(reinterpret_cast<const char*>(&each.print), sizeof each.print);
      const uint32_t ranks[] = {each.rank, each.other};
      out->append(reinterpret_cast<const char*>(ranks), sizeof ranks);
    }
  }

  // A peer's. *in goes on behind it.
  bool decode(std::span<const std::byte>* in) {
    uint32_t numbers[3];
    if (!take(in, numbers, sizeof numbers) || numbers[1] > 1 || numbers[2] > kWindowsMax) {
      return false;
    }
    rank = numbers[0];
    more = numbers[1] != 0;
    windows.clear();
    for (uint32_t i = 0; i < numbers[2]; ++i) {
      Window window;
      uint32_t ranks[2];
      if (!take(in, &window.print, sizeof window.print) || !take(in, ranks, sizeof ranks)) {
        return false;
      }
      if (window.print > kDiffer && window.print < kFirstPrint) return false;
      window.rank = ranks[0];
      window.other = ranks[1];
      windows.push_back(window);
    }
    return true;
  }
  // Of so many ranks.
  bool fits(uint32_t world) const {
    for (const Window& each : windows) {
      if (each.rank >= world || each.other >= world) return false;
    }
    return rank < world;
  }

 private:
  static bool take(std::span<const std::byte>* in, void* to, size_t bytes) {
    if (in->size() < bytes) return false;
    std::memcpy(to, in->data(), bytes);
    *in = in->subspan(bytes);
    return true;
  }
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_PLACE_TERMS_H_
