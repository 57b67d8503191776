// SPDX-License-Identifier: Apache-2.0
// Initial values from rank 0, in pieces. See initial_stream.h.
#include "engine/initial_stream.h"

#include <algorithm>
#include <cstring>

namespace parallax {

bool InitialStream::needed() const {
  // Where there is one rank, it has filled in its own.
  return group_.columns().world() > 1 &&
         std::any_of(registry_.begin() + static_cast<ptrdiff_t>(committed_), registry_.end(),
                     [](const Variable& each) { return each.init == PARALLAX_INIT_BROADCAST; });
}

void InitialStream::begin() {
  begun_ = true;
  uint64_t most = 0;
  for (auto i = static_cast<uint32_t>(committed_); i < registry_.size(); ++i) {
    if (registry_[i].init != PARALLAX_INIT_BROADCAST) continue;
    order_.push_back(i);
    most = std::max(most, registry_[i].elements() * bytes_of_sum(registry_[i].sum_type()));
  }
  std::sort(order_.begin(), order_.end(),
            [this](uint32_t a, uint32_t b) { return registry_[a].name < registry_[b].name; });
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
    std::memcpy(piece_.data(), variable().initial + element_ * element_bytes, bytes);
  }
  broadcast_.start(0, piece_.data(), bytes);
}

bool InitialStream::advance() {
  if (!begun_) begin();
  while (current_ < order_.size()) {
    if (!broadcast_.active()) send_piece();
    if (!broadcast_.finished()) return false;
    const uint64_t count = piece_elements();
    // Rank 0 has filled in its own already.
    if (group_.columns().rank() != 0) {
      Table& table = *group_.runtime(order_[current_]).table;
      table.take_values(element_, std::span(piece_).first(count * table.element_bytes()));
    }
    broadcast_.finish();
    element_ += count;
    if (element_ < variable().elements()) continue;
    element_ = 0;
    ++current_;
  }
  order_.clear();
  current_ = 0;
  piece_ = {};
  begun_ = false;
  return true;
}

}  // namespace parallax
