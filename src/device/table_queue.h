// SPDX-License-Identifier: Apache-2.0
// TableQueue: a table in a device's memory, and what is done to it there: copies, rows gathered and
// scattered, and update rules. All numbers are floats, which f16 and bf16 variables are kept in
// too, but those that are given out; row numbers are int64_t. What is enqueued runs in its order,
// behind nothing else, and nothing here waits for it: mark() notes how far the queue has come,
// passed() asks, and the `wake` of DeviceOptions says when it is worth to ask.
//
// Host memory is pinned, and stays until a mark behind it is passed. Any IO is final: the device
// has failed, or the queue has lost an operation that later ones build upon. One owner at a time;
// allocate() may block, and so does drain().
#ifndef PARALLAX_DEVICE_TABLE_QUEUE_H_
#define PARALLAX_DEVICE_TABLE_QUEUE_H_

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "parallax/parallax.h"

namespace parallax {

struct UpdateArguments;  // server/update_rules.h

// An array of the table: so many rows of so many floats, on the device. Rows may be scattered to
// an array of another dtype, which is no table's.
struct TableArray {
  std::byte* values = nullptr;
  uint64_t rows = 0;
  uint32_t elements = 1;
  uint32_t dtype = PARALLAX_F32;
};

// Rows of arrays, by their numbers on the device. -1 is none: it reads as zeros.
struct TableRows {
  const std::byte* numbers = nullptr;  // null: of an update, all rows from the first on
  uint32_t count = 0;
};

// Where numbers of the table go on the device, of a floating dtype.
struct TableTarget {
  std::byte* values = nullptr;
  uint32_t dtype = PARALLAX_F32;
};

// One step of a rule on some rows, which occur once. States that the rule does not keep have no
// values.
struct TableUpdate {
  const UpdateArguments* arguments = nullptr;
  TableRows rows;
  TableArray values, state0, state1;
  const std::byte* gradients = nullptr;  // on the device, row after row
};

class TableQueue {
 public:
  // Waits, for at most a while, and frees what was allocated.
  virtual ~TableQueue() = default;

  virtual uint32_t device() const = 0;
  // Of the device, zeros for what is enqueued later; freed at the end. LIMIT, IO.
  virtual Status allocate(uint64_t bytes, std::byte** memory) = 0;

  virtual Status copy_in(std::byte* to_device, const std::byte* from_host, uint64_t bytes) = 0;
  virtual Status copy_out(std::byte* to_host, const std::byte* from_device, uint64_t bytes) = 0;
  // Rows of the array to or from rows on the device that lie one after the other; to be scattered
  // they are of its dtype.
  virtual Status gather(const TableArray& array, const TableRows& rows, const TableTarget& to) = 0;
  virtual Status scatter(const TableArray& array, const TableRows& rows, const std::byte* in) = 0;
  // So many of the array's numbers.
  virtual Status cast(const std::byte* values, uint64_t count, const TableTarget& to) = 0;
  virtual Status update(const TableUpdate& update) = 0;

  // Marks count from 1.
  virtual Status mark(uint64_t* mark) = 0;
  virtual Status passed(uint64_t mark, bool* passed) = 0;
  // Whether nothing is under way any more, after at most so long.
  virtual bool drain(int64_t timeout_ns) = 0;
};

}  // namespace parallax

#endif  // PARALLAX_DEVICE_TABLE_QUEUE_H_
