// SPDX-License-Identifier: Apache-2.0
// Pieces of reads, writes and updates. See device_store.h.
#include "server/device_store.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "aggregate/accumulator.h"
#include "base/check.h"
#include "base/log.h"

namespace parallax {

namespace {

// Where the rows of a piece begin behind the numbers of so many units.
constexpr uint64_t rows_behind(uint64_t count) { return (count * sizeof(int64_t) + 15) / 16 * 16; }

constexpr int64_t kEndOfStoreNs = 5'000'000'000;
// Works that are over, and kept in front of those that are not.
constexpr size_t kForgottenMax = 64;

// Of unit i.
int64_t number_of(const StoreUnits& units, uint64_t i) {
  if (units.list != nullptr) return units.list[i];
  const int64_t id = units.ids.at(i);
  if (id == kPaddingId) return -1;
  const uint32_t row_key = units.keys->row_key_of(static_cast<uint64_t>(id));
  if (units.owner == kNoOwner) return row_key;
  const Partition::Home home = units.keys->home_of(row_key);
  return home.owner == units.owner ? static_cast<int64_t>(home.local_row) : -1;
}

bool is_list(const StoreUnits& units) { return units.list != nullptr || units.keys != nullptr; }

int64_t* numbers_in(std::byte* memory) { return reinterpret_cast<int64_t*>(memory); }

}  // namespace

uint64_t DeviceStore::needed_bytes(const Shape& shape) {
  uint64_t bytes = 0;
  for (const uint32_t width : shape.widths) bytes += shape.units * width * sizeof(float);
  return bytes;
}

Status DeviceStore::allocate() {
  uint64_t widest = 0;
  for (uint32_t array = 0; array < arrays_.size(); ++array) {
    const uint64_t width = shape_.widths[array];
    if (width == 0) continue;
    widest = std::max(widest, width * sizeof(float));
    PARALLAX_RETURN_IF_ERROR(
        queue_->allocate(shape_.units * width * sizeof(float), &arrays_[array]));
  }
  // A unit always fits, in any dtype, and a small table needs no more than all of it.
  const uint64_t one = rows_behind(1) + widest / sizeof(float) * sizeof(double);
  const uint64_t all = rows_behind(shape_.units) + shape_.units * widest;
  piece_bytes_ = std::max<uint64_t>(one, std::min<uint64_t>(all, kPieceBytes));
  device_bytes_ = needed_bytes(shape_) + kPieces * piece_bytes_;
  for (Piece& piece : pieces_) {
    PARALLAX_RETURN_IF_ERROR(queue_->allocate(piece_bytes_, &piece.device));
    PARALLAX_RETURN_IF_ERROR(share_.pinned->take(piece_bytes_, &piece.pinned));
  }
  return {};
}

DeviceStore::~DeviceStore() {
  const bool over = queue_->drain(kEndOfStoreNs);
  for (const Piece& piece : pieces_) {
    if (piece.pinned.memory == nullptr) continue;
    if (over) {
      share_.pinned->give_back(piece.pinned);
    } else {
      share_.pinned->abandon(piece.pinned);
    }
  }
}

TableArray DeviceStore::array(uint32_t number) const {
  return {arrays_[number], shape_.units, shape_.widths[number]};
}

TableArray DeviceStore::array_from(uint32_t number, uint64_t first) const {
  TableArray from = array(number);
  if (from.values == nullptr) return from;
  from.values += first * from.elements * sizeof(float);
  from.rows -= first;
  return from;
}

// ---- what is given

void DeviceStore::read(const StoreRead& read) {
  give({.kind = Kind::kRead, .read = read, .total = read.units.count});
}

void DeviceStore::put(const StorePut& put) {
  give({.kind = Kind::kPut, .put = put, .total = put.count});
}

void DeviceStore::write(const StoreUnits& units, std::vector<std::byte> values) {
  Work work = {.kind = Kind::kWrite, .read = {.units = units}, .total = units.count};
  if (units.list != nullptr) work.list.assign(units.list, units.list + units.count);
  work.values = std::move(values);
  backlog_bytes_ += work.values.size();
  give(std::move(work));
}

void DeviceStore::update(const Update& update) {
  const ReducedGradient& gradient = update.gradient;
  const uint64_t of_rows = shape_.widths[0] + (gradient.counted ? 1 : 0);
  const bool elements = !gradient.rows && !update.partition->ids_declared();
  give({.kind = Kind::kUpdate,
        .update = update,
        .total = gradient.rows ? gradient.row_count
                 : elements    ? gradient.count
                               : gradient.count / of_rows});
}

void DeviceStore::give(Work work) {
  if (!failure_.ok()) return;
  works_.push_back(std::move(work));
  // At once; an error is told by the next advance().
  static_cast<void>(begin_pieces());
}

// What writes to a caller's memory on the device is under way.
bool DeviceStore::writes_to_callers() const {
  for (size_t i = first_; i < works_.size() && i <= begun_; ++i) {
    const Work& work = works_[i];
    if ((work.read.on_device || work.kind == Kind::kPut) && work.begun > 0) return true;
  }
  return false;
}

void DeviceStore::abandon() {
  if (writes_to_callers() && !queue_->drain(kEndOfStoreNs)) {
    PARALLAX_LOG(kWarn, kStep,
                 "device " + std::to_string(device()) +
                     " did not end what it writes of a table to the program's buffers, which are "
                     "not to be freed");
  }
  if (failure_.ok()) failure_ = internal("the job is over");
  works_.clear();
  first_ = begun_ = 0;
  under_way_ = 0;
  backlog_bytes_ = 0;
}

Status DeviceStore::fail(const Status& status) {
  failure_ = status;
  return status;
}

// ---- pieces

Status DeviceStore::advance() {
  if (!failure_.ok()) return failure_;
  while (under_way_ > 0) {
    const Piece& piece = pieces_[oldest_];
    bool passed = false;
    const Status asked = queue_->passed(piece.mark, &passed);
    if (!asked.ok()) return fail(asked);
    if (!passed) break;
    oldest_ = (oldest_ + 1) % kPieces;
    --under_way_;
    end(piece);
  }
  return begin_pieces();
}

Status DeviceStore::begin_pieces() {
  while (under_way_ < kPieces && begun_ < works_.size()) {
    Work& work = works_[begun_];
    Piece& piece = pieces_[(oldest_ + under_way_) % kPieces];
    Status status = begin(work, piece);
    if (status.ok()) status = queue_->mark(&piece.mark);
    if (!status.ok()) return fail(status);
    ++under_way_;
    piece.last = work.begun == work.total;
    if (piece.last) ++begun_;
  }
  return {};
}

// Units that one piece takes of the work.
uint64_t DeviceStore::fitting(const Work& work, uint64_t unit_bytes) const {
  const bool listed = work.kind == Kind::kUpdate
                          ? work.update.partition->ids_declared()
                          : is_list(work.read.units) || work.kind == Kind::kPut;
  if (unit_bytes == 0 && !listed) return work.total;
  // The numbers of all units end at a multiple of 16.
  const uint64_t most = listed ? (piece_bytes_ - sizeof(int64_t)) / (unit_bytes + sizeof(int64_t))
                               : piece_bytes_ / unit_bytes;
  return std::max<uint64_t>(1, most);
}

// What a unit takes of a piece, beside its number.
uint64_t DeviceStore::unit_bytes(const Work& work) const {
  if (work.kind == Kind::kPut) return shape_.widths[0] * uint64_t{bytes_of_dtype(work.put.dtype)};
  const bool stays = work.kind == Kind::kRead && work.read.on_device;
  return stays ? 0 : shape_.widths[work.read.units.array] * sizeof(float);
}

Status DeviceStore::begin(Work& work, Piece& piece) {
  if (work.kind == Kind::kUpdate) return begin_update(work, piece);
  piece.first = work.begun;
  piece.count = std::min(work.total - work.begun, fitting(work, unit_bytes(work)));
  work.begun += piece.count;
  if (piece.count == 0) return {};
  if (work.kind == Kind::kPut) return begin_put(work, piece);
  return work.kind == Kind::kRead ? begin_read(work, piece) : begin_write(work, piece);
}

// Of what a piece has there are only the numbers of units.
Status DeviceStore::begin_read_on_device(const Work& work, const Piece& piece) {
  const StoreUnits& units = work.read.units;
  const TableArray from = array(units.array);
  const uint64_t unit_bytes = uint64_t{from.elements} * bytes_of_dtype(work.read.dtype);
  const TableTarget to = {work.read.to + piece.first * unit_bytes, work.read.dtype};
  if (!is_list(units)) {
    return queue_->cast(array_from(units.array, units.first + piece.first).values,
                        piece.count * from.elements, to);
  }
  int64_t* const numbers = numbers_in(piece.pinned.memory);
  for (uint64_t i = 0; i < piece.count; ++i) numbers[i] = number_of(units, piece.first + i);
  PARALLAX_RETURN_IF_ERROR(
      queue_->copy_in(piece.device, piece.pinned.memory, piece.count * sizeof(int64_t)));
  return queue_->gather(from, {piece.device, static_cast<uint32_t>(piece.count)}, to);
}

Status DeviceStore::begin_read(const Work& work, Piece& piece) {
  if (work.read.on_device) return begin_read_on_device(work, piece);
  const StoreUnits& units = work.read.units;
  const TableArray from = array(units.array);
  const uint64_t bytes = piece.count * from.elements * sizeof(float);
  if (!is_list(units)) {
    return queue_->copy_out(piece.pinned.memory,
                            array_from(units.array, units.first + piece.first).values, bytes);
  }
  int64_t* const numbers = numbers_in(piece.pinned.memory);
  for (uint64_t i = 0; i < piece.count; ++i) numbers[i] = number_of(units, piece.first + i);
  const uint64_t rows_at = rows_behind(piece.count);
  PARALLAX_RETURN_IF_ERROR(
      queue_->copy_in(piece.device, piece.pinned.memory, piece.count * sizeof(int64_t)));
  PARALLAX_RETURN_IF_ERROR(queue_->gather(from, {piece.device, static_cast<uint32_t>(piece.count)},
                                          {piece.device + rows_at, PARALLAX_F32}));
  return queue_->copy_out(piece.pinned.memory + rows_at, piece.device + rows_at, bytes);
}

Status DeviceStore::begin_write(Work& work, Piece& piece) {
  const StoreUnits& units = work.read.units;
  const TableArray to = array(units.array);
  const uint64_t unit_bytes = to.elements * sizeof(float);
  const uint64_t bytes = piece.count * unit_bytes;
  const std::byte* const values = work.values.data() + piece.first * unit_bytes;
  backlog_bytes_ -= bytes;
  if (work.list.empty()) {
    std::memcpy(piece.pinned.memory, values, bytes);
    return queue_->copy_in(array_from(units.array, units.first + piece.first).values,
                           piece.pinned.memory, bytes);
  }
  int64_t* const numbers = numbers_in(piece.pinned.memory);
  for (uint64_t i = 0; i < piece.count; ++i) numbers[i] = work.list[piece.first + i];
  const uint64_t rows_at = rows_behind(piece.count);
  std::memcpy(piece.pinned.memory + rows_at, values, bytes);
  PARALLAX_RETURN_IF_ERROR(queue_->copy_in(piece.device, piece.pinned.memory, rows_at + bytes));
  return queue_->scatter(to, {piece.device, static_cast<uint32_t>(piece.count)},
                         piece.device + rows_at);
}

Status DeviceStore::begin_put(const Work& work, const Piece& piece) {
  const StorePut& put = work.put;
  const uint32_t width = shape_.widths[0];
  const uint64_t from_bytes = uint64_t{width} * bytes_of_dtype(put.from_dtype);
  int64_t* const places = numbers_in(piece.pinned.memory);
  for (uint64_t i = 0; i < piece.count; ++i) places[i] = put.places[piece.first + i];
  const uint64_t rows_at = rows_behind(piece.count);
  convert_or_copy(converter(put.from_dtype, put.dtype), put.from + piece.first * from_bytes,
                  piece.pinned.memory + rows_at, piece.count * width, bytes_of_dtype(put.dtype));
  PARALLAX_RETURN_IF_ERROR(
      queue_->copy_in(piece.device, piece.pinned.memory, rows_at + piece.count * unit_bytes(work)));
  return queue_->scatter({put.to, put.rows, width, put.dtype},
                         {piece.device, static_cast<uint32_t>(piece.count)},
                         piece.device + rows_at);
}

// ---- updates

Status DeviceStore::begin_update(Work& work, Piece& piece) {
  const Update& update = work.update;
  const ReducedGradient& gradient = update.gradient;
  if (update.partition->ids_declared()) {
    const uint64_t rows_at = stage_rows(work, piece);
    if (piece.count == 0) return {};
    const uint64_t bytes = rows_at + piece.count * shape_.widths[0] * sizeof(float);
    PARALLAX_RETURN_IF_ERROR(queue_->copy_in(piece.device, piece.pinned.memory, bytes));
    return enqueue_update(work, piece, rows_at, true);
  }
  // Elements, which lie as they are, each a unit of its own.
  piece.first = gradient.first - update.first_element + work.begun;
  piece.count = std::min(work.total - work.begun, fitting(work, sizeof(float)));
  if (piece.count == 0) return {};
  const uint64_t bytes = piece.count * sizeof(float);
  std::memcpy(piece.pinned.memory, gradient.values + work.begun * sizeof(float), bytes);
  work.begun += piece.count;
  PARALLAX_RETURN_IF_ERROR(queue_->copy_in(piece.device, piece.pinned.memory, bytes));
  return enqueue_update(work, piece, 0, false);
}

// Numbers and gradients of the next rows, as many as fit; answers where the gradients begin. Rows
// that nobody contributed are left alone.
uint64_t DeviceStore::stage_rows(Work& work, Piece& piece) {
  const Update& update = work.update;
  const ReducedGradient& gradient = update.gradient;
  const uint64_t width = shape_.widths[0];
  const uint64_t gradient_width = width + (gradient.counted ? 1 : 0);
  const uint64_t most = fitting(work, width * sizeof(float));
  const uint64_t rows_at = rows_behind(most);
  int64_t* const numbers = numbers_in(piece.pinned.memory);
  float* const staged = reinterpret_cast<float*>(piece.pinned.memory + rows_at);
  const float* const values = reinterpret_cast<const float*>(gradient.values);
  const Decay<float> decay(update.arguments);
  piece.count = 0;
  for (; work.begun < work.total && piece.count < most; ++work.begun) {
    const float* const from = values + work.begun * gradient_width;
    if (!gradient.rows && is_no_row(from)) continue;
    const auto key =
        static_cast<uint32_t>(gradient.rows ? gradient.row_keys[work.begun] : work.begun);
    numbers[piece.count] =
        static_cast<int64_t>(update.sharded ? update.partition->local_row(key) : key);
    float* const to = staged + piece.count * width;
    if (gradient.counted) {
      // Each by its own count of ranks, as the table's rule has it; the kernel has one scale.
      const auto by = static_cast<float>(1.0 / static_cast<double>(from[width]) *
                                         (decay.sign * update.arguments.scale));
      for (uint64_t i = 0; i < width; ++i) to[i] = from[i] * by;
    } else {
      std::memcpy(to, from, width * sizeof(float));
    }
    ++piece.count;
  }
  return rows_at;
}

Status DeviceStore::enqueue_update(const Work& work, const Piece& piece, uint64_t values_at,
                                   bool listed) {
  UpdateArguments arguments = work.update.arguments;
  if (work.update.gradient.counted) {
    arguments.scale = 1;  // it is in the gradient, with its sign
    arguments.maximize = false;
  }
  const uint64_t first = listed ? 0 : piece.first;
  TableUpdate update = {
      .arguments = &arguments,
      .rows = {listed ? piece.device : nullptr, static_cast<uint32_t>(piece.count)},
      .values = array_from(0, first),
      .state0 = array_from(1, first),
      .state1 = array_from(2, first),
      .gradients = piece.device + values_at};
  return queue_->update(update);
}

// ---- ends

uint32_t* DeviceStore::left_of(const Work& work) {
  if (work.kind == Kind::kUpdate) return work.update.left;
  return work.kind == Kind::kPut ? work.put.left : work.read.left;
}

void DeviceStore::end(const Piece& piece) {
  const Work& work = works_[first_];
  if (work.kind == Kind::kRead && !work.read.on_device && piece.count > 0) {
    const uint64_t width = shape_.widths[work.read.units.array];
    const size_t bytes = bytes_of_dtype(work.read.dtype);
    const uint64_t rows_at = is_list(work.read.units) ? rows_behind(piece.count) : 0;
    convert_or_copy(converter(PARALLAX_F32, work.read.dtype), piece.pinned.memory + rows_at,
                    work.read.to + piece.first * width * bytes, piece.count * width, bytes);
  }
  if (!piece.last) return;
  uint32_t* const left = left_of(work);
  if (left != nullptr) --*left;
  if (work.kind == Kind::kRead && work.read.outbox != nullptr) {
    work.read.outbox->add(work.read.peer, work.read.send);
  }
  works_[first_++] = {};  // with what it held
  if (first_ < works_.size() && first_ < kForgottenMax) return;
  works_.erase(works_.begin(), works_.begin() + static_cast<ptrdiff_t>(first_));
  begun_ -= first_;
  first_ = 0;
}

}  // namespace parallax
