// SPDX-License-Identifier: Apache-2.0
// Plain verbs over one reliable connection (RC): sends, writes and reads between registered
// buffers, polled. libibverbs is loaded, as the topology layer does it, and never linked: the tool
// runs where it is not installed. Posting and polling go through the device's own functions, which
// the header calls inline.
#include <infiniband/verbs.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "base/clock.h"
#include "tool/bench/wire_way.h"
#include "topology/nic_ports.h"
#include "topology/rails.h"
#include "topology/verbs_library.h"

namespace parallax::tool::bench {

namespace {

constexpr uint32_t kDepth = 32;      // requests in flight
constexpr uint32_t kReadsDepth = 4;  // of them, reads: every device has as many
constexpr uint8_t kHops = 64;

// Beside those of VerbsLibrary.
struct VerbsCalls {
  decltype(&ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&ibv_dealloc_pd) dealloc_pd = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, size_t, int) = nullptr;  // ibv_reg_mr is a macro, too
  decltype(&ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&ibv_create_cq) create_cq = nullptr;
  decltype(&ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&ibv_create_qp) create_qp = nullptr;
  decltype(&ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&ibv_modify_qp) modify_qp = nullptr;
  decltype(&ibv_query_gid) query_gid = nullptr;
};

Status load_calls(const VerbsLibrary& verbs, VerbsCalls* calls) {
  void* const library = verbs.handle;
  const bool all = find_symbol(library, "ibv_alloc_pd", &calls->alloc_pd) &&
                   find_symbol(library, "ibv_dealloc_pd", &calls->dealloc_pd) &&
                   find_symbol(library, "ibv_reg_mr", &calls->reg_mr) &&
                   find_symbol(library, "ibv_dereg_mr", &calls->dereg_mr) &&
                   find_symbol(library, "ibv_create_cq", &calls->create_cq) &&
                   find_symbol(library, "ibv_destroy_cq", &calls->destroy_cq) &&
                   find_symbol(library, "ibv_create_qp", &calls->create_qp) &&
                   find_symbol(library, "ibv_destroy_qp", &calls->destroy_qp) &&
                   find_symbol(library, "ibv_modify_qp", &calls->modify_qp) &&
                   find_symbol(library, "ibv_query_gid", &calls->query_gid);
  return all ? Status() : unsupported("libibverbs lacks functions that the bench calls");
}

Status failed(const char* call, int error) {
  return io_error(std::string("verbs: ") + call + ": " + std::strerror(error));
}

struct Peer {
  uint32_t queue_pair = 0, first_packet = 0, lid = 0, mtu_bytes = 0, key = 0;
  uint64_t address = 0;
  std::array<uint8_t, 16> gid = {};
};

std::string card_of(const Peer& peer) {
  return nlohmann::json({peer.queue_pair, peer.first_packet, peer.lid, peer.mtu_bytes, peer.key,
                         peer.address, peer.gid})
      .dump();
}

Peer peer_of(const std::string& card) {
  const auto all = nlohmann::json::parse(card);
  return {.queue_pair = all.at(0),
          .first_packet = all.at(1),
          .lid = all.at(2),
          .mtu_bytes = all.at(3),
          .key = all.at(4),
          .address = all.at(5),
          .gid = all.at(6)};
}

ibv_mtu mtu_of(uint32_t bytes) {
  for (const ibv_mtu mtu : {IBV_MTU_4096, IBV_MTU_2048, IBV_MTU_1024, IBV_MTU_512}) {
    if (mtu_bytes_of(mtu) <= bytes) return mtu;
  }
  return IBV_MTU_256;
}

// One buffer, registered: its first half goes out, into its second half comes what arrives.
class VerbsWay final : public RawWay {
 public:
  VerbsWay(const VerbsLibrary& verbs, const VerbsCalls& calls, VerbsOperation operation,
           const WireContext& context)
      : verbs_(verbs),
        calls_(calls),
        operation_(operation),
        timeout_ms_(context.timeout_ms),
        half_bytes_(context.message_bytes_max),
        memory_(2 * half_bytes_) {}

  ~VerbsWay() override {
    if (queue_pair_ != nullptr) calls_.destroy_qp(queue_pair_);
    if (completions_ != nullptr) calls_.destroy_cq(completions_);
    if (region_ != nullptr) calls_.dereg_mr(region_);
    if (domain_ != nullptr) calls_.dealloc_pd(domain_);
    if (context_ != nullptr) verbs_.close_device(context_);
  }

  std::string description() const override { return description_; }
  bool leader_receives() const override { return operation_ == VerbsOperation::kRead; }

