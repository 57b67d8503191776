// SPDX-License-Identifier: Apache-2.0
// Configuration of UCX and the life of its context and worker. See ucx_worker.h.
#include "transport/ucx/ucx_worker.h"

#include <ifaddrs.h>
#include <link.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/interface.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace parallax {
namespace {

// Beyond this UCX 1.13 holds that tcp does not scale, and finds no transport at all.
constexpr size_t kEndpointsEstimateMax = 200;

// What UCX 1.13 locks on an RDMA device for messages to come, 75 MiB by rc and 27 by ud, with room
// for its queues (VmPin of /proc/PID/status, on soft-RoCE).
constexpr uint64_t kVerbsLockedBytes = 80 << 20;

// How names of transports begin that are rc's or dc's, or that stand for those among others.
constexpr const char* kWithRc[] = {"rc", "dc", "ib,", "all,"};

Status failed(const char* what, ucs_status_t status) {
  return io_error(std::string("UCX: ") + what + ": " + ucs_status_string(status));
}

// UCX looks for its module of verbs when its first context is made.
bool has_verbs_module() {
  bool found = false;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        if (std::strstr(info->dlpi_name, "libuct_ib") == nullptr) return 0;
        *static_cast<bool*>(out) = true;
        return 1;
      },
      &found);
  return found;
}

// What to look at where an RDMA device does not open.
const char* verbs_remedy() {
  return has_verbs_module()
             ? "is its port active (ibv_devinfo), with an address where it is Ethernet, and does "
               "ucx_info -d list it?"
             : "this UCX is without verbs, as its module libuct_ib.so was not found: install a UCX "
               "that is built with verbs (ucx_info -d lists rc_verbs or rc_mlx5)";
}

// With this capability (CAP_IPC_LOCK) no limit holds.
bool may_lock_any_memory() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capget, &header, sets) == 0 && (sets[0].effective & (1u << CAP_IPC_LOCK)) != 0;
}

// UCX 1.13 without room for its receive buffers opens all the same, and says so again and again.
Status check_locked_memory(size_t workers) {
  const uint64_t wanted = workers * kVerbsLockedBytes;
  rlimit locked = {};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) != 0 || locked.rlim_cur >= wanted ||
      may_lock_any_memory()) {
    return {};
  }
  const std::string fewer =
      workers == 1 ? "" : ", or use fewer than " + std::to_string(workers) + " rails";
  return limit("open: on an RDMA device UCX locks " + std::to_string(kVerbsLockedBytes >> 20) +
               " MiB of buffers in memory and more for each peer, this process may lock " +
               std::to_string(locked.rlim_cur >> 10) +
               " KiB: raise it (ulimit -l unlimited; LimitMEMLOCK=infinity for a service)" + fewer);
}

const char* user_setting(const char* name) {
  const char* value = variable(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// Shared memory is never among them: where only the network namespace is separate, UCX would take
// it between "hosts", and a blocked receiver would not wake. Inside a host we have our own. Nor is
// "self": nobody sends to itself, and with it a worker whose interface is down opens all the same,
// with an address at which no peer can reach it.
std::string transports_for(const NetworkOptions& options) {
  if (!options.transports.empty()) return options.transports;
  return is_rdma_device(options.net_device) ? "rc" : "tcp";
}

// The user's UCX_TLS and UCX_NET_DEVICES win over ours: they know the machine. The rest is what the
// transport is built on. Names without a prefix are the interface's own and go through UCX's cache;
// a UCX that does not know one warns and keeps its default, which is slower, never wrong.
Status configure(ucp_config_t* config, const NetworkOptions& options, UcxNames* names) {
  struct Entry {
    const char* name;
    std::string value;
  };
  const char* user_transports = user_setting("UCX_TLS");
  const char* user_devices = user_setting("UCX_NET_DEVICES");
  std::string transports = user_transports == nullptr ? transports_for(options) : user_transports;
  std::string device = user_devices == nullptr ? options.net_device : user_devices;
  // UCX knows ports alone.
  if (user_devices == nullptr && is_rdma_device(device) && device.find(':') == std::string::npos) {
    device += ":1";
  }
  if (user_devices == nullptr && !device.empty() && !is_rdma_device(device) &&
      if_nametoindex(device.c_str()) == 0) {
    return invalid("net_device \"" + device + "\": this machine has no such interface");
  }
  *names = {.transports = transports,
            .device = device,
            .description = transports + (device.empty() ? " on any device" : " on " + device)};
  std::vector<Entry> entries = {
      {"TLS", transports},    {"NET_DEVICES", device.empty() ? "all" : device},
      {"RNDV_THRESH", "inf"},  // a rendezvous would not be whole in the callback
      {"CONN_NB", "y"},        // else connecting to a machine that is gone blocks for a minute
      {"MAX_IOV", "16"},       // kSegmentsMax and the headers in one sendmsg; the default is 6
  };
  // Else UCX 1.13 would register what a piece is read from, each time.
  if (is_rdma_device(device) && user_setting("UCX_ZCOPY_THRESH") == nullptr) {
    entries.push_back({"ZCOPY_THRESH", "inf"});
  }
  for (const Entry& entry : entries) {
    const ucs_status_t status = ucp_config_modify(config, entry.name, entry.value.c_str());
    if (status != UCS_OK) return failed(entry.name, status);
  }
  return {};
}

// The first IPv4 address of an interface.
bool address_of(const std::string& device, sockaddr_in* address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* each = list; each != nullptr && !found; each = each->ifa_next) {
    found = device == each->ifa_name && each->ifa_addr != nullptr &&
            each->ifa_addr->sa_family == AF_INET;
    if (found) std::memcpy(address, each->ifa_addr, sizeof *address);
  }
  ::freeifaddrs(list);
  return found;
}

// UCX 1.13 asks the kernel for a port of its interface's address again and again for as long as
// there is none. Looked at before, where we know what it will do.
Status check_port(const NetworkOptions& options) {
  sockaddr_in address = {};
  if (user_setting("UCX_TLS") != nullptr || user_setting("UCX_NET_DEVICES") != nullptr ||
      user_setting("UCX_TCP_PORT_RANGE") != nullptr || transports_for(options) != "tcp" ||
      !address_of(options.net_device, &address)) {
    return {};
  }
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  address.sin_port = 0;
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno != EADDRINUSE) {
    return {};
  }
  return limit("UCX: no port of " + options.net_device +
               " is free; end what holds them (ss -tanp), or widen the range of "
               "net.ipv4.ip_local_port_range");
}

}  // namespace

