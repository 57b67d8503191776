// SPDX-License-Identifier: Apache-2.0
// libibverbs behind nics.h: what it says is handed on, and nic_ports.h says what it means. A
// failure is a reason in the result and no error, since most machines have no RDMA device,
// containers often hide it, and libibverbs need not be installed. Any thread; blocks for
// milliseconds per device.
#include "topology/nics.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <system_error>

#include "base/log.h"
#include "base/unique_fd.h"
#include "topology/nic_ports.h"
#include "topology/verbs_library.h"

namespace parallax {
namespace {

// Of a device; tables have some hundreds of entries. The kernel takes no more than 64 KiB of them.
constexpr size_t kGidsMax = 1024;
constexpr const char* kInstall =
    "install it where there are RDMA devices (Debian package libibverbs1)";

// With what newer versions of the struct hold, where the library has them: as ibv_query_port of the
// header, which would link the library.
int query_port(const VerbsLibrary& verbs, ibv_context* context, uint8_t number,
               ibv_port_attr* port) {
  const verbs_context* extended = verbs_get_ctx(context);
  const bool has_newer = extended != nullptr &&
                         extended->sz >= sizeof *extended - offsetof(verbs_context, query_port) &&
                         extended->query_port != nullptr;
  if (!has_newer) return verbs.query_port(context, number, port);
  return extended->query_port(context, number, port, sizeof *port);
}

uint32_t net_mtu_bytes(const char* device) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
  if (!socket.valid() || ioctl(socket.get(), SIOCGIFMTU, &request) != 0) return 0;
  return request.ifr_mtu > 0 ? static_cast<uint32_t>(request.ifr_mtu) : 0;
}

// Of all ports of the device. Entries that are not set are not told. False: the library or the
// kernel cannot tell them at once.
bool read_gid_table(const VerbsLibrary& verbs, ibv_context* context,
                    std::vector<ibv_gid_entry>* entries) {
  if (verbs.query_gid_table == nullptr) return false;
  entries->resize(kGidsMax);
  const ssize_t count =
      verbs.query_gid_table(context, entries->data(), entries->size(), 0, sizeof(ibv_gid_entry));
  entries->resize(count > 0 ? static_cast<size_t>(count) : 0);
  return count >= 0;
}

std::string one_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

NicGid gid_of(const ibv_gid_entry& entry) {
  NicGid gid;
  gid.index = entry.gid_index;
  gid.address = gid_address(std::span<const uint8_t, 16>(entry.gid.raw));
  gid.type = gid_type_name(entry.gid_type);
  std::array<char, IF_NAMESIZE> name = {};
  if (entry.ndev_ifindex != 0 && if_indextoname(entry.ndev_ifindex, name.data()) != nullptr) {
    gid.net_device = name.data();
    gid.net_mtu_bytes = net_mtu_bytes(name.data());
  }
  return gid;
}

std::string link_layer_name(uint8_t link_layer) {
  if (link_layer == IBV_LINK_LAYER_INFINIBAND) return "infiniband";
  return link_layer == IBV_LINK_LAYER_ETHERNET ? "ethernet" : "unknown";
}

void ask(const VerbsLibrary& verbs, ibv_device* device, Nic* nic) {
  errno = 0;
  const std::unique_ptr<ibv_context, decltype(verbs.close_device)> context(
      verbs.open_device(device), verbs.close_device);
  if (!context) {
    const int error = errno;
    // The library looks elsewhere when it may not open the file, and then says ENOENT.
    const std::string file = std::string("/dev/infiniband/") + device->dev_name;
    nic->error = why_not_open(access(file.c_str(), R_OK | W_OK) == 0 ? error : errno);
    return;
  }
  ibv_device_attr attributes = {};
  if (const int error = verbs.query_device(context.get(), &attributes); error != 0) {
    nic->error = std::string("ibv_query_device: ") + std::strerror(error);
    return;
  }
  attributes.fw_ver[sizeof attributes.fw_ver - 1] = '\0';
  nic->firmware = attributes.fw_ver;
  nic->ports.clear();
  std::vector<ibv_gid_entry> gids;
  const bool has_table = read_gid_table(verbs, context.get(), &gids);
  for (uint32_t number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr raw = {};
    if (query_port(verbs, context.get(), static_cast<uint8_t>(number), &raw) != 0) continue;
    NicPort port = {.number = number,
                    .state = port_state_name(raw.state),
                    .link_layer = link_layer_name(raw.link_layer),
                    .physical_state = physical_state_name(raw.phys_state),
                    .rate_mbit_s = rate_mbit_s_of(raw.active_width, raw.active_speed),
                    .mtu_bytes = mtu_bytes_of(raw.active_mtu),
                    .mtu_bytes_max = mtu_bytes_of(raw.max_mtu),
                    .lid = raw.lid};
    for (const ibv_gid_entry& each : gids) {
      if (each.port_num == number) port.gids.push_back(gid_of(each));
    }
    if (!has_table) port.gids = gids_in_files(device->ibdev_path, number);
    nic->ports.push_back(std::move(port));
  }
}

void ask_all(const VerbsLibrary& verbs, std::vector<Nic>* nics) {
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(verbs.free_device_list)> devices(
      verbs.get_device_list(&count), verbs.free_device_list);
  if (!devices) return;
  for (int i = 0; i < count; ++i) {
    ibv_device* device = devices.get()[i];
    const std::string name = verbs.get_device_name(device);
    auto nic = std::find_if(nics->begin(), nics->end(),
                            [&](const Nic& other) { return other.name == name; });
    if (nic == nics->end()) {
      nics->push_back({.name = name, .pci_bus_id = "", .numa_node = kNoNumaNode, .ports = {}});
      nic = std::prev(nics->end());
    }
    ask(verbs, device, &*nic);
  }
}

}  // namespace

