// SPDX-License-Identifier: Apache-2.0
// Fuzz: one engine of a job of three ranks (wire_job.h), whose two peers send anything and take
// what they like. The engine must not crash, nor fail a check of its own, and what it cannot use
// must end the job with a sentence.
//
// What honest peers would send is recorded once for each job, through steps, evaluations, moves of
// variables and the close; an input says, message by message, what of it comes, comes changed,
// comes again or stays out, what else comes, and whose messages are left lying. So a run is one
// engine, without threads, descriptors or a clock, and goes deep in few bytes.
//
// The input: one byte that chooses the job, then operations (Player::operate).
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/host_rows.h"
#include "fuzz/wire_job.h"
#include "message/wire.h"
#include "support/engine_world.h"

namespace parallax::testkit {
namespace {

// Small messages: more of them, and cheap to lay out.
constexpr size_t kMessageBytes = kMessageBytesMin;

// ---- what honest peers send the victim

struct Message {
  uint32_t from = 0;
  std::vector<std::byte> bytes;
};
using Recording = std::array<std::vector<Message>, kPhases>;

Recording record(const Choice& choice) {
  Recording recording;
  EngineWorld world({.hosts = choice.hosts(),
                     .plan_mode = choice.plan_mode(),
                     .plan_after_steps = 1,
                     .deterministic = choice.deterministic(),
                     .message_bytes_max = kMessageBytes,
                     .adjust = [&](uint32_t, EngineOptions* options) {
                       options->marker_hosts_max = choice.marker_hosts_max();
                     }});
  uint32_t phase = 0;
  std::vector<Calls> calls;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    calls.emplace_back(world.engine(rank));
    world.transport(rank).tap([&, rank](uint32_t to, std::span<const Segment> segments) {
      if (to != choice.victim()) return;
      Message& message = recording[phase].emplace_back();
      message.from = rank;
      for (const Segment& segment : segments) {
        const auto* bytes = static_cast<const std::byte*>(segment.data);
        message.bytes.insert(message.bytes.end(), bytes, bytes + segment.bytes);
      }
    });
  }
  for (; phase < kPhases; ++phase) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      if (!calls[rank].start(phase)) std::abort();
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      if (!world.run_until_done(calls[rank].requests)) std::abort();
      for (Request* request : calls[rank].requests) {
        if (!request->status.ok() || !world.engine(rank).release(request).ok()) std::abort();
      }
    }
    world.settle();
  }
  return recording;
}

const Recording& recording_of(const Choice& choice) {
  static std::map<uint8_t, Recording> made;
  const auto found = made.find(choice.bits);
  if (found != made.end()) return found->second;
  return made.emplace(choice.bits, record(choice)).first->second;
}

// ---- the engine's side

// A transport whose peers are the input: what is sent to them is gone, or, where they take nothing,
// refused.
// Of a peer of the same host one buffer, in which is what the input says, as numbers of 32 bits; a
// word behind it, which the sanitizers watch.
class PeersBuffer final : public PeerMemory {
 public:
  static constexpr uint64_t kNumber = 1;

  void fill(std::span<const std::byte> numbers) {
    for (size_t i = 0; i < numbers.size() && i < numbers_.size(); ++i) {
      numbers_[i] = static_cast<uint32_t>(numbers[i]);
      if (numbers_[i] == UINT8_MAX) numbers_[i] = UINT32_MAX;
    }
  }
  bool share(const SharedMemory& memory) override {
    own_ = memory.base;
    return true;
  }
  void unshare(const void*) override {}
  // Only of what is shared as it is made: nothing is lent.
  BufferPlace place_of(const void* data, uint64_t) const override {
    return {.buffer = data == own_ ? kNumber : 0};
  }
  bool mapped_by(uint32_t, uint64_t) const override { return true; }
  const std::byte* find(uint32_t, const BufferPlace& place, uint64_t bytes) override {
    const uint64_t all = numbers_.size() * sizeof(uint32_t);
    if (place.buffer != kNumber || place.offset > all || bytes > all - place.offset) return nullptr;
    return reinterpret_cast<const std::byte*>(numbers_.data()) + place.offset;
  }
  void retract(uint32_t) override {}
  bool was_meant(uint32_t) const override { return true; }
  PeerMemoryCounts counts() const override { return {}; }

 private:
  std::vector<uint32_t> numbers_ = std::vector<uint32_t>(200);
  const std::byte* own_ = nullptr;
};

class Wires final : public Transport {
 public:
  std::string_view name() const override { return "fuzz"; }
  size_t message_bytes_max() const override { return kMessageBytes; }
  bool writable(uint32_t to) const override { return !held[to] && !gone_[to]; }
  Status send(uint32_t, std::span<const Segment>, uint64_t cookie) override {
    sent_.push_back(cookie);
    return {};
  }
  bool poll(Receiver& receiver) override {
    const bool moved = !sent_.empty() || !arrived_.empty();
    for (const uint64_t cookie : std::exchange(sent_, {})) receiver.on_sent(cookie);
    for (const Message& message : std::exchange(arrived_, {})) {
      if (gone_[message.from]) continue;
      receiver.on_message(message.from, std::span(message.bytes).subspan(1));
    }
    return moved;
  }
  int wait_fd() const override { return -1; }
  bool arm() override { return true; }
  void forget(uint32_t rank) override { gone_[rank] = true; }
  PeerMemory* peer_memory() override { return &buffer; }

