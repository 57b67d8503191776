// SPDX-License-Identifier: Apache-2.0
// DeviceTerms: what a rank says at commit of reductions among devices, where the commit has
// variables for them: whether it can, and with which libraries; in the answer what the ranks find
// each other by. A plain value with an encoding, a block of a CommitReport's.
#ifndef PARALLAX_ENGINE_DEVICE_TERMS_H_
#define PARALLAX_ENGINE_DEVICE_TERMS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "device/communicator.h"
#include "engine/place_terms.h"

namespace parallax {

// Whether what ranks of a part form is made out of the job's communicator: not; they could, if it
// is idle; this rank has it idle, and launches nothing with it until that is decided.
enum class OutOfJob : uint32_t { kNo, kCould, kHeld };
// The device that a rank takes part with, as far as it is known at commit.
struct DevicePlace {
  static constexpr size_t kTextMax = 128;  // of what a device says of itself

  uint32_t host = 0;  // of the job
  uint32_t rank = 0;
  DeviceIdentity device;

  bool same_uuid(const DevicePlace& other) const {
    return host == other.host && !device.uuid.empty() && device.uuid == other.device.uuid;
  }
  bool same_bus(const DevicePlace& other) const {
    return host == other.host && !device.bus.empty() && device.bus == other.device.bus;
  }
  bool is(const DevicePlace& other) const { return same_uuid(other) || same_bus(other); }
  // All of it can be told: what is cut could be another device's, too.
  bool fits() const { return device.bus.size() <= kTextMax && device.uuid.size() <= kTextMax; }
};

struct DeviceTerms {
  static constexpr size_t kWhyMax = 600;

  bool wanted = false;  // the commit has such variables; else the rest says nothing
  bool able = false;
  bool has_id = false;
  bool by_host = false;  // it sums within its host alone (AmongDevices::kHost)
  bool windows = false;  // it can register memory together with the others
  uint32_t library_version = 0, driver_version = 0;  // as CollectiveSupport has them
  CommunicatorId id = {};
  OutOfJob out_of_job = OutOfJob::kNo;
  // Not able, or able and not out of the job's communicator: the rank, and what it lacks.
  std::string why;
  std::vector<DevicePlace> places;  // able: of this host, no two alike, each fits()
  PlaceTerms buffers;               // that variables have their places in

  void encode(std::string* out) const {
    const std::string text = why.substr(0, kWhyMax);
    const uint32_t numbers[] = {able,
                                has_id,
                                by_host,
                                windows,
                                library_version,
                                driver_version,
                                static_cast<uint32_t>(out_of_job),
                                static_cast<uint32_t>(text.size()),
                                static_cast<uint32_t>(places.size())};
    out->append(reinterpret_cast<const char*>(numbers), sizeof numbers);
    out->append(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
    *out += text;
    for (const DevicePlace& place : places) {
      const auto& [bus, uuid] = place.device;
      const uint32_t told[] = {place.host, place.rank, static_cast<uint32_t>(bus.size()),
                               static_cast<uint32_t>(uuid.size())};
      out->append(reinterpret_cast<const char*>(told), sizeof told);
      *out += bus + uuid;
    }
    buffers.encode(out);
  }

  // A peer's. *in goes on behind it.
  bool decode(std::span<const std::byte>* in) {
    uint32_t numbers[9];
    if (in->size() < sizeof numbers + id.bytes.size()) return false;
    std::memcpy(numbers, in->data(), sizeof numbers);
    std::memcpy(id.bytes.data(), in->data() + sizeof numbers, id.bytes.size());
    *in = in->subspan(sizeof numbers + id.bytes.size());
    const bool bits = numbers[0] <= 1 && numbers[1] <= 1 && numbers[2] <= 1 && numbers[3] <= 1;
    const uint32_t text_bytes = numbers[7];
    if (!bits || numbers[6] > static_cast<uint32_t>(OutOfJob::kHeld)) return false;
    if (text_bytes > kWhyMax || in->size() < text_bytes) return false;
    wanted = true;
    able = numbers[0] != 0;
    has_id = numbers[1] != 0;
    by_host = numbers[2] != 0;
    windows = numbers[3] != 0;
    library_version = numbers[4];
    driver_version = numbers[5];
    out_of_job = static_cast<OutOfJob>(numbers[6]);
    why.assign(reinterpret_cast<const char*>(in->data()), text_bytes);
    *in = in->subspan(text_bytes);
    return decode_places(numbers[8], in) && buffers.decode(in);
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
  // Takes in that another rank cannot, goes another way, or has the device of one of these.
  void merge(const DeviceTerms& other) {
    windows = windows && other.windows;
    buffers.merge(other.buffers);
    if (able && !other.able) cannot(other.why);
    if (able && other.by_host != by_host) {
      cannot("the setting nccl is host on some ranks and world on others");
    }
    if (able && other.out_of_job < out_of_job) {
      out_of_job = other.out_of_job;
      why = other.why;
    }
    for (const DevicePlace& place : other.places) {
      if (able) add(place);
    }
  }

 private:
  void cannot(const std::string& what) {
    able = false;
    why = what;
    places.clear();
  }
  void add(const DevicePlace& place) {
    const auto same = std::find_if(places.begin(), places.end(),
                                   [&place](const DevicePlace& each) { return each.is(place); });
    if (same == places.end()) return places.push_back(place);
    const std::string ranks = "ranks " + std::to_string(std::min(same->rank, place.rank)) +
                              " and " + std::to_string(std::max(same->rank, place.rank));
    const DeviceIdentity& device = place.device;
    if (!same->same_uuid(place) && !device.uuid.empty() && !same->device.uuid.empty()) {
      return cannot(ranks + " have two instances of one GPU (" + device.bus +
                    "), and NCCL before 2.30 takes one rank for each GPU; install NCCL 2.30, or "
                    "show each rank a GPU of its own by CUDA_VISIBLE_DEVICES");
    }
    cannot(ranks + " have one device (" + (same->same_bus(place) ? device.bus : device.uuid) +
           "), and NCCL takes one rank for each; show each rank its own by CUDA_VISIBLE_DEVICES");
  }
  // Each takes some bytes, so that no number of a peer's is allocated by.
  bool decode_places(uint32_t count, std::span<const std::byte>* in) {
    places.clear();
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t told[4];
      if (in->size() < sizeof told) return false;
      std::memcpy(told, in->data(), sizeof told);
      *in = in->subspan(sizeof told);
      if (told[2] > DevicePlace::kTextMax || told[3] > DevicePlace::kTextMax) return false;
      if (in->size() < told[2] + told[3]) return false;
      const char* const bus = reinterpret_cast<const char*>(in->data());
      const char* const uuid = bus + told[2];
      places.push_back({.host = told[0],
                        .rank = told[1],
                        .device = {.bus = {bus, told[2]}, .uuid = {uuid, told[3]}}});
      *in = in->subspan(told[2] + told[3]);
    }
    return true;
  }
};

}  // namespace parallax

#endif  // PARALLAX_ENGINE_DEVICE_TERMS_H_
