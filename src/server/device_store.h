// SPDX-License-Identifier: Apache-2.0
// DeviceStore: the values and states of one table in a device's memory, and what is done to them:
// reads, writes and updates, each in pieces through pinned host memory. They take effect in the
// order in which they were given, so that a read sees the update before it and none behind it.
//
// An array is units of as many floats as a row of it has; without row ids, of one. What is given
// names units by a list, or as so many from the first on. It borrows what it reads and writes until
// its count (*left) is lessened, or until abandon().
//
// Engine's owner only. Nothing blocks but allocate(), the end, which waits for at most a while, and
// so does abandon() while the device writes to memory of a caller's.
#ifndef PARALLAX_SERVER_DEVICE_STORE_H_
#define PARALLAX_SERVER_DEVICE_STORE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aggregate/reduced_gradient.h"
#include "aggregate/row_coalescer.h"
#include "base/number.h"
#include "base/status.h"
#include "device/device_share.h"
#include "device/table_queue.h"
#include "message/outbox.h"
#include "server/update_rules.h"
#include "variable/partition.h"
#include "variable/variable.h"

namespace parallax {

// Units of an array. At most one of the lists is given; none: `count` of them from `first` on.
struct StoreUnits {
  uint32_t array = 0;
  uint64_t first = 0;
  uint64_t count = 0;
  const uint32_t* list = nullptr;
  // Row ids, whose units are row keys, or of a shard the local rows of its owner. Padding reads as
  // zeros, and so do other owners' rows.
  RowIds ids = {};
  const Partition* keys = nullptr;
  uint32_t owner = kNoOwner;
};

// Units to memory, one after the other, and then a send of what is there, if it is given one.
struct StoreRead {
  StoreUnits units = {};
  std::byte* to = nullptr;
  uint32_t dtype = PARALLAX_F32;  // of what is written to `to`
  // `to` is memory of the store's device: written there, and nothing comes to the host.
  bool on_device = false;
  uint32_t* left = nullptr;  // lessened by one once all is there; may be null
  Outbox* outbox = nullptr;  // null: there is no send
  uint32_t peer = 0;
  Send send = {};
};

// Rows that others own, which have come to host memory, to rows of memory of the store's device.
struct StorePut {
  const std::byte* from = nullptr;
  uint32_t from_dtype = PARALLAX_F32;
  uint64_t count = 0;
  const uint32_t* places = nullptr;  // the rows that they become; each once
  std::byte* to = nullptr;
  uint32_t dtype = PARALLAX_F32;
  uint64_t rows = 0;  // there
  uint32_t* left = nullptr;
};

class DeviceStore {
 public:
  // In one piece: what is copied at once, or a unit if that is more.
  static constexpr size_t kPieceBytes = size_t{1} << 20;
  static constexpr uint32_t kPieces = 2;
  // Of what was given to be written: then write() is to wait, where it can.
  static constexpr size_t kBacklogMax = 4 * kPieceBytes;

  struct Shape {
    uint64_t units = 0;
    std::array<uint32_t, 1 + kStatesMax> widths = {};  // floats of a unit; 0: there is no array
  };

  // The share outlives the store.
  DeviceStore(const DeviceShare& share, std::unique_ptr<TableQueue> queue, const Shape& shape)
      : share_(share), queue_(std::move(queue)), shape_(shape) {}
  ~DeviceStore();
  DeviceStore(const DeviceStore&) = delete;
  DeviceStore& operator=(const DeviceStore&) = delete;

  static uint64_t needed_bytes(const Shape& shape);  // of the device
  // All of it, and pinned memory. LIMIT, IO.
  Status allocate();
  uint32_t device() const { return queue_->device(); }
  uint64_t device_bytes() const { return device_bytes_; }

  void read(const StoreRead& read);
  void put(const StorePut& put);
  // Values are taken along; so is a list.
  void write(const StoreUnits& units, std::vector<std::byte> values);
  // Lists in the units' rows, made dense, or elements from first_element on; see Table::apply().
  // `partition` says what keys are here, where `sharded` by local rows. The gradient stays until
  // *left is lessened.
  struct Update {
    ReducedGradient gradient;
    UpdateArguments arguments;
    const Partition* partition = nullptr;
    bool sharded = false;
    uint64_t first_element = 0;
    uint32_t* left = nullptr;
  };
  void update(const Update& update);
  // Of what is to be written, not begun.
  size_t backlog_bytes() const { return backlog_bytes_; }

  // Moves on what can be moved. Not OK: the device's error, and nothing goes on.
  Status advance();
  // Something is under way, of whose end nobody may tell.
  bool busy() const { return !works_.empty(); }
  // Forgets all that was given: nothing of the caller's is read or written any more.
  void abandon();

 private:
  enum class Kind : uint8_t { kRead, kWrite, kUpdate, kPut };
  struct Work {
    Kind kind = Kind::kRead;
    StoreRead read = {};  // units of a write, too
    StorePut put = {};
    std::vector<std::byte> values = {};  // write
    std::vector<uint32_t> list = {};
    Update update = {};
    uint64_t begun = 0;  // units; of rows of an update: looked at
    uint64_t total = 0;
  };
  // What is under way in one copy.
  struct Piece {
    MemoryBlock pinned;
    std::byte* device = nullptr;
    uint64_t mark = 0;
    uint64_t first = 0, count = 0;  // of the work's units
    bool last = false;
  };

  TableArray array(uint32_t number) const;
  TableArray array_from(uint32_t number, uint64_t first) const;
  uint64_t unit_bytes(const Work& work) const;
  static uint32_t* left_of(const Work& work);
  uint64_t fitting(const Work& work, uint64_t unit_bytes) const;
  void give(Work work);
  Status begin_pieces();
  Status begin(Work& work, Piece& piece);
  Status begin_read(const Work& work, Piece& piece);
  Status begin_read_on_device(const Work& work, const Piece& piece);
  bool writes_to_callers() const;
  Status begin_write(Work& work, Piece& piece);
  Status begin_put(const Work& work, const Piece& piece);
  Status begin_update(Work& work, Piece& piece);
  uint64_t stage_rows(Work& work, Piece& piece);
  Status enqueue_update(const Work& work, const Piece& piece, uint64_t values_at, bool listed);
  void end(const Piece& piece);
  Status fail(const Status& status);

  const DeviceShare share_;
  const std::unique_ptr<TableQueue> queue_;
  const Shape shape_;
  std::array<std::byte*, 1 + kStatesMax> arrays_ = {};
  std::array<Piece, kPieces> pieces_;
  size_t piece_bytes_ = 0;
  uint32_t oldest_ = 0, under_way_ = 0;  // of pieces_
  // Those from first_ on are not over, from begun_ on not begun as a whole. Emptied when all are,
  // so that steps allocate nothing.
  std::vector<Work> works_;
  size_t first_ = 0, begun_ = 0;
  size_t backlog_bytes_ = 0;
  uint64_t device_bytes_ = 0;
  Status failure_;
};

}  // namespace parallax

#endif  // PARALLAX_SERVER_DEVICE_STORE_H_