  Status open(const Rail& rail, const NicPort& port, Peer* own);
  Status connect(const Peer& own, const Peer& peer);
  Status ping_pong(const Transfer& transfer, double* us) override;
  Status stream(const Transfer& transfer, double* us) override;

 private:
  Status open_device(const std::string& name);
  Status make_queue_pair();
  Status to_ready(const Peer& own, const Peer& peer);
  Status post_receive();
  Status post(ibv_wr_opcode code, size_t bytes);
  Status wait_for(uint32_t* count, uint32_t least);
  Status read_all(const Transfer& transfer, uint32_t depth, double* us);
  ibv_wr_opcode last_code() const {
    return operation_ == VerbsOperation::kSend ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM;
  }

  const VerbsLibrary& verbs_;
  const VerbsCalls calls_;
  const VerbsOperation operation_;
  const int64_t timeout_ms_;
  const size_t half_bytes_;
  std::vector<std::byte> memory_;
  const SteadyClock clock_;
  std::string description_;
  uint8_t port_ = 0;
  uint8_t gid_index_ = 0;
  bool is_global_ = false;
  Peer peer_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_cq* completions_ = nullptr;
  ibv_qp* queue_pair_ = nullptr;
  uint32_t posted_ = 0, sent_ = 0, received_ = 0;  // modulo 2^32
};

Status VerbsWay::open_device(const std::string& name) {
  int count = 0;
  ibv_device** const devices = verbs_.get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (name != verbs_.get_device_name(devices[i])) continue;
    context_ = verbs_.open_device(devices[i]);
    break;
  }
  const int error = errno;
  if (devices != nullptr) verbs_.free_device_list(devices);
  return context_ == nullptr ? failed("ibv_open_device", error) : Status();
}

