// SPDX-License-Identifier: Apache-2.0
// Opening, greeting, failing and closing links. See ucx_links.h.
#include "transport/ucx/ucx_links.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "transport/ucx/ucx_transport.h"
#include "transport/ucx/ucx_wire.h"

namespace parallax {

Status UcxLinks::listen() {
  for (uint32_t rail = 1; rail < workers_.count(); ++rail) {
    rails_[rail] = {this, rail};
    PARALLAX_RETURN_IF_ERROR(
        workers_.at(rail).on_active_message(kUcxRailId, on_greeting, &rails_[rail]));
  }
  return {};
}

Status UcxLinks::make(UcxPeer& peer, const std::string& address) const {
  std::vector<RailAddress> by_rail;
  const Status read = UcxWorkers::read_address(address, &by_rail);
  if (!read.ok()) {
    return invalid("the UCX address of rank " + std::to_string(peer.rank) + ": " + read.message());
  }
  peer.links.resize(std::min(by_rail.size(), workers_.count()));
  for (uint32_t rail = 0; rail < peer.links.size(); ++rail) {
    UcxLink& link = peer.links[rail];
    link.peer = &peer;
    link.rail = rail;
    link.address = std::move(by_rail[rail].address);
    link.device = std::move(by_rail[rail].device);
  }
  return {};
}

ucs_status_t UcxLinks::open(UcxLink& link) {
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(link.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_error;
  params.err_handler.arg = &link;
  const ucs_status_t status = ucp_ep_create(workers_.at(link.rail).get(), &params, &link.endpoint);
  if (status == UCS_OK) {
    ++opened_;
  } else {
    link.endpoint = nullptr;
  }
  return status;
}

// Of two ranks the lower one opens the first endpoint of a rail, so that requests to connect never
// cross; the other answers.
void UcxLinks::attend(UcxPeer& peer) {
  for (uint32_t rail = 1; rail < peer.links.size() && peer.first().wired(); ++rail) {
    UcxLink& link = peer.links[rail];
    if (link.broken) {
      close(link);
    } else if (link.endpoint == nullptr && (link.heard || rank_ < peer.rank)) {
      if (open(link) == UCS_OK) {
        greet(link);
      } else {
        link.broken = true;
      }
    }
  }
}

void UcxLinks::greet(UcxLink& link) {
  const ucp_request_param_t param = eager_param(on_greeted, &link);
  const UcxHeader& header = link.peer->header;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(link.endpoint, kUcxRailId, &header, sizeof header, nullptr, 0, &param);
  if (UCS_PTR_IS_ERR(request)) {
    fail(link, UCS_PTR_STATUS(request));
  } else if (request == nullptr) {
    link.said = true;
  }
}

ucs_status_t UcxLinks::on_greeting(void* rail, const void* header, size_t header_bytes, void*,
                                   size_t bytes, const ucp_am_recv_param_t*) noexcept {
  const auto& [self, number] = *static_cast<Rail*>(rail);
  UcxHeader copy;
  UcxPeer* peer = nullptr;
  if (header_bytes == sizeof copy && bytes == 0) {
    std::memcpy(&copy, header, sizeof copy);
    peer = self->transport_.peer_of(copy);
  }
  if (peer == nullptr || number >= peer->links.size()) {
    ++self->strangers_;
    return UCS_OK;
  }
  peer->links[number].heard = true;
  self->transport_.attend_later(*peer);  // an endpoint to open, or one that may be closed now
  return UCS_OK;
}

void UcxLinks::on_greeted(void* request, ucs_status_t status, void* link) noexcept {
  auto& greeted = *static_cast<UcxLink*>(link);
  UcxTransport& transport = *greeted.peer->transport;
  if (request != nullptr) ucp_request_free(request);
  if (status != UCS_OK) {
    transport.links().fail(greeted, status);
    return;
  }
  greeted.said = true;
  transport.attend_later(*greeted.peer);  // it may be to be closed
}

void UcxLinks::on_error(void* link, ucp_ep_h, ucs_status_t status) noexcept {
  auto& failed = *static_cast<UcxLink*>(link);
  failed.peer->transport->links().fail(failed, status);
}

void UcxLinks::fail(UcxLink& link, ucs_status_t status) {
  link.broken = true;
  UcxPeer& peer = *link.peer;
  if (link.rail > 0 && link.pieces_under_way == 0) {
    transport_.attend_later(peer);
    return;
  }
  if (peer.phase == UcxPeer::Phase::kConnected) peer.failed_rail = link.rail;
  transport_.fail(peer, status);
}

void UcxLinks::close(UcxPeer& peer) {
  for (UcxLink& link : peer.links) close(link);
  if (peer.first().endpoint == nullptr) peer.phase = UcxPeer::Phase::kGone;
}

void UcxLinks::close(UcxLink& link) {
  if (link.endpoint == nullptr || !(link.wired() || link.broken)) return;
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.cb.send = on_closed;
  param.user_data = this;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(std::exchange(link.endpoint, nullptr), &param);
  if (UCS_PTR_IS_PTR(request)) ++closing_count_;
}

void UcxLinks::on_closed(void* request, ucs_status_t, void* self) noexcept {
  if (request != nullptr) ucp_request_free(request);
  --static_cast<UcxLinks*>(self)->closing_count_;
}

// UCX may be exchanging addresses for it, on its own side alone where the peer began.
bool UcxLinks::in_wire_up(const UcxLink& link) const {
  if (link.wired() || link.broken) return false;
  if (link.endpoint != nullptr) return true;
  return link.rail > 0 && link.peer->rank < rank_ && link.peer->first().wired() && !link.heard;
}

bool UcxLinks::any_in_wire_up() const {
  return std::any_of(transport_.peers().begin(), transport_.peers().end(), [this](auto& peer) {
    return peer != nullptr && std::any_of(peer->links.begin(), peer->links.end(),
                                          [this](auto& link) { return in_wire_up(link); });
  });
}

bool UcxLinks::rails_settled(std::span<const uint32_t> ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [this](uint32_t rank) {
    const auto& links = transport_.peers()[rank]->links;
    return std::all_of(links.begin(), links.end(),
                       [](const UcxLink& link) { return link.wired() || link.broken; });
  });
}

const UcxLanes& UcxLinks::lanes_of(UcxLink& link) {
  if (link.lanes) return *link.lanes;
  char* text = nullptr;
  size_t bytes = 0;
  if (std::FILE* const file = open_memstream(&text, &bytes); file != nullptr) {
    ucp_ep_print_info(link.endpoint, file);
    std::fclose(file);
  }
  link.lanes = read_lanes(text == nullptr ? "" : text);
  std::free(text);
  return *link.lanes;
}

NetworkWay UcxLinks::way_to(UcxPeer& peer) const {
  if (!peer.first().is_open()) return {};
  const UcxLanes& lanes = lanes_of(peer.first());
  if (lanes.carriers.empty()) return {};  // a UCX that says it in another way
  const auto name = [](UcxLink& link) {
    return lanes_of(link).carriers + (link.device.empty() ? "" : " to " + link.device);
  };
  NetworkWay way = {.text = name(peer.first())};
  const bool wants_writes = transport_.writes() != nullptr && workers_.first().may_take_rc();
  if (wants_writes && !lanes.writes_by_device) {
    way.lacks = std::string(lanes.reliable ? "UCX does not tell that it writes there"
                                           : "UCX took neither rc nor dc") +
                ", and so the device writes nothing to the peer's memory";
  }
  std::string more;
  for (uint32_t rail = 1; rail < peer.links.size(); ++rail) {
    UcxLink& link = peer.links[rail];
    if (link.is_open()) {
      more += (more.empty() ? "" : " and ") + name(link);
    } else {
      way.lacks += (way.lacks.empty() ? "" : "; ") + workers_.device(rail) +
                   " does not reach the peer's " + link.device;
    }
  }
  if (!more.empty()) way.text += ", pieces by " + more + " too";
  return way;
}

// UCX's word is not always the plain one: a killed process may be an "Endpoint timeout".
std::string UcxLinks::why_lost(const UcxPeer& peer) const {
  const std::string over =
      workers_.count() > 1 ? ", over " + workers_.device(peer.failed_rail) : "";
  return std::string("its connection broke (UCX: ") + ucs_status_string(peer.failure) + over + ")";
}

void UcxLinks::count_into(NetworkStats* stats) const {
  stats->endpoints_opened += opened_;
  stats->strangers_dropped += strangers_;
}

}  // namespace parallax
