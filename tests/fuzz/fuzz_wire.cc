// SPDX-License-Identifier: Apache-2.0
// Fuzz: messages of a peer that sends anything, to the engine of rank 0 in a job of three ranks on
// two hosts. The engine must not crash, and what it cannot use must end the job with a sentence.
//
// The input: one byte of options, then messages of {length: 2 bytes, sections}. Header and sequence
// are filled in, since an engine drops what has them wrong.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "support/engine_world.h"
#include "transport/wire.h"

namespace parallax::testkit {
namespace {

// Small messages: what an engine lays out for its peers is by their size, and dear to clear.
constexpr size_t kMessageBytes = kMessageBytesMin;

class Nobody final : public Receiver {
 public:
  void on_message(uint32_t, std::span<const std::byte>) override {}
  void on_sent(uint64_t) override {}
  void on_lost(uint32_t, Loss, std::string_view) override {}
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

// A step with everything in it.
void play_step(Engine& engine) {
  static const std::vector<int64_t> ids = {1, 3, 19};
  static const std::vector<int64_t> held_ids = {0, 8};
  static std::vector<float> values(600, 1);
  uint64_t step = 0;
  Request* request = nullptr;
  if (!engine.step_begin(&step).ok()) std::abort();
  const parallax_slice_t rows = rows_slice(0, ids, values.data());
  const parallax_slice_t pushed[] = {rows, dense_slice(1, values.data())};
  const parallax_slice_t reduced[] = {rows_slice(2, held_ids, values.data()),
                                      dense_slice(3, values.data())};
  if (!engine.pull(step, {&rows, 1}, &request).ok() || !engine.push(step, pushed, &request).ok() ||
      !engine.reduce(step, reduced, &request).ok() || !engine.step_end(step, {}, &request).ok() ||
      !engine.barrier(&request).ok()) {
    std::abort();
  }
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

// The world that the first byte of an input chooses.
EngineWorld make_world(uint8_t bits) {
  const parallax_plan_mode_t modes[] = {PARALLAX_PLAN_HYBRID, PARALLAX_PLAN_PS, PARALLAX_PLAN_AR,
                                        PARALLAX_PLAN_AUTO};
  return EngineWorld(
      {.hosts = (bits & 1) != 0 ? std::vector<uint32_t>{0, 0, 1} : std::vector<uint32_t>{0, 1, 1},
       .plan_mode = modes[bits >> 1 & 3],
       .deterministic = (bits & 8) != 0,
       .message_bytes_max = kMessageBytes});
}
uint32_t stranger_of(uint8_t bits) { return (bits & 32) != 0 ? 1 : 2; }

void run(std::span<const uint8_t> input) {
  if (input.empty()) return;
  const uint8_t bits = input[0];
  input = input.subspan(1);
  EngineWorld world = make_world(bits);
  if (!world.commit(variables())[0].ok()) std::abort();
  if ((bits & 64) != 0) {
    play_step(world.engine(0));
  } else {
    begin_step(world.engine(0), (bits & 16) != 0);
  }
  world.settle();
  Transport& stranger = world.take_over(stranger_of(bits));
  Nobody nobody;
  for (uint32_t sequence = 1000; input.size() >= 2 && world.engine(0).failure().ok(); ++sequence) {
    const size_t length =
        std::min<size_t>({static_cast<size_t>(input[0] | input[1] << 8), input.size() - 2,
                          kMessageBytes - sizeof(MessageHeader)});
    const std::vector<std::byte> message = message_of(input.subspan(2, length), sequence);
    input = input.subspan(2 + length);
    const Segment segment{message.data(), message.size()};
    if (stranger.writable(0) && !stranger.send(0, {&segment, 1}, 0).ok()) std::abort();
    stranger.poll(nobody);
    for (int i = 0; i < 4; ++i) world.engine(0).run();
  }
  if (!world.engine(0).failure().ok() && world.engine(0).failure().message().empty()) std::abort();
}

// Writes an input for each world: what the stranger's engine sends rank 0 in a step in earnest.
void record(const std::string& folder) {
  for (int bits = 0; bits < 128; ++bits) {
    const auto choice = static_cast<uint8_t>(bits);
    std::vector<uint8_t> input = {choice};
    EngineWorld world = make_world(choice);
    if (!world.commit(variables())[0].ok()) std::abort();
    world.transport(stranger_of(choice)).tap([&](uint32_t to, std::span<const Segment> segments) {
      if (to != 0) return;
      std::vector<uint8_t> message;
      for (const Segment& segment : segments) {
        const auto* bytes = static_cast<const uint8_t*>(segment.data);
        message.insert(message.end(), bytes, bytes + segment.bytes);
      }
      const size_t sections = message.size() - sizeof(MessageHeader);
      input.push_back(static_cast<uint8_t>(sections & 0xff));
      input.push_back(static_cast<uint8_t>(sections >> 8));
      input.insert(input.end(), message.begin() + sizeof(MessageHeader), message.end());
    });
    for (uint32_t rank = 0; rank < world.size(); ++rank) play_step(world.engine(rank));
    world.settle();
    std::ofstream(folder + "/step_" + std::to_string(bits), std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()),
               static_cast<std::streamsize>(input.size()));
  }
}

}  // namespace
}  // namespace parallax::testkit

// PARALLAX_TEST_RECORD=FOLDER: write the first corpus there, and fuzz nothing. Made so:
// tests/fuzz/corpus/wire/step_*.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("PARALLAX_TEST_RECORD");
  if (folder == nullptr) return 0;
  parallax::testkit::record(folder);
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  parallax::testkit::run({data, bytes});
  return 0;
}
