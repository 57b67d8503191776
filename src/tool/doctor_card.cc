// SPDX-License-Identifier: Apache-2.0
// A card as JSON, short enough for one round of the rendezvous. See doctor_card.h.
#include "tool/doctor_card.h"

#include <nlohmann/json.hpp>

namespace parallax::tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kReasonMax = 500;  // characters of one on a card

Json list_of(const RdmaCard& card) {
  return {card.port,        card.why.substr(0, kReasonMax),
          card.link_layer,  card.gid,
          card.rate_mbit_s, card.mtu_bytes};
}

}  // namespace

std::string encode(const Card& card) {
  Json endpoints = Json::array();
  for (const TcpEndpoint& each : card.endpoints) endpoints.push_back({each.address, each.port});
  const Json all = {{"version", card.version},    {"git", card.git},
                    {"host", card.host},          {"machine", card.machine},
                    {"shm", card.shm_address},    {"endpoints", endpoints},
                    {"mtus", card.mtus_bytes},    {"ports", card.other_ports},
                    {"rdma", list_of(card.rdma)}, {"rdma_address", card.rdma_address},
                    {"secret", card.secret},      {"failed", card.failed},
                    {"rails", card.rails},        {"mark", card.secret_mark}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status decode(const std::string& blob, Card* card) {
  try {
    const Json all = Json::parse(blob);
    card->version = all.at("version");
    card->git = all.at("git");
    card->host = all.at("host");
    card->machine = all.at("machine");
    card->shm_address = all.at("shm");
    card->secret = all.at("secret");
    card->failed = all.at("failed");
    card->mtus_bytes = all.at("mtus").get<std::vector<uint32_t>>();
    card->other_ports = all.at("ports").get<std::vector<uint16_t>>();
    card->rails = all.value("rails", 0u);
    card->secret_mark = all.value("mark", "");
    card->rdma_address = all.value("rdma_address", "");  // a version before has none
    const Json& rdma = all.at("rdma");
    card->rdma = {.port = rdma.at(0),
                  .why = rdma.at(1),
                  .link_layer = rdma.at(2),
                  .gid = rdma.at(3),
                  .rate_mbit_s = rdma.at(4),
                  .mtu_bytes = rdma.at(5)};
    card->endpoints.clear();
    for (const Json& each : all.at("endpoints")) {
      card->endpoints.push_back({.address = each.at(0), .port = each.at(1)});
    }
    return {};
  } catch (const Json::exception& error) {
    return invalid(std::string("a rank brought something else than the doctor's card: ") +
                   error.what());
  }
}

}  // namespace parallax::tool
