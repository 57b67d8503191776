// SPDX-License-Identifier: Apache-2.0
// The wire format: a message is a header and sections that follow each other without padding. A
// section says what it is by itself, so that whatever is due to a peer travels in one message.
// Host byte order: every rank proves at the rendezvous that it runs the same version and byte
// order. The bytes are a peer's: SectionReader checks every length before it hands out a section,
// and the receiver of a section checks `tag`, `first` and `count` against what it owns.
#ifndef PARALLAX_MESSAGE_WIRE_H_
#define PARALLAX_MESSAGE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/transport.h"

namespace parallax {

inline constexpr uint32_t kWireMagic = 0x32786c70;  // "plx2"

struct MessageHeader {
  uint32_t magic = kWireMagic;
  uint32_t epoch = 0;     // job and membership generation; another epoch's message is dropped
  uint32_t sequence = 0;  // counts the messages from one peer; a repeat is dropped
  uint32_t section_count = 0;
};
static_assert(sizeof(MessageHeader) == 16);

// What a section carries. Of a gradient's rows: kLocalReduce, kHostReduce, kHostGather,
// kLocalBroadcast; of its elements: kDenseReduce, kDenseGather. Of a pull: kPullLocal, kPullHost,
// kValuesHost, kValuesLocal.
enum class SectionKind : uint8_t {
  kHeartbeat = 1,
  kLost = 2,    // a rank is lost: tag = rank, payload = sentence
  kAbort = 3,   // the job is aborted: tag = rank that did it, first = status, payload = sentence
  kTreeUp = 4,  // tag = TreeKind, step = sequence; part = 1: a piece ahead of the report itself
  kTreeDown = 5,
  kBroadcastReady = 6,  // tag = root, step = sequence, payload = byte count
  kBroadcastData = 7,
  kLocalReduce = 8,  // first = column << 32, and which row of those that are sent is the first here
  kHostReduce = 9,
  kHostGather = 10,
  kLocalBroadcast = 11,
  kStepEnded = 12,  // a local rank ended `step`: what it has not sent counts as absent
  // Of a pull: part = its round. What a rank wants: first = item of its list.
  kPullLocal = 13,
  // What its host wants: first = how many items the leader asked this owner for in the step before
  // these; of a dense variable, how often. kSectionLast: the list ends.
  kPullHost = 14,
  kValuesHost = 15,   // kValues: first = item of the list
  kValuesLocal = 16,  // the same
  kMigrate = 17,
  // Rows with their state, read and written between steps: step = number of the sender's call (of
  // the asker's, in answers), part = array of the table.
  kRowsAsk = 18,      // payload = which rows
  kRowsAnswer = 19,   // kSectionLast: first = the variable's updates
  kRowsWrite = 20,    // the same
  kRowsWritten = 21,  // first = 1: this rank was in a step, and left out rows
  // Elements of a gradient, by the stage of their schedule (collectives/schedule.h). Without any,
  // and kSectionLast: the sender has none of the range that begins at `first`.
  kDenseReduce = 22,
  kDenseGather = 23,
  // Of rows, among many hosts (collectives/census.h). All rows of the step that the receiver sent
  // to this owner are here; nothing more.
  kArrived = 24,
  // part = stage, first = column, payload = marks where there are any. kSectionContributed:
  // somebody below, or anybody, gave a slice.
  kCensusUp = 25,
  kCensusDown = 26,
  // Of a collective beside the steps: step = its tag, with tag = 1, or its number among those
  // without one, with tag = 0. That all at and below the sender have called it, and what it is; and
  // what became of it (collectives/collective_report.h).
  kCollectiveReport = 27,
  kCollectiveAnswer = 28,
  kCollectiveCounts = 29,  // how many numbers the sender has for the receiver, and expects of it
  // Elements, by the stage of their schedule.
  kCollectiveReduce = 30,
  kCollectiveGather = 31,
  // Of a split (engine/split_calls.h): part = round, step = digest of its ranks, first = which of
  // theirs; down: tag = the part's number.
  kSplitUp = 32,
  kSplitDown = 33,
  // Of a variable's contributors in a step: first = how many at and below the sender gave a slice,
  // and how many of all (collectives/counting_exchange.h).
  kContributorsUp = 34,
  kContributorsDown = 35,
  // Where the receiver is to place what it sends of an operation: first = its first element there;
  // payload = message/place_offer.h. Of a gradient, and of a collective, by its step and tag.
  kDensePlace = 36,
  kCollectivePlace = 37,
  // Where an owner is to place rows that the sender's host asks it for: first = how many it was
  // asked for in the step before these; payload as above.
  kPullPlace = 38,
  // Of a loan (message/lending.h): first = its number. The sender has read it.
  kLoanRead = 39,
  // Of a group that decides its steps by all: the sender's vote on a step; part = 1: rates by group
  // ahead of it.
  kVote = 40,
  // What the devices of a host launch next (collectives/host_order.h): tag and step, part = leg,
  // first = how many were said before; payload of the first = what they find each other by.
  kLaunchOrder = 41,
  // Of the tables that an owner lets the ranks of its host read (server/table_reader.h): where one
  // lies, payload = BufferPlace; and that all of them are as pulls of `step` read them.
  kTablePlace = 42,
  kTablesCurrent = 43,
  // Of the measuring in a commit (engine/cost_probe.h): tag = number, payload = anything.
  // kSectionLast: its number is to come back.
  kProbe = 44,
  kProbeAnswer = 45,
  // Of a run of variables (group/lent_runs.h), from tag on: first = how many, payload = LentRunPart
  // of all of them.
  kLentRun = 46,
  // The sender's parts of variables from tag on are summed where they were lent: first = the loan,
  // payload = how many, 4 bytes.
  kRunSummed = 47,
  // Of what the receiver's host asked the sender for in a pull: which of the rows that were not
  // answered come next, in their order, ahead of the others of these; first = the first of them,
  // payload = a bit for each.
  kEarlyRows = 48,
  kKindCount = 49,
};

// How the payload is laid out.
enum class Encoding : uint8_t {
  kBytes = 0,   // `count` bytes
  kDense = 1,   // `count` numbers from element `first` on
  kRows = 2,    // `count` uint32 row keys, then count x row_elements numbers
  kIds = 3,     // `count` uint32 row keys
  kValues = 4,  // count x row_elements numbers, for items first..first+count of a list
  kPlaced = 5,  // as kDense, or kValues of a pull, but the transport has put the numbers where the
                // receiver offered; they are counted in payload_bytes, and not in the message
  kLent = 6,    // as kDense, but the receiver reads the numbers where they lie: payload =
                // message/lending.h
  kListedRows = 7,  // as kRows, but the receiver knows the row keys: `first` = the place of the
                    // first among those that it was asked for in the step; the others follow it,
                    // or the payload begins with a bit for each place from there to the last
  kEncodingCount = 8,
};
// The type of numbers is known on both sides: a gradient's is its variable's sum type or, as their
// length tells, the narrower one of the variable itself; of a pull the header's flags tell it.

// Dense sections start and end at multiples of this many elements of their send, or at its end.
inline constexpr uint64_t kDenseGrain = 256;

inline constexpr uint8_t kSectionLast = 1;  // nothing follows for (kind, step, tag) of this sender
inline constexpr uint8_t kSectionContributed = 2;  // with kSectionLast: somebody gave a slice of
                                                   // it, even one without rows
inline constexpr uint8_t kSectionCoded = 4;        // the payload is message/section_coding.h's
// Of pulls, on every section: the parallax_dtype_t of the values, in these bits.
inline constexpr uint8_t kSectionDtypeShift = 4;
inline constexpr uint8_t kSectionKeptFlags = 0xf0;

struct SectionHeader {
  SectionKind kind = SectionKind::kHeartbeat;
  Encoding encoding = Encoding::kBytes;
  uint8_t flags = 0;
  uint8_t part = 0;    // a small number that the kind defines
  uint32_t tag = 0;    // which: a variable, a rank, a tree round
  uint64_t step = 0;   // of which step or sequence
  uint64_t first = 0;  // element or item
  uint32_t count = 0;
  uint32_t payload_bytes = 0;
};
static_assert(sizeof(SectionHeader) == 32);

struct Section {
  SectionHeader header;
  std::span<const std::byte> payload;  // unaligned; valid as long as the message
  bool in_place =
      false;  // the payload is not here: it was received where it goes (Receiver::place)
};
static_assert(sizeof(MessageHeader) + sizeof(SectionHeader) == kMessageHeadBytes);

// Walks the sections of a message. next() returns false at the end; malformed() then tells whether
// it ended because a length was wrong.
class SectionReader {
 public:
  explicit SectionReader(std::span<const std::byte> message) : rest_(message) {
    malformed_ = rest_.size() < sizeof header_;
    if (malformed_) return;
    std::memcpy(&header_, rest_.data(), sizeof header_);
    rest_ = rest_.subspan(sizeof header_);
    malformed_ = header_.magic != kWireMagic;
    left_ = header_.section_count;
  }
  // Of a message of one section, whose payload is elsewhere, and its rest. Any other is malformed.
  SectionReader(std::span<const std::byte> head, size_t rest_bytes) : SectionReader(head) {
    rest_bytes_ = rest_bytes;
    in_place_ = true;
    malformed_ = malformed_ || left_ != 1;
  }

