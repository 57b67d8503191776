// SPDX-License-Identifier: Apache-2.0
// RawWay: one way by which bytes go between this rank and its one peer without the library's
// engine: sockets, UCX, verbs. Both ranks make the same calls. One thread; calls wait for the peer,
// up to the deadline of the options they were made with.
#ifndef PARALLAX_TOOL_BENCH_WIRE_WAY_H_
#define PARALLAX_TOOL_BENCH_WIRE_WAY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/settings.h"
#include "base/status.h"
#include "tool/bench/job.h"

namespace parallax::tool::bench {

// One timing. The leader, rank 0, says when it begins and keeps the time.
struct Transfer {
  bool leads = false;
  uint32_t count = 0;  // messages; of a ping-pong, each way
  std::span<const std::byte> out;
  std::span<std::byte> in;  // as long as `out`
};

class RawWay {
 public:
  virtual ~RawWay() = default;

  // "10.0.0.1 to 10.0.0.2": for people.
  virtual std::string description() const = 0;

  // *us: of a message, one way: of half a round trip, or of verbs_read a whole read. On the leader.
  virtual Status ping_pong(const Transfer& transfer, double* us) = 0;

  // Message after message to the peer of the leader, until the last has arrived there; of
  // verbs_read to the leader. *us: of a message, on the leader.
  virtual Status stream(const Transfer& transfer, double* us) = 0;

  // Whose `in` holds a message after stream().
  virtual bool leader_receives() const { return false; }
};

// A way on which messages are sent and received in order.
class MessageWay : public RawWay {
 public:
  Status ping_pong(const Transfer& transfer, double* us) override;
  Status stream(const Transfer& transfer, double* us) override;

 protected:
  // Returns before it has arrived, maybe before `message` has been read: see flush.
  virtual Status send(std::span<const std::byte> message) = 0;
  virtual Status receive(std::span<std::byte> message) = 0;
  // Until what was sent may be overwritten.
  virtual Status flush() = 0;
};

struct WireContext {
  Group& group;
  const Settings& settings;
  bool one_machine = false;  // both ranks run in one kernel and network namespace
  size_t message_bytes_max = 0;
  int64_t timeout_ms = 0;
};

// Both ranks call each. Status: this rank's own trouble; the other finds its own.
Status make_tcp_way(const WireContext& context, std::unique_ptr<RawWay>* way);
Status make_ucx_way(const WireContext& context, std::unique_ptr<RawWay>* way);
enum class VerbsOperation : uint8_t { kSend, kWrite, kRead };
Status make_verbs_way(const WireContext& context, VerbsOperation operation,
                      std::unique_ptr<RawWay>* way);

// What each rank tells the other while a way is made; both call it, whatever has failed before.
inline constexpr size_t kWireCardBytes = 1024;
Status exchange_cards(Group& group, const std::string& own, std::string* other);

// Byte `at` of a checked message.
std::byte wire_pattern(uint32_t seed, size_t at);
void fill_pattern(uint32_t seed, std::span<std::byte> out);
uint64_t count_wrong(uint32_t seed, std::span<const std::byte> in);

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_WIRE_WAY_H_
