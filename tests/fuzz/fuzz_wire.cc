// SPDX-License-Identifier: Apache-2.0
// Fuzz: messages of a peer that sends anything, to the engine of rank 0 in a job of three ranks on
// two hosts. The engine must not crash, and what it cannot use must end the job with a sentence.
//
// The input: one byte of options, then messages of {length: 2 bytes, sections}. Header and sequence
// are filled in, since an engine drops what has them wrong.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "support/engine_world.h"
#include "transport/wire.h"

namespace parallax::testkit {
namespace {

class Nobody final : public Receiver {
 public:
  void on_message(uint32_t, std::span<const std::byte>) override {}
  void on_sent(uint64_t) override {}
  void on_lost(uint32_t, std::string_view) override {}
};

std::vector<parallax_variable_t> variables() {
  return {sparse_variable("embedding", 20, 2, 6, PARALLAX_RULE_ADAGRAD),
          dense_variable("dense", 10, 60, PARALLAX_RULE_SGD), sparse_variable("held_rows", 9, 1, 4),
          dense_variable("held", 300, 1)};
}

// Rank 0 is in the midst of a step: a pull is under way, and perhaps its end.
void begin_step(Engine& engine, bool end) {
  static const std::vector<int64_t> ids = {1, 2, 3};
  static std::vector<float> out(6);
  uint64_t step = 0;
  if (!engine.step_begin(&step).ok()) std::abort();
  const parallax_slice_t slice = rows_slice(0, ids, out.data());
  Request* request = nullptr;
  if (!engine.pull(step, {&slice, 1}, &request).ok()) std::abort();
  if (end && !engine.step_end(step, {}, &request).ok()) std::abort();
}

// Sections as they come, under a header that fits.
std::vector<std::byte> message_of(std::span<const uint8_t> sections, uint32_t sequence) {
  MessageHeader header{kWireMagic, 1, sequence, 0};
  for (size_t at = 0; at + sizeof(SectionHeader) <= sections.size();) {
    SectionHeader section;
    std::memcpy(&section, &sections[at], sizeof section);
    ++header.section_count;
    at += sizeof section + section.payload_bytes;
  }
  std::vector<std::byte> message(sizeof header + sections.size());
  std::memcpy(message.data(), &header, sizeof header);
  if (!sections.empty()) std::memcpy(&message[sizeof header], sections.data(), sections.size());
  return message;
}

void run(std::span<const uint8_t> input) {
  if (input.empty()) return;
  const uint8_t bits = input[0];
  input = input.subspan(1);
  const parallax_plan_mode_t modes[] = {PARALLAX_PLAN_HYBRID, PARALLAX_PLAN_PS, PARALLAX_PLAN_AR,
                                        PARALLAX_PLAN_AUTO};
  EngineWorld world(
      {.hosts = (bits & 1) != 0 ? std::vector<uint32_t>{0, 0, 1} : std::vector<uint32_t>{0, 1, 1},
       .plan_mode = modes[bits >> 1 & 3],
       .deterministic = (bits & 8) != 0});
  if (!world.commit(variables())[0].ok()) std::abort();
  begin_step(world.engine(0), (bits & 16) != 0);
  world.settle();
  Transport& stranger = world.take_over((bits & 32) != 0 ? 1 : 2);
  Nobody nobody;
  for (uint32_t sequence = 1000; input.size() >= 2 && world.engine(0).failure().ok(); ++sequence) {
    const size_t length =
        std::min<size_t>(input[0] | input[1] << 8, std::min<size_t>(input.size() - 2, 16384));
    const std::vector<std::byte> message = message_of(input.subspan(2, length), sequence);
    input = input.subspan(2 + length);
    const Segment segment{message.data(), message.size()};
    if (stranger.writable(0) && !stranger.send(0, {&segment, 1}, 0).ok()) std::abort();
    stranger.poll(nobody);
    for (int i = 0; i < 4; ++i) world.engine(0).run();
  }
  if (!world.engine(0).failure().ok() && world.engine(0).failure().message().empty()) std::abort();
}

}  // namespace
}  // namespace parallax::testkit

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  parallax::testkit::run({data, bytes});
  return 0;
}
