// SPDX-License-Identifier: Apache-2.0
// DeviceTerms: what a rank says at commit of reductions among devices, where the commit has
// variables for them: whether it can, and with which libraries; in the answer what the ranks find
// each other by. A plain value with an encoding, a block of a CommitReport's.
#ifndef PARALLAX_ENGINE_DEVICE_TERMS_H_
#define PARALLAX_ENGINE_DEVICE_TERMS_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "device/communicator.h"

namespace parallax {

struct DeviceTerms {
  static constexpr size_t kWhyMax = 600;

  bool wanted = false;  // the commit has such variables; else the rest says nothing
  bool able = false;
  bool has_id = false;
  bool by_host = false;  // it sums within its host alone (AmongDevices::kHost)
  bool windows = false;  // it can register memory together with the others
  uint32_t library_version = 0, driver_version = 0;  // as CollectiveSupport has them
  CommunicatorId id = {};
  std::string why;  // not able: the rank, and what it lacks

  void encode(std::string* out) const {
    const std::string text = why.substr(0, kWhyMax);
    const uint32_t numbers[] = {able,
                                has_id,
                                by_host,
                                windows,
                                library_version,
                                driver_version,
                                static_cast<uint32_t>(text.size())};
    out->append(reinterpret_cast<const char*>(numbers), sizeof numbers);
    out->append(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
    *out += text;
  }

  // A peer's. *in goes on behind it.
  bool decode(std::span<const std::byte>* in) {
    uint32_t numbers[7];
    if (in->size() < sizeof numbers + id.bytes.size()) return false;
    std::memcpy(numbers, in->data(), sizeof numbers);
    std::memcpy(id.bytes.data(), in->data() + sizeof numbers, id.bytes.size());
    *in = in->subspan(sizeof numbers + id.bytes.size());
    const bool bits = numbers[0] <= 1 && numbers[1] <= 1 && numbers[2] <= 1 && numbers[3] <= 1;
    if (!bits || numbers[6] > kWhyMax || in->size() < numbers[6]) return false;
    wanted = true;
    able = numbers[0] != 0;
    has_id = numbers[1] != 0;
    by_host = numbers[2] != 0;
    windows = numbers[3] != 0;
    library_version = numbers[4];
    driver_version = numbers[5];
    why.assign(reinterpret_cast<const char*>(in->data()), numbers[6]);
    *in = in->subspan(numbers[6]);
    return true;
  }

  // Ranks of several versions of the library do not understand each other; drivers do across minor
  // versions. What differs: "NCCL", "CUDA"; null: they fit, or one of them cannot anyway.
  const char* differs_from(const DeviceTerms& other) const {
    if (!able || !other.able) return nullptr;
    if (library_version != other.library_version) return "NCCL";
    return driver_version / 1000 != other.driver_version / 1000 ? "CUDA" : nullptr;
  }
  // "NCCL 2.28.9 and a driver of CUDA 13.0".
  std::string versions() const {
    const auto text = [](uint32_t number) { return std::to_string(number); };
    const uint32_t v = library_version, d = driver_version;
    return "NCCL " + text(v / 10000) + "." + text(v % 10000 / 100) + "." + text(v % 100) +
           " and a driver of CUDA " + text(d / 1000) + "." + text(d % 1000 / 10);
  }
  // Takes in that another rank cannot, or goes another way.
  void merge(const DeviceTerms& other) {
    windows = windows && other.windows;
    if (!able || (other.able && other.by_host == by_host)) return;
    able = false;
    why = other.able ? "the setting nccl is host on some ranks and world on others" : other.why;
  }
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_DEVICE_TERMS_H_
