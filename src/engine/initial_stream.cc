// SPDX-License-Identifier: Apache-2.0
// Initial values from rank 0, in pieces. See initial_stream.h.
#include "engine/initial_stream.h"

#include <algorithm>

#include "variable/initial_value.h"

namespace parallax {

bool InitialStream::needed() const {
  // Where there is one rank, it has filled in its own.
  const auto newest = registry_.newest();
  return group_.columns().world() > 1 &&
         std::any_of(newest.begin(), newest.end(),
                     [](const Variable* each) { return each->init == PARALLAX_INIT_BROADCAST; });
}

void InitialStream::begin() {
  begun_ = true;
  uint64_t most = 0;
  for (const Variable* each : registry_.newest()) {
    if (each->init != PARALLAX_INIT_BROADCAST) continue;
    coming_.push_back(registry_.number_of(each->id));
    most = std::max(most, each->elements() * bytes_of_sum(each->sum_type()));
  }
  piece_.resize(std::min(most, kPieceBytes));
}

uint64_t InitialStream::piece_elements() const {
  return std::min(variable().elements() - element_,
                  piece_.size() / bytes_of_sum(variable().sum_type()));
}

void InitialStream::send_piece() {
  const uint64_t element_bytes = bytes_of_sum(variable().sum_type());
  const uint64_t bytes = piece_elements() * element_bytes;
  if (group_.columns().rank() == 0) {
    copy_given(variable(), element_, std::span(piece_).first(bytes));
  }
  broadcast_.start(0, piece_.data(), bytes);
}

bool InitialStream::advance() {
  if (!begun_) begin();
  while (current_ < coming_.size()) {
    if (!broadcast_.active()) send_piece();
    if (!broadcast_.finished()) return false;
    // A device that is behind is waited for here, with a piece in hand.
    const DeviceTable* const device = group_.runtime(coming_[current_]).table->device();
    if (device != nullptr && !device->takes_values()) return false;
    const uint64_t count = piece_elements();
    // Rank 0 has filled in its own already.
    if (group_.columns().rank() != 0) {
      Table& table = *group_.runtime(coming_[current_]).table;
      table.take_values(element_, std::span(piece_).first(count * bytes_of_sum(table.sum_type())));
    }
    broadcast_.finish();
    element_ += count;
    if (element_ < variable().elements()) continue;
    element_ = 0;
    ++current_;
  }
  coming_.clear();
  current_ = 0;
  piece_ = {};
  begun_ = false;
  return true;
}

}  // namespace parallax