Status UcxWorker::create(const NetworkOptions& options, size_t others,
                         std::unique_ptr<UcxWorker>* worker) {
  std::unique_ptr<UcxWorker> made(new UcxWorker);
  PARALLAX_RETURN_IF_ERROR(check_port(options));
  const bool verbs = is_rdma_device(options.net_device);
  if (verbs) PARALLAX_RETURN_IF_ERROR(check_locked_memory(others + 1));
  made->writes_by_device_ = verbs && options.registered_bytes_max > 0;
  Status opened = made->open_context(options);
  if (opened.ok()) opened = made->open_worker();
  if (opened.code() == PARALLAX_IO && verbs) {
    return opened.reworded(opened.message() + ": " + verbs_remedy());
  }
  PARALLAX_RETURN_IF_ERROR(opened);
  *worker = std::move(made);
  return {};
}

Status UcxWorker::open_context(const NetworkOptions& options) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return failed("reading its configuration", status);
  const Status configured = configure(config, options, &taken_from_);
  if (!configured.ok()) {
    ucp_config_release(config);
    return configured;
  }
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (writes_by_device_) params.features |= UCP_FEATURE_RMA;
  params.estimated_num_eps = std::min<size_t>(options.world, kEndpointsEstimateMax);
  status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status == UCS_ERR_NO_DEVICE) {  // also an interface without carrier or address
    const bool verbs = is_rdma_device(options.net_device);
    return io_error("UCX: " + description() + " is not usable" +
                    (verbs ? "" : ": is the interface up, with an address?"));
  }
  if (status != UCS_OK) return failed(("opening " + description()).c_str(), status);
  return {};
}

Status UcxWorker::open_worker() {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.events = UCP_WAKEUP_RX | UCP_WAKEUP_TX;
  ucs_status_t status = ucp_worker_create(context_, &params, &worker_);
  if (status != UCS_OK) return failed(("opening " + description()).c_str(), status);
  status = ucp_worker_get_efd(worker_, &wait_fd_);
  if (status != UCS_OK) return failed("its event descriptor", status);
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  status = ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return failed("its address", status);
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return {};
}

// By UCX's names, and by those that stand for several.
bool UcxWorker::may_take_rc() const {
  const std::string list = "," + taken_from_.transports + ",";
  return std::any_of(std::begin(kWithRc), std::end(kWithRc), [&list](const char* name) {
    return list.find("," + std::string(name)) != std::string::npos;
  });
}

void UcxWorker::end() {
  if (worker_ != nullptr) ucp_worker_destroy(std::exchange(worker_, nullptr));
}

UcxWorker::~UcxWorker() {
  end();
  if (context_ != nullptr) ucp_cleanup(context_);
}

void UcxWorker::abandon(std::unique_ptr<UcxWorker> worker) {
  static Mutex mutex;
  // Reachable to the end.
  static auto* const abandoned PARALLAX_PT_GUARDED_BY(mutex) =
      new std::vector<std::unique_ptr<UcxWorker>>;
  const MutexLock lock(mutex);
  abandoned->push_back(std::move(worker));
}

Status UcxWorker::on_active_message(unsigned id, ucp_am_recv_callback_t callback, void* argument) {
  ucp_am_handler_param_t param = {};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = id;
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  param.cb = callback;
  param.arg = argument;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_, &param);
  if (status != UCS_OK) return failed("setting a handler", status);
  return {};
}

}  // namespace parallax