Status VerbsWay::make_queue_pair() {
  domain_ = calls_.alloc_pd(context_);
  if (domain_ == nullptr) return failed("ibv_alloc_pd", errno);
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  region_ = calls_.reg_mr(domain_, memory_.data(), memory_.size(), kAccess);
  if (region_ == nullptr) return failed("ibv_reg_mr (ulimit -l bounds what may be locked)", errno);
  completions_ = calls_.create_cq(context_, 2 * kDepth, nullptr, nullptr, 0);
  if (completions_ == nullptr) return failed("ibv_create_cq", errno);
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = attributes.recv_cq = completions_;
  attributes.cap = {.max_send_wr = kDepth,
                    .max_recv_wr = kDepth,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  queue_pair_ = calls_.create_qp(domain_, &attributes);
  return queue_pair_ == nullptr ? failed("ibv_create_qp", errno) : Status();
}

Status VerbsWay::open(const Rail& rail, const NicPort& port, Peer* own) {
  PARALLAX_RETURN_IF_ERROR(open_device(rail.nic));
  PARALLAX_RETURN_IF_ERROR(make_queue_pair());
  port_ = static_cast<uint8_t>(rail.port);
  is_global_ = port.link_layer == "ethernet";
  const NicGid* chosen = chosen_gid(port);
  gid_index_ = static_cast<uint8_t>(chosen == nullptr ? 0 : chosen->index);
  ibv_gid gid = {};
  if (const int error = calls_.query_gid(context_, port_, gid_index_, &gid); error != 0) {
    return failed("ibv_query_gid", error < 0 ? errno : error);
  }
  std::random_device source;
  *own = {.queue_pair = queue_pair_->qp_num,
          .first_packet = source() & 0xffffff,
          .lid = port.lid,
          .mtu_bytes = port.mtu_bytes,
          .key = region_->rkey,
          .address = reinterpret_cast<uint64_t>(memory_.data())};
  std::memcpy(own->gid.data(), gid.raw, own->gid.size());
  description_ = "RC on " + rail_name(rail) +
                 (chosen == nullptr ? "" : ", GID " + std::to_string(chosen->index));
  return {};
}

// The states of a queue pair, in their order: INIT, ready to receive, ready to send.
Status VerbsWay::to_ready(const Peer& own, const Peer& peer) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port_;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  int error =
      calls_.modify_qp(queue_pair_, &attributes,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return failed("ibv_modify_qp to INIT", error);
  attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = mtu_of(std::min(own.mtu_bytes, peer.mtu_bytes));
  attributes.dest_qp_num = peer.queue_pair;
  attributes.rq_psn = peer.first_packet;
  attributes.max_dest_rd_atomic = kReadsDepth;
  attributes.min_rnr_timer = 1;
  attributes.ah_attr.dlid = static_cast<uint16_t>(peer.lid);
  attributes.ah_attr.port_num = port_;
  attributes.ah_attr.is_global = is_global_ ? 1 : 0;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  attributes.ah_attr.grh.sgid_index = gid_index_;
  attributes.ah_attr.grh.hop_limit = kHops;
  error = calls_.modify_qp(queue_pair_, &attributes,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return failed("ibv_modify_qp to RTR", error);
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 17;  // 4.096 us * 2^17: half a second for an answer
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;  // for ever: the receiver's program may be late
  attributes.sq_psn = own.first_packet;
  attributes.max_rd_atomic = kReadsDepth;
  error = calls_.modify_qp(queue_pair_, &attributes,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return error == 0 ? Status() : failed("ibv_modify_qp to RTS", error);
}

Status VerbsWay::connect(const Peer& own, const Peer& peer) {
  peer_ = peer;
  PARALLAX_RETURN_IF_ERROR(to_ready(own, peer));
  for (uint32_t i = 0; i < kDepth; ++i) PARALLAX_RETURN_IF_ERROR(post_receive());
  return {};
}

Status VerbsWay::post_receive() {
  ibv_sge piece = {.addr = reinterpret_cast<uint64_t>(memory_.data() + half_bytes_),
                   .length = static_cast<uint32_t>(half_bytes_),
                   .lkey = region_->lkey};
  ibv_recv_wr request = {};
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(queue_pair_, &request, &bad);
  return error == 0 ? Status() : failed("ibv_post_recv", error);
}

// A read goes the other way: from the peer's first half into the second half here.
Status VerbsWay::post(ibv_wr_opcode code, size_t bytes) {
  if (posted_ - sent_ == kDepth) PARALLAX_RETURN_IF_ERROR(wait_for(&sent_, sent_ + 1));
  const bool reads = code == IBV_WR_RDMA_READ;
  ibv_sge piece = {.addr = reinterpret_cast<uint64_t>(memory_.data() + (reads ? half_bytes_ : 0)),
                   .length = static_cast<uint32_t>(bytes),
                   .lkey = region_->lkey};
  ibv_send_wr request = {};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = code;
  request.wr.rdma.remote_addr = peer_.address + (reads ? 0 : half_bytes_);
  request.wr.rdma.rkey = peer_.key;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(queue_pair_, &request, &bad); error != 0) {
    return failed("ibv_post_send", error);
  }
  ++posted_;
  return {};
}

// Until *count, which completions move, has come to `least`.
Status VerbsWay::wait_for(uint32_t* count, uint32_t least) {
  const int64_t until_ns = clock_.now_ns() + timeout_ms_ * kNanosecondsPerMillisecond;
  for (uint32_t idle = 0; static_cast<int32_t>(*count - least) < 0;) {
    ibv_wc done = {};
    const int found = ibv_poll_cq(completions_, 1, &done);
    if (found < 0) return failed("ibv_poll_cq", EIO);
    if (found == 0) {
      if (++idle % 1024 != 0) continue;
      sched_yield();
      if (clock_.now_ns() > until_ns)
        return timed_out("verbs: the other rank did not answer in time");
      continue;
    }
    idle = 0;
    if (done.status != IBV_WC_SUCCESS) {
      return io_error("verbs: a request failed with status " + std::to_string(done.status) +
                      " (of ibv_wc_status; 12: the peer does not answer, see rdma_gid and rdma_mtu "
                      "of parallax doctor)");
    }
    if (done.opcode == IBV_WC_RECV || done.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      ++received_;
      PARALLAX_RETURN_IF_ERROR(post_receive());
    } else {
      ++sent_;
    }
  }
  return {};
}

using VerbsClock = std::chrono::steady_clock;

double us_per(VerbsClock::time_point since, uint32_t count) {
  return std::chrono::duration<double, std::micro>(VerbsClock::now() - since).count() / count;
}

Status VerbsWay::read_all(const Transfer& transfer, uint32_t depth, double* us) {
  if (!transfer.leads) {
    // The peer reads while this rank does nothing, and then says that it has.
    std::memcpy(memory_.data(), transfer.out.data(), transfer.out.size());
    PARALLAX_RETURN_IF_ERROR(post(IBV_WR_SEND, 1));
    return wait_for(&received_, received_ + 1);
  }
  PARALLAX_RETURN_IF_ERROR(wait_for(&received_, received_ + 1));
  const auto start = VerbsClock::now();
  for (uint32_t i = 0; i < transfer.count; ++i) {
    if (posted_ - sent_ >= depth) PARALLAX_RETURN_IF_ERROR(wait_for(&sent_, posted_ - depth + 1));
    PARALLAX_RETURN_IF_ERROR(post(IBV_WR_RDMA_READ, transfer.in.size()));
  }
  PARALLAX_RETURN_IF_ERROR(wait_for(&sent_, posted_));
  *us = us_per(start, transfer.count);
  std::memcpy(transfer.in.data(), memory_.data() + half_bytes_, transfer.in.size());
  PARALLAX_RETURN_IF_ERROR(post(IBV_WR_SEND, 1));
  return wait_for(&sent_, posted_);
}

Status VerbsWay::ping_pong(const Transfer& transfer, double* us) {
  if (operation_ == VerbsOperation::kRead) return read_all(transfer, 1, us);
  std::memcpy(memory_.data(), transfer.out.data(), transfer.out.size());
  const uint32_t before = received_;
  const auto start = VerbsClock::now();
  for (uint32_t i = 0; i < transfer.count; ++i) {
    if (transfer.leads) PARALLAX_RETURN_IF_ERROR(post(last_code(), transfer.out.size()));
    PARALLAX_RETURN_IF_ERROR(wait_for(&received_, before + i + 1));
    if (!transfer.leads) PARALLAX_RETURN_IF_ERROR(post(last_code(), transfer.out.size()));
  }
  *us = us_per(start, 2 * transfer.count);
  std::memcpy(transfer.in.data(), memory_.data() + half_bytes_, transfer.in.size());
  return wait_for(&sent_, posted_);
}

// Writes pass the peer's processor by; the last of them tells it.
Status VerbsWay::stream(const Transfer& transfer, double* us) {
  if (operation_ == VerbsOperation::kRead) return read_all(transfer, kReadsDepth, us);
  const bool sends = operation_ == VerbsOperation::kSend;
  if (!transfer.leads) {
    PARALLAX_RETURN_IF_ERROR(wait_for(&received_, received_ + (sends ? transfer.count : 1)));
    std::memcpy(transfer.in.data(), memory_.data() + half_bytes_, transfer.in.size());
    PARALLAX_RETURN_IF_ERROR(post(IBV_WR_SEND, 1));
    return wait_for(&sent_, posted_);
  }
  std::memcpy(memory_.data(), transfer.out.data(), transfer.out.size());
  const uint32_t before = received_;
  const auto start = VerbsClock::now();
  for (uint32_t i = 0; i + 1 < transfer.count; ++i) {
    PARALLAX_RETURN_IF_ERROR(post(sends ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, transfer.out.size()));
  }
  PARALLAX_RETURN_IF_ERROR(post(last_code(), transfer.out.size()));
  PARALLAX_RETURN_IF_ERROR(wait_for(&received_, before + 1));
  *us = us_per(start, transfer.count);
  return wait_for(&sent_, posted_);
}

Status open_way(const WireContext& context, VerbsOperation operation, Peer* own,
                std::unique_ptr<VerbsWay>* way) {
  Topology topology;
  (void)discover({}, &topology).ok();
  const std::string device = context.settings.value("net_device").text;
  const bool is_named =
      std::any_of(topology.nics.begin(), topology.nics.end(),
                  [&](const Nic& nic) { return device.substr(0, device.find(':')) == nic.name; });
  std::vector<RankRails> rails;
  PARALLAX_RETURN_IF_ERROR(plan_rails(
      topology,
      {.local_ranks = 1, .cuda = cuda_variables(), .device = is_named ? device : std::string()},
      &rails));
  const Rail& rail = rails[0].rails[0];
  std::string why;
  const VerbsLibrary* verbs = load_verbs(&why);
  if (verbs == nullptr) return unsupported("libibverbs cannot be loaded: " + why);
  VerbsCalls calls;
  PARALLAX_RETURN_IF_ERROR(load_calls(*verbs, &calls));
  for (const Nic& nic : topology.nics) {
    for (const NicPort& port : nic.ports) {
      if (nic.name != rail.nic || port.number != rail.port) continue;
      *way = std::make_unique<VerbsWay>(*verbs, calls, operation, context);
      return (*way)->open(rail, port, own);
    }
  }
  return internal("the port that was chosen is gone");
}

}  // namespace

Status make_verbs_way(const WireContext& context, VerbsOperation operation,
                      std::unique_ptr<RawWay>* way) {
  std::unique_ptr<VerbsWay> made;
  Peer own;
  const Status opened = open_way(context, operation, &own, &made);
  std::string other;
  PARALLAX_RETURN_IF_ERROR(
      exchange_cards(context.group, opened.ok() ? card_of(own) : std::string(), &other));
  PARALLAX_RETURN_IF_ERROR(opened);
  if (other.empty()) return unsupported("the other rank has no RDMA device that works");
  PARALLAX_RETURN_IF_ERROR(made->connect(own, peer_of(other)));
  *way = std::move(made);
  return {};
}

}  // namespace parallax::tool::bench