  // A message of sections, which a header goes before: an engine drops what has that wrong.
  void arrive(uint32_t from, std::span<const std::byte> sections, uint32_t section_count) {
    const MessageHeader header{kWireMagic, 1, ++sequence_[from], section_count};
    // In a block of its own, at an odd address: the sanitizers see who reads beyond, or aligned.
    Message& message = arrived_.emplace_back(Message{from, {}});
    message.bytes.resize(1 + sizeof header + sections.size());
    std::memcpy(&message.bytes[1], &header, sizeof header);
    if (sections.empty()) return;
    std::memcpy(&message.bytes[1 + sizeof header], sections.data(), sections.size());
  }

  std::array<bool, kRanks> held = {};
  PeersBuffer buffer;

 private:
  std::array<bool, kRanks> gone_ = {};
  std::array<uint32_t, kRanks> sequence_ = {};
  std::vector<uint64_t> sent_;
  std::vector<Message> arrived_;
};

// ---- the input

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const uint8_t first = bytes_[0];
    bytes_ = bytes_.subspan(1);
    return first;
  }
  uint32_t two() {
    const uint32_t low = byte();
    return low | uint32_t{byte()} << 8;
  }
  std::span<const std::byte> take(size_t count) {
    const auto taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return std::as_bytes(taken);
  }

 private:
  std::span<const uint8_t> bytes_;
};

class Player {
 public:
  Player(const Choice& choice, Input& input)
      : recording_(recording_of(choice)),
        input_(input),
        victim_(choice.victim()),
        compute_(false, 1),
        engine_(options_of(choice), wires_, clock_, compute_),
        calls_(engine_) {
    if (!engine_.start().ok()) std::abort();
  }
  ~Player() { compute_.drain(); }

  void play() {
    going_ = calls_.start(kCommit);
    run();
    while (going_ && !input_.empty() && engine_.failure().ok()) {
      operate();
      run();
    }
    // What lies is taken in the end.
    wires_.held = {};
    run();
    if (engine_.failure().ok()) return;
    // It says something, and no check of our own fails by what a peer sends: the peer is named. A
    // peer may speak of failed checks himself, but hardly names a file with it.
    const std::string& sentence = engine_.failure().message();
    const bool own_check = engine_.failure().code() == PARALLAX_INTERNAL &&
                           sentence.starts_with("check failed: ") &&
                           sentence.find("/src/") != std::string::npos;
    if (sentence.empty() || own_check) {
      std::fprintf(stderr, "%s\n", sentence.c_str());
      std::abort();
    }
  }

 private:
  static EngineOptions options_of(const Choice& choice) {
    std::vector<std::string> names;
    for (const uint32_t host : choice.hosts()) names.push_back("host" + std::to_string(host));
    return {.rank = choice.victim(),
            .view = first_view(map_hosts(names)),
            .plan_mode = choice.plan_mode(),
            .plan_after_steps = 1,
            .deterministic = choice.deterministic(),
            .marker_hosts_max = choice.marker_hosts_max()};
  }

  void operate() {
    const uint8_t operation = input_.byte();
    const uint32_t number = operation >> 3;
    const uint32_t peer = (victim_ + 1 + number % (kRanks - 1)) % kRanks;
    switch (operation & 7) {
      case 0:  // so many messages come as they were recorded
        for (uint32_t i = 0; i <= number && going_ && engine_.failure().ok(); ++i) {
          deliver(next(), 0);
          run();
        }
        return;
      case 1:  // one comes changed
        deliver(next(), 1 + number % 4);
        return;
      case 2: {  // sections as the input has them
        const auto sections =
            input_.take(std::min<size_t>(input_.two(), kMessageBytes - sizeof(MessageHeader)));
        wires_.arrive(peer, sections, count(sections));
        return;
      }
      case 3:  // a peer takes nothing from now on, or takes all again
        wires_.held[peer] = (number & 2) == 0;
        return;
      case 4:  // one of those recorded up to now comes again, or too early
        deliver(&any_message(), number % 4);
        return;
      case 5:
        craft(peer);
        return;
      case 6:  // one never comes
        next();
        return;
      default:  // two peers at once, before the engine looks
        deliver(next(), 0);
        deliver(next(), number % 4);
        return;
    }
  }

  // The next message recorded; its phase begins when those before are through. Null: none is left.
  const Message* next() {
    while (going_ && at_ == recording_[phase_].size()) {
      run();
      at_ = 0;
      if (++phase_ == kPhases) {
        --phase_;
        going_ = false;
        return nullptr;
      }
      going_ = calls_.start(phase_);
      run();
    }
    return going_ ? &recording_[phase_][at_++] : nullptr;
  }