std::vector<NicGid> gids_in_files(const std::string& device_folder, uint32_t port) {
  const std::string folder = device_folder + "/ports/" + std::to_string(port);
  std::vector<NicGid> gids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/gids", error)) {
    const std::string index = entry.path().filename().string();
    NicGid gid;
    gid.address = canonical_address(one_line(folder + "/gids/" + index));
    // An entry that is not set has no type that can be read, or is of zeros.
    const std::string type = one_line(folder + "/gid_attrs/types/" + index);
    if (gid.address.empty() || gid.address == "::" || type.empty()) continue;
    const auto [end, wrong] = std::from_chars(index.data(), index.data() + index.size(), gid.index);
    if (wrong != std::errc() || end != index.data() + index.size()) continue;
    gid.net_device = one_line(folder + "/gid_attrs/ndevs/" + index);
    gid.net_mtu_bytes = gid.net_device.empty() ? 0 : net_mtu_bytes(gid.net_device.c_str());
    // The kernel calls the first two one.
    gid.type = type == "RoCE v2" ? "roce_v2" : gid.net_device.empty() ? "ib" : "roce_v1";
    gids.push_back(std::move(gid));
  }
  std::sort(gids.begin(), gids.end(),
            [](const NicGid& a, const NicGid& b) { return a.index < b.index; });
  return gids;
}

std::string why_not_open(int error) {
  const std::string reason = error == 0 ? "no reason given" : std::strerror(error);
  const std::string sentence = "its file in /dev/infiniband cannot be opened: " + reason;
  if (error == EACCES || error == EPERM) {
    return sentence +
           "; give this user the right (chmod 666 /dev/infiniband/uverbs*, as rdma-core's "
           "udev rules do; under Slurm ConstrainDevices)";
  }
  if (error == ENOENT || error == ENODEV || error == ENXIO) {
    return sentence +
           "; give the container the devices (--device=/dev/infiniband), or load "
           "ib_uverbs (modprobe ib_uverbs)";
  }
  return sentence;
}

std::string why_no_nics(const std::string& root, const std::string& library_why) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path kernel(root + "/sys/class/infiniband");
  const bool has_devices = fs::is_directory(kernel, ignored) && !fs::is_empty(kernel, ignored);
  const bool has_files = fs::is_directory(root + "/dev/infiniband", ignored);
  const std::string library =
      library_why.empty() ? "" : "libibverbs cannot be loaded: " + library_why + "; " + kInstall;
  if (!has_devices) {
    return std::string("the kernel has no RDMA device (/sys/class/infiniband is ") +
           (fs::exists(kernel, ignored) ? "empty" : "missing") +
           "): no such NIC, or its driver is not loaded (lspci -d 15b3:; modprobe mlx5_ib)" +
           (library.empty() ? "" : "; and " + library);
  }
  if (!library.empty()) return library;
  if (!has_files) {
    return "the kernel has RDMA devices, but /dev/infiniband is missing here; give the container "
           "the devices (--device=/dev/infiniband), or load ib_uverbs (modprobe ib_uverbs)";
  }
  return "libibverbs lists none of the kernel's RDMA devices: no provider for them is installed "
         "(Debian package ibverbs-providers), or they belong to another network namespace "
         "(rdma system)";
}

void add_verbs_devices(std::vector<Nic>* nics, std::string* no_nics_why) {
  std::string why;
  const VerbsLibrary* verbs = load_verbs(&why);
  if (verbs != nullptr) {
    ask_all(*verbs, nics);
  } else {
    const std::string sentence = "libibverbs cannot be loaded: " + why + "; " + kInstall;
    PARALLAX_LOG(kInfo, kNet, "ports of RDMA devices cannot be told: " + sentence);
    for (Nic& nic : *nics) nic.error = sentence;
  }
  if (nics->empty()) *no_nics_why = why_no_nics("", why);
}

}  // namespace parallax
