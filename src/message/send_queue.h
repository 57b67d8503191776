// SPDX-License-Identifier: Apache-2.0
// SendQueue: the sends of data (Send) that one peer is due, in the order in which they are packed:
// the higher priority first (Send::priority), of one priority what goes ahead first, of those what
// was added first. A send that is packed in part gives way to a more urgent one, and goes on behind
// it. A fence (Send::fence) passes nothing, and nothing that is added later passes it; but where
// there is one priority alone what goes ahead does, of which no fence speaks.
//
// Sends are linked and stay their owner's. A priority that was seen keeps its place, so that adding
// allocates nothing but for a new one; with a single one, which is usual, there is nothing to look
// up. One owner; nothing blocks.
#ifndef PARALLAX_MESSAGE_SEND_QUEUE_H_
#define PARALLAX_MESSAGE_SEND_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/number.h"
#include "message/lending.h"
#include "message/section_coding.h"
#include "message/wire.h"

namespace parallax {

// How numbers in memory become numbers on the wire while they are packed.
struct WireFormat {
  uint32_t element_bytes = sizeof(float);  // on the wire
  uint32_t source_bytes = sizeof(float);   // of an element in memory
  Convert convert = nullptr;               // null: as they are
};

// Rows scattered in memory. Item i of a send has the row key row_keys[i], and its row is row `slot`
// of values, or the one at places[slot], with slot = order[i], or i where there is no order.
struct RowSource {
  const uint32_t* row_keys = nullptr;  // null: a send of values alone; of kListedRows: places,
                                       // ascending
  const std::byte* values = nullptr;
  const std::byte* const* places = nullptr;  // null, too: a send of row keys alone
  const uint32_t* order = nullptr;
  uint32_t row_elements = 0;

  bool has_rows() const { return values != nullptr || places != nullptr; }
  // That of an item, each of `values` being of so many bytes.
  const std::byte* row(uint64_t item, size_t row_bytes) const {
    const uint64_t slot = order == nullptr ? item : order[item];
    return places == nullptr ? values + slot * row_bytes : places[slot];
  }
};

struct PlaceOffer;

struct Send {
  SectionHeader header;  // kind, encoding, part, tag, step; flags for the last section; `first` of
                         // the first item (dense: element)
  WireFormat format;
  RowSource rows;
  SectionCoding coding;              // of rows, to another host
  const std::byte* dense = nullptr;  // element 0 of the send
  // Of elements that travel as they are, and of rows' values: where the peer wants them, and which
  // byte there is the first of the send. The elements stay as they are until the peer has them, or
  // is lost; values are gathered, and only borrowed until packed. Null: in messages.
  const PlaceOffer* place = nullptr;
  uint64_t place_offset = 0;
  // Of elements that travel as they are: where the first lies, and the others behind it, if the
  // peer reads them there; *pending, which there is, counts them until it has. In no buffer: in
  // messages.
  BufferPlace lent;
  WholePages returns;    // as LentPart has them; all of the send in one section
  bool written = false;  // elements: they lie where the peer wants them already
  // The higher goes first to the peer, whenever it was added. All sends of one variable's gradient
  // have the same, since its pieces stay in order.
  int32_t priority = 0;
  // Goes before other data of its priority, whenever that was added: what completes something
  // there, and was read or written here just now, so that it is still in the cache.
  bool ahead = false;
  // Behind all data that is queued for the peer, and before all that is added later: it speaks of
  // several variables.
  bool fence = false;
  bool whole = false;  // bytes, up to kControlBytesMax: in one section
  const std::byte* bytes = nullptr;
  uint64_t count = 0;  // items, elements or bytes in all
  uint64_t packed = 0;
  uint32_t* pending = nullptr;  // decremented once packed; may be null
  Send** handle = nullptr;      // where the outbox notes the queued send until it is packed, for
                                // extend(); may be null
  Send* next = nullptr;
  uint32_t blob = UINT32_MAX;  // owns this blob (send_bytes)

  // Of one item's values on the wire.
  size_t row_bytes() const { return size_t{format.element_bytes} * rows.row_elements; }
};

// Linked sends, front to back.
class SendList {
 public:
  bool empty() const { return head_ == nullptr; }
  Send* front() const { return head_; }
  void push(Send* send) {
    send->next = nullptr;
    (tail_ == nullptr ? head_ : tail_->next) = send;
    tail_ = send;
  }
  Send* pop() {
    Send* const send = head_;
    head_ = send->next;
    if (head_ == nullptr) tail_ = nullptr;
    return send;
  }
  // All of it goes behind this one's.
  void append(SendList* other) {
    while (!other->empty()) push(other->pop());
  }

 private:
  Send* head_ = nullptr;
  Send* tail_ = nullptr;
};

class SendQueue {
 public:
  void add(Send* send);
  bool empty() const { return count_ == 0; }
  // The next to be packed. Not empty.
  Send* front() const { return next_list()->front(); }
  // Takes it off. Not empty; what was added since front() was asked may be the front by now.
  Send* pop();
  // Those with that pending count, and behind no fence's, go ahead of others of their priority from
  // now on.
  void hasten(const uint32_t* pending);

 private:
  struct Level {
    int32_t priority = 0;
    SendList ahead = {}, data = {};
  };

  Level& level(int32_t priority);
  void close();
  SendList* next_list();
  const SendList* next_list() const { return const_cast<SendQueue*>(this)->next_list(); }

  SendList closed_;                                    // up to a fence, before all levels
  std::vector<Level> levels_ = std::vector<Level>(1);  // descending
  size_t first_ = 0;                                   // none before it has any
  size_t count_ = 0;
  size_t fences_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_SEND_QUEUE_H_