  const Message& any_message() {
    size_t place = input_.two();
    size_t total = 0;
    for (uint32_t phase = 0; phase <= phase_; ++phase) total += recording_[phase].size();
    place %= std::max<size_t>(total, 1);
    for (const auto& phase : recording_) {
      if (place < phase.size()) return phase[place];
      place -= phase.size();
    }
    std::abort();
  }

  void deliver(const Message* message, uint32_t edits) {
    if (message == nullptr) return;
    MessageHeader header;
    std::memcpy(&header, message->bytes.data(), sizeof header);
    edited_.assign(message->bytes.begin() + sizeof header, message->bytes.end());
    for (uint32_t i = 0; i < edits && !edited_.empty(); ++i) {
      const size_t at = input_.two() % edited_.size();
      edited_[at] = std::byte{input_.byte()};
    }
    wires_.arrive(message->from, edited_, header.section_count);
  }

  // A section whose fields are near to what is right; its payload is numbers of one width.
  void craft(uint32_t peer) {
    constexpr auto kKinds = static_cast<uint8_t>(SectionKind::kKindCount);
    SectionHeader header;
    header.kind = static_cast<SectionKind>(input_.byte() % kKinds);
    const uint8_t form = input_.byte();
    header.encoding = static_cast<Encoding>(form & 7);
    header.flags = form >> 3 & 3;
    header.tag = input_.byte();
    if (header.tag == UINT8_MAX) header.tag = UINT32_MAX;
    header.part = input_.byte();
    const uint8_t step = input_.byte();
    header.step = (step & 128) != 0 ? step & 127 : engine_.window().finished() + step;
    header.first = input_.byte();
    header.count = input_.byte();
    const uint8_t shape = input_.byte();
    const size_t widths[] = {1, 4, 8, 32};
    const size_t width = widths[shape & 3];
    edited_.assign(sizeof header, std::byte{});
    for (const std::byte number : input_.take(shape >> 2)) {
      edited_.push_back(number);
      edited_.resize(edited_.size() + width - 1);
    }
    if (header.kind == SectionKind::kLocalReduce && header.encoding == Encoding::kBytes) {
      add_note(&header);
    }
    header.payload_bytes = static_cast<uint32_t>(edited_.size() - sizeof header);
    std::memcpy(edited_.data(), &header, sizeof header);
    wires_.arrive(peer, edited_, 1);
  }

  // Where rows lie, near to what is right, and what is there.
  void add_note(SectionHeader* header) {
    const uint64_t offset = uint64_t{input_.byte()} & 0x43;
    StagedNote note;
    note.block = {PeersBuffer::kNumber, offset};
    note.rows = input_.byte() % 24;
    note.items = input_.byte() % 24;
    note.slice = {PeersBuffer::kNumber, offset};
    note.slice_rows = input_.byte() % 4;
    note.first = input_.byte() % 24;
    note.count = input_.byte() % 24;
    wires_.buffer.fill(input_.take(input_.byte()));
    header->count = sizeof note;
    edited_.resize(sizeof *header + sizeof note);
    std::memcpy(&edited_[sizeof *header], &note, sizeof note);
  }

  static uint32_t count(std::span<const std::byte> sections) {
    uint32_t found = 0;
    for (size_t at = 0; at + sizeof(SectionHeader) <= sections.size(); ++found) {
      SectionHeader section;
      std::memcpy(&section, &sections[at], sizeof section);
      at += sizeof section + section.payload_bytes;
    }
    return found;
  }

  void run() {
    for (int i = 0; i < 16 && engine_.run(); ++i) {
    }
  }

  const Recording& recording_;
  Input& input_;
  const uint32_t victim_;
  ManualClock clock_;
  Wires wires_;
  LateCompute compute_;
  Engine engine_;
  Calls calls_;
  uint32_t phase_ = 0;
  size_t at_ = 0;
  bool going_ = true;
  std::vector<std::byte> edited_;
};

void play(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  Input input(bytes.subspan(1));
  Player(Choice(bytes[0]), input).play();
}

// Writes an input for each job: all that was recorded, as it was.
void write_corpus(const std::string& folder) {
  for (uint32_t choice = 0; choice <= UINT8_MAX; ++choice) {
    const auto bits = static_cast<uint8_t>(choice);
    if ((bits >> 4 & 3) >= kRanks) continue;  // the same as another
    size_t messages = 0;
    for (const auto& phase : recording_of(Choice(bits))) messages += phase.size();
    std::string input(1, static_cast<char>(bits));
    input.append(messages / 32 + 1, static_cast<char>(31 << 3));
    std::ofstream(folder + "/job_" + std::to_string(bits), std::ios::binary) << input;
  }
}

}  // namespace
}  // namespace parallax::testkit

// PARALLAX_TEST_RECORD=FOLDER: write the first corpus there, and fuzz nothing. Made so:
// tests/fuzz/corpus/wire/job_*.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("PARALLAX_TEST_RECORD");
  if (folder == nullptr) return 0;
  parallax::testkit::write_corpus(folder);
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  parallax::testkit::play({data, bytes});
  return 0;
}