  const MessageHeader& header() const { return header_; }
  bool malformed() const { return malformed_; }

  bool next(Section* section) {
    if (malformed_ || left_ == 0) {
      malformed_ = malformed_ || !rest_.empty();
      return false;
    }
    --left_;
    malformed_ = rest_.size() < sizeof section->header;
    if (malformed_) return false;
    std::memcpy(&section->header, rest_.data(), sizeof section->header);
    rest_ = rest_.subspan(sizeof section->header);
    const SectionHeader& header = section->header;
    const size_t said = header.encoding == Encoding::kPlaced ? 0 : header.payload_bytes;
    const size_t here = in_place_ ? 0 : said;
    malformed_ = here > rest_.size() || (in_place_ && said != rest_bytes_) ||
                 header.kind == SectionKind{0} || header.kind >= SectionKind::kKindCount ||
                 header.encoding >= Encoding::kEncodingCount;
    if (malformed_) return false;
    section->payload = rest_.first(here);
    section->in_place = in_place_;
    rest_ = rest_.subspan(here);
    return true;
  }

 private:
  std::span<const std::byte> rest_;
  MessageHeader header_;
  uint32_t left_ = 0;
  bool malformed_ = false;
  bool in_place_ = false;
  size_t rest_bytes_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_WIRE_H_
