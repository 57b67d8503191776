// SPDX-License-Identifier: Apache-2.0
// Fuzz: bytes of strangers at either side of the tcp rendezvous, frames of ranks that know the key,
// and what users write about it. Without the key nobody is believed, whatever the bytes; what is
// read is what would be written.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "rendezvous/frame.h"
#include "rendezvous/handshake.h"
#include "rendezvous/launcher.h"
#include "rendezvous/member_round.h"
#include "rendezvous/roster.h"
#include "rendezvous/roster_feed.h"
#include "rendezvous/roster_frames.h"
#include "rendezvous/tcp_address.h"
#include "rendezvous/unique_id.h"

namespace {

using parallax::Handshake;

parallax::Key key_of(const char* name) { return parallax::derive_key(name, "fuzz"); }

parallax::Introduction introduction(uint32_t rank) {
  parallax::Introduction intro;
  intro.version = 100;
  intro.rank = rank;
  intro.host = "h";
  intro.secret = true;
  intro.world = 4;
  intro.lease_ms = 5000;
  intro.nonce = std::string(parallax::kNonceBytes, static_cast<char>('0' + rank));
  return intro;
}

void check_failure(const Handshake& side) {
  if (side.phase() == Handshake::Phase::kFailed && side.status().message().empty()) std::abort();
}

// A stranger speaks to rank 0, at once or byte by byte.
void speak_to_server(std::string bytes, bool slowly) {
  parallax::ServerHandshake server(introduction(0), key_of("secret"));
  std::string in, out;
  while (!bytes.empty()) {
    const size_t count = slowly ? 1 : bytes.size();
    in.append(bytes, 0, count);
    bytes.erase(0, count);
    if (server.advance(&in, &out) == Handshake::Phase::kProven) std::abort();
    if (server.phase() == Handshake::Phase::kFailed) break;
  }
  check_failure(server);
}

// A stranger answers a rank in place of rank 0.
void speak_to_client(std::string bytes) {
  parallax::ClientHandshake client(introduction(1), key_of("secret"));
  std::string out;
  client.start(&out);
  if (client.advance(&bytes, &out) == Handshake::Phase::kDone) std::abort();
  check_failure(client);
}

// The channel of a session that the bytes are not of.
void open_sealed(std::string_view bytes) {
  parallax::Channel channel(key_of("up"), key_of("down"));
  parallax::Frame frame;
  size_t used = 0;
  if (channel.open(bytes, &frame, &used) == parallax::Took::kFrame) std::abort();
}

void read_texts(std::string_view text) {
  parallax::TcpAddress tcp_address;
  if (parallax::parse_tcp_address(text, &tcp_address).ok()) {
    if (tcp_address.host.empty() || tcp_address.port == 0) std::abort();
    parallax::TcpAddress again;
    if (!parallax::parse_tcp_address(tcp_address.text(), &again).ok() ||
        again.host != tcp_address.host || again.port != tcp_address.port) {
      std::abort();
    }
  }
  if (parallax::first_of_node_list(text).size() > text.size()) std::abort();
  parallax::Status status;
  std::string_view rest = text;
  if (parallax::take_status(&rest, &status)) {
    std::string written;
    parallax::put_status(&written, status);
    if (written != text.substr(0, text.size() - rest.size())) std::abort();
  }
}

template <typename T>
void read_as(std::string_view body) {
  T read;
  if (parallax::decode(body, &read) && parallax::encode(read) != body) std::abort();
}

void read_frames(std::string_view body) {
  read_as<parallax::BlobPiece>(body);
  read_as<parallax::ParentAddress>(body);
  read_as<parallax::CompleteRound>(body);
  read_as<parallax::FetchRequest>(body);
}

// What rank 0 and a parent send to a rank, each frame a kind, a length and that many bytes: the
// round never has more blobs than there are ranks.
void speak_to_member(std::string_view bytes) {
  constexpr uint32_t kWorld = 4;
  parallax::MemberRound round(kWorld);
  round.begin("mine");
  (void)round.bring();
  while (bytes.size() >= 2) {
    const auto kind = static_cast<unsigned char>(bytes[0]) % 3;
    const std::string_view body = bytes.substr(2, static_cast<unsigned char>(bytes[1]));
    bytes.remove_prefix(2 + body.size());
    const bool taken = kind == 0   ? round.take_blobs(body)
                       : kind == 1 ? round.take_complete(body)
                                   : round.take_answer(body);
    if (!taken) return;
    (void)round.check();
    if (!round.met()) continue;
    if (round.finish().size() != kWorld) std::abort();
    round.begin("mine");
    (void)round.bring();
  }
}

// What a member asks of rank 0 when a round is complete: only what there is, is sent.
void fetch(std::string_view body) {
  const parallax::RendezvousOptions options = {.rank = 0, .world = 12, .host = "h"};
  parallax::Roster roster(options, "here");
  parallax::RosterFeed feed(9);
  parallax::Channel channel(key_of("up"), key_of("down"));
  std::string out;
  for (uint32_t rank = 0; rank < options.world; ++rank) (void)roster.bring(rank, 0, "blob");
  feed.put_rounds(roster, &channel, &out);
  parallax::FetchRequest request;
  if (!parallax::decode(body, &request) || !feed.fetch(roster, request)) return;
  if (request.round != 0) std::abort();
  feed.put_rounds(roster, &channel, &out);
}

void read_id(std::string_view bytes) {
  parallax_unique_id_t id = {};
  std::memcpy(id.bytes, bytes.data(), std::min(bytes.size(), sizeof id.bytes));
  parallax::UniqueId read;
  if (!parallax::decode_unique_id(id, &read).ok()) return;
  const parallax_unique_id_t again = parallax::encode_unique_id(read);
  if (std::memcmp(&again, &id, sizeof id) != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  switch (data[0] % 9) {
    case 0:
      speak_to_server(rest, false);
      break;
    case 1:
      speak_to_server(rest, true);
      break;
    case 2:
      speak_to_client(rest);
      break;
    case 3:
      open_sealed(rest);
      break;
    case 4:
      read_texts(rest);
      break;
    case 6:
      read_frames(rest);
      break;
    case 7:
      speak_to_member(rest);
      break;
    case 8:
      fetch(rest);
      break;
    default:
      read_id(rest);
      break;
  }
  return 0;
}
