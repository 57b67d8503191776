// SPDX-License-Identifier: Apache-2.0
// Initial values and updates of a table, and elements that come from elsewhere. See table.h.
#include "server/table.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "aggregate/accumulator.h"
#include "aggregate/row_index.h"
#include "base/check.h"
#include "server/adam_of_tables.h"
#include "server/row_updater.h"
#include "variable/initial_value.h"

namespace parallax {

namespace {

bool is_no_row_of(SumType sum, const std::byte* row) {
  return with_sum_type(sum, [row](auto tag) {
    return is_no_row(reinterpret_cast<const typename decltype(tag)::type*>(row));
  });
}

// Of what lies here, where the state of the value at `at` begins. Dense values may end in mid-row;
// then the state is as wide, or they lie in whole rows.
uint64_t state_place(const Table& table, uint64_t at) {
  const uint64_t width = table.row_elements();
  return table.array_width(1) == width ? at : at / width * table.array_width(1);
}

// What neighbours read is being written, as long as this lives. A rank that ends meanwhile leaves
// the mark odd, and nothing of it is taken.
class Writing {
 public:
  explicit Writing(TableMark* mark) : mark_(mark) {
    if (mark_ != nullptr) mark_->fetch_add(1, std::memory_order_seq_cst);
  }
  ~Writing() {
    if (mark_ != nullptr) mark_->fetch_add(1, std::memory_order_seq_cst);
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  TableMark* const mark_;
};

// Finds each row and updates it: some are found, and asked of the memory, before those in front of
// them are updated.
template <typename Find, typename Update>
void each_row(uint32_t count, const Find& find, const Update& update) {
  std::array<std::array<uint64_t, kRowsTogether>, 2> both = {};
  const auto find_some = [&](uint32_t first) {
    auto& rows = both[first / kRowsTogether % 2];
    const uint32_t together = std::min(count - first, kRowsTogether);
    for (uint32_t i = 0; i < together; ++i) rows[i] = find(first + i);
  };
  if (count > 0) find_some(0);
  for (uint32_t first = 0; first < count; first += kRowsTogether) {
    if (count - first > kRowsTogether) find_some(first + kRowsTogether);
    const auto& rows = both[first / kRowsTogether % 2];
    const uint32_t together = std::min(count - first, kRowsTogether);
    for (uint32_t i = 0; i < together; ++i) update(first + i, rows[i]);
  }
}

// Elements [first, end) of an array, and sooner or later those behind them.
void will_be_written(Arena& arena, std::span<const std::byte> array, uint32_t dtype, uint64_t first,
                     uint64_t end) {
  // The kernel interrupts all processors for each call, and takes some milliseconds for so much.
  constexpr uint64_t kBytesAtOnce = uint64_t{32} << 20;
  const uint64_t elements = kBytesAtOnce / bytes_of_dtype(dtype);
  for (uint64_t at = (first + elements - 1) / elements; at * elements < end; ++at) {
    const uint64_t from = at * kBytesAtOnce;
    arena.will_be_written(array.subspan(from, std::min(kBytesAtOnce, array.size() - from)));
  }
}

// Rows of a sum. `updater` is the caller's own, of which the compiler knows all.
template <typename T, typename Values, typename Rule, typename RowOf, typename FirstOf>
void update_rows(const ReducedGradient& gradient, const RowUpdater<T, Values, Rule>& updater,
                 RowOf row_of, FirstOf first_of) {
  each_row(
      gradient.row_count,
      [&](uint32_t i) {
        const uint64_t row = row_of(gradient.row_keys[i]);
        prefetch_row(gradient.row(i), updater.width * sizeof(T));
        updater.prefetch(row);
        return row;
      },
      [&](uint32_t i, uint64_t row) {
        updater.update(row, reinterpret_cast<const T*>(gradient.row(i)),
                       [&] { return first_of(gradient.row_keys[i]); });
      });
}

// A step in which some rank contributed.
UpdateArguments count_update(const UpdateArguments& with, const Partition& partition,
                             UpdateCounts* counts) {
  static const TablesLeftOut kNone;
  counts->add_step(with.left_out == nullptr ? kNone : *with.left_out);
  UpdateArguments counted = with;
  counted.left_out = nullptr;  // counted is what it was for, and it goes with the step
  counted.updates = counts->of_first();
  counted.sparse = partition.ids_declared();
  return counted;
}

}  // namespace

Table::Table(const Variable& variable, const Partition& partition, uint32_t rank, bool sharded)
    : variable_(variable),
      partition_(partition),
      sum_(variable.sum_type()),
      value_dtype_(variable.stored_dtype()),
      rank_(rank),
      sharded_(sharded),
      updates_(variable) {
  widths_[0] = variable.row_elements;
  for (uint32_t state = 0; state < kStatesMax && variable.state_width(state) > 0; ++state) {
    widths_[array_count_++] = variable.state_width(state);
  }
  if (variable.table_memory != PARALLAX_MEMORY_HOST) {
    device_ = std::make_unique<DeviceTable>(variable, partition, rank, sharded);
    if (device_->holds_nothing()) device_.reset();
  }
  if (variable.traits().calls_back) own_rule_ = std::make_unique<RuleBlocks>(variable);
  if (variable.traits().has_betas) adam_times_.resize(variable.fused.size());
  if (variable.storage_dtype != 0) stored_ = std::make_unique<StoredValues>(variable);
}

uint64_t Table::owned_elements(uint32_t owner, uint32_t array) const {
  return partition_.ids_declared() ? partition_.rows_owned(owner) * array_width(array)
                                   : place_in(array, partition_.range_of(owner).count);
}

uint64_t Table::element_count(uint32_t array) const {
  return sharded_ ? owned_elements(rank_, array) : partition_.rows() * array_width(array);
}

size_t Table::needed_bytes() const {
  if (device_ != nullptr) return 0;
  size_t bytes = 0;
  for (uint32_t array = 0; array < array_count_; ++array) {
    bytes += Arena::bytes_for<std::byte>(element_count(array) * bytes_of_dtype(dtype(array)));
  }
  if (own_rule_ == nullptr && stored_ == nullptr) return bytes;
  Arena measure;
  if (own_rule_ != nullptr) RuleBlocks(variable_).lay_out(measure);
  if (stored_ != nullptr) StoredValues(variable_).lay_out(measure, {});
  return bytes + measure.used_bytes();
}

Status Table::reserve(const DeviceShare& share, uint32_t place, const SharedPages* shared) {
  if (sharded_ && !partition_.ids_declared()) first_element_ = partition_.range_of(rank_).first;
  if (device_ != nullptr) return device_->reserve(share, place);
  if (shared == nullptr) {
    PARALLAX_RETURN_IF_ERROR(arena_.reserve(needed_bytes(), true));
  } else if (shared->pool == nullptr) {
    PARALLAX_RETURN_IF_ERROR(arena_.reserve_sealed(shared_bytes(*this)));
  } else {
    arena_.reserve_in(*shared->pool, shared_bytes(*this));
  }
  if (shared != nullptr) mark_ = arena_.take<TableMark>(1).data();
  for (uint32_t array = 0; array < array_count_; ++array) {
    arrays_[array] = arena_.take<std::byte>(element_count(array) * bytes_of_dtype(dtype(array)));
  }
  if (own_rule_ != nullptr) own_rule_->lay_out(arena_);
  if (stored_ != nullptr) stored_->lay_out(arena_, arrays_[0]);
  return {};
}

bool Table::initialize(uint64_t* elements_left) {
  const uint64_t width = row_elements();
  const uint64_t total = element_count(0);
  const uint64_t first = initialized_;
  if (*elements_left == 0) return first == total;
  if (device_ != nullptr && !device_->takes_values()) return first == total;
  // Whole rows, since a state may have one element per row.
  const uint64_t rows = std::max<uint64_t>(1, *elements_left / width);
  initialized_ = std::min<uint64_t>(total, first + rows * width);
  *elements_left -= std::min(*elements_left, initialized_ - first);
  if (device_ != nullptr) {
    initialize_on_device(first, initialized_);
  } else {
    with_sum_type(
        sum_, [&](auto tag) { initialize_as<typename decltype(tag)::type>(first, initialized_); });
  }
  return initialized_ == total;
}

template <typename T>
void Table::initialize_as(uint64_t first, uint64_t end) {
  if (variable_.initial_accumulator_value != 0 && array_count_ > 1) {
    const uint64_t from = state_place(*this, first), to = state_place(*this, end);
    will_be_written(arena_, arrays_[1], dtype(1), from, to);
    T* state = reinterpret_cast<T*>(arrays_[1].data());
    std::fill(state + from, state + to, static_cast<T>(variable_.initial_accumulator_value));
  }
  // Fresh pages are zero already; untouched, they cost no memory.
  if (!has_initial_values(variable_) && variable_.init != PARALLAX_INIT_BROADCAST) return;
  will_be_written(arena_, arrays_[0], dtype(0), first, end);
  if (!has_initial_values(variable_)) return;
  if (stored_ == nullptr) {
    return fill_values(first, end, reinterpret_cast<T*>(arrays_[0].data()) + first);
  }
  for (uint64_t at = first, count = 0; at < end; at += count) {
    count = std::min(end - at, stored_->most());
    fill_values(at, at + count, stored_->floats());
    stored_->put(at, reinterpret_cast<const std::byte*>(stored_->floats()), count);
  }
}

// The same, by way of the device's queue; its fresh memory is zero, too.
void Table::initialize_on_device(uint64_t first, uint64_t end) {
  if (variable_.initial_accumulator_value != 0 && array_count_ > 1) {
    const uint64_t from = state_place(*this, first);
    std::vector<std::byte> state((state_place(*this, end) - from) * sizeof(float));
    std::fill_n(reinterpret_cast<float*>(state.data()), state.size() / sizeof(float),
                variable_.initial_accumulator_value);
    device_->write(1, from, std::move(state));
  }
  if (!has_initial_values(variable_)) return;
  std::vector<std::byte> values((end - first) * sizeof(float));
  fill_values(first, end, reinterpret_cast<float*>(values.data()));
  device_->write(0, first, std::move(values));
}

// Of the elements that lie here.
template <typename T>
void Table::fill_values(uint64_t first, uint64_t end, T* out) const {
  const uint64_t width = row_elements();
  // By row id, not by where the row lies: placement must not change a value.
  for (uint64_t i = first; i < end;) {
    const uint64_t column = partition_.ids_declared() ? 0 : (first_element_ + i) % width;
    const uint64_t count = std::min(end - i, width - column);
    fill_initial(variable_, row_here(i), column, std::span(out + (i - first), count));
    i += count;
  }
}

// The row that element `at` of what lies here is of.
uint64_t Table::row_here(uint64_t at) const {
  const uint64_t width = row_elements();
  if (!partition_.ids_declared()) return (first_element_ + at) / width;
  const uint64_t here = at / width;
  return partition_.row_of(sharded_ ? partition_.row_key_at(rank_, here)
                                    : static_cast<uint32_t>(here));
}

void Table::take_values(uint64_t first, std::span<const std::byte> values) {
  const uint64_t width = row_elements();
  const size_t number_bytes = bytes_of_sum(sum_);
  const uint64_t end = first + values.size() / number_bytes;
  if (device_ != nullptr) return device_->take_values(first, values);
  const auto put = [&](uint64_t here, uint64_t at, uint64_t count) {
    const std::byte* const from = &values[(at - first) * number_bytes];
    if (stored_ != nullptr) return stored_->put(here, from, count);
    std::memcpy(&arrays_[0][here * number_bytes], from, count * number_bytes);
  };
  if (!partition_.ids_declared()) {
    const uint64_t begin = std::max(first, first_element_);
    const uint64_t stop = std::min(end, first_element_ + element_count(0));
    if (begin >= stop) return;
    return put(begin - first_element_, begin, stop - begin);
  }
  for (uint64_t at = first; at < end;) {
    const uint64_t column = at % width;
    const uint64_t count = std::min(end - at, width - column);
    const uint32_t row_key = partition_.row_key_of(at / width);
    if (!sharded_ || partition_.owner_of(row_key) == rank_) {
      put(row_of(row_key) * width + column, at, count);
    }
    at += count;
  }
}

void Table::start_apply(const ReducedGradient& gradient, const UpdateArguments& with,
                        uint32_t* left) {
  if (!gradient.contributed && !gradient.has_values) return;
  const UpdateArguments counted = count_update(with, partition_, &updates_);
  if (!gradient.has_values) return;
  device_->apply(gradient, counted, left);
}

int Table::apply(const ReducedGradient& gradient, const UpdateArguments& with) {
  if (!gradient.contributed && !gradient.has_values) return 0;
  // Also without values: some rank contributed, and Adam counts the step.
  const UpdateArguments counted = count_update(with, partition_, &updates_);
  if (!gradient.has_values) return 0;
  const Writing writing(mark_);
  if (own_rule_ != nullptr) return apply_own(gradient, counted);
  with_sum_type(sum_, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto apply_rule = [&](const auto& rule) {
      if constexpr (std::is_same_v<T, float>) {
        if (stored_ != nullptr) {
          stored_->begin(updates_);
          return apply_as<T>(gradient, counted, rule, *stored_);
        }
      }
      PlainValues<T> values = {reinterpret_cast<T*>(arrays_[0].data())};
      apply_as<T>(gradient, counted, rule, values);
    };
    if constexpr (std::is_floating_point_v<T>) {
      if (variable_.traits().has_betas && !updates_.alike()) {
        return apply_rule(AdamOfTables<T>(counted, updates_, row_elements(), adam_times_));
      }
    }
    with_rule<T>(counted, apply_rule);
  });
  return 0;
}

// By the rule of the caller's own.
int Table::apply_own(const ReducedGradient& gradient, const UpdateArguments& with) {
  RuleBlocks& blocks = *own_rule_;
  blocks.begin(with, gradient.counted, arrays_);
  const uint64_t width = row_elements();
  const size_t row_bytes = (width + (gradient.counted ? 1 : 0)) * bytes_of_sum(sum_);
  const bool ids = partition_.ids_declared();
  // Of elements it is whole rows: the partition parts none.
  const uint64_t count = gradient.rows ? gradient.row_count
                         : ids         ? gradient.count * bytes_of_sum(sum_) / row_bytes
                                       : gradient.count / width;
  for (uint64_t i = 0; i < count; ++i) {
    const std::byte* values =
        gradient.rows ? gradient.row(static_cast<uint32_t>(i)) : gradient.values + i * row_bytes;
    uint64_t id = gradient.first / width + i;
    uint64_t here = id - first_element_ / width;
    if (ids) {
      if (!gradient.rows && is_no_row_of(sum_, values)) continue;
      const uint32_t row_key = gradient.rows ? gradient.row_keys[i] : static_cast<uint32_t>(i);
      id = partition_.row_of(row_key);
      here = row_of(row_key);
    }
    const int answer = blocks.add(static_cast<int64_t>(id), here, values);
    if (answer != 0) return answer;
  }
  return blocks.finish();
}

template <typename T, typename Values, typename Rule>
void Table::apply_as(const ReducedGradient& gradient, const UpdateArguments& with, const Rule& rule,
                     Values& values) {
  const uint64_t width = row_elements();
  const T* gradients = reinterpret_cast<const T*>(gradient.values);
  const Decay<T> decay(with);
  const RowUpdater<T, Values, Rule> all = {
      .rule = rule,
      .decay = decay,
      .scale = decay.sign * with.scale,
      .values = &values,
      .states = {reinterpret_cast<T*>(arrays_[1].data()), reinterpret_cast<T*>(arrays_[2].data())},
      .width = width,
      .state_width = array_count_ > 1 ? array_width(1) : 0,
      .counted = gradient.counted};
  const auto first_of = [this, width](uint32_t row_key) {
    return partition_.row_of(row_key) * width;
  };
  if (gradient.rows) {
    const auto update_known = [&](auto known_width) {
      update_in_vectors(rule, [&] {
        RowUpdater<T, Values, Rule> updater = all;
        updater.width = known_width;
        update_rows(
            gradient, updater, [this](uint32_t row_key) { return row_of(row_key); }, first_of);
      });
    };
    if constexpr (std::is_same_v<Values, PlainValues<float>> && requires { Rule::kIsShort; }) {
      // Of a length that the compiler knows.
      if (with_narrow_width(width, update_known)) return;
    }
    update_known(width);
  } else if (!partition_.ids_declared()) {
    // No rule of such a variable looks beyond an element.
    update_in_vectors(rule, [&] {
      for (uint64_t done = 0; done < gradient.count; done += values.most()) {
        const uint64_t first = gradient.first + done, at = first - first_element_;
        all.update_run(at, at, gradients + done, std::min(values.most(), gradient.count - done),
                       [first] { return first; });
      }
    });
  } else {
    // Rows made dense, of a mirror: those that nobody contributed are left alone.
    update_in_vectors(rule, [&] {
      const RowUpdater<T, Values, Rule> updater = all;
      const T* from = gradients;
      for (uint32_t row = 0; from < gradients + gradient.count;
           ++row, from += width + (gradient.counted ? 1 : 0)) {
        if (!is_no_row(from)) updater.update(row, from, [&] { return first_of(row); });
      }
    });
  }
}

uint64_t Table::place_of(uint32_t array, uint32_t owner, uint64_t at) const {
  if (!partition_.ids_declared()) return place_in(array, partition_.range_of(owner).first) + at;
  const uint64_t width = array_width(array);
  return partition_.row_key_at(owner, at / width) * width + at % width;
}

bool Table::place_part(uint32_t array, uint32_t owner, uint64_t first,
                       std::span<const std::byte> part) {
  const size_t bytes = bytes_of_dtype(dtype(array));
  const uint64_t count = part.size() / bytes;
  const uint64_t owned = owned_elements(owner, array);
  // A peer's numbers, so no sum that could wrap.
  if (first > owned || count > owned - first) return false;
  for (uint64_t done = 0; done < count;) {
    // Rows that lie together in a shard lie apart in a mirror.
    const uint64_t run = std::min(count - done, run_at(array, first + done));
    std::memcpy(&arrays_[array][place_of(array, owner, first + done) * bytes], &part[done * bytes],
                run * bytes);
    done += run;
  }
  return true;
}

bool Table::write_section(const Section& section) {
  const SectionHeader& header = section.header;
  const size_t number_bytes = bytes_of_dtype(dtype(header.part));
  const size_t row_bytes = array_width(header.part) * number_bytes;
  const std::span<const std::byte> payload = section.payload;
  if (!partition_.ids_declared()) {
    const Range here = place_in(
        header.part, sharded_ ? partition_.range_of(rank_) : Range{0, partition_.elements()});
    // Wraps to a huge number if it lies before.
    const uint64_t at = header.first - here.first;
    if (header.encoding != Encoding::kDense || at > here.count || header.count > here.count - at ||
        payload.size() != header.count * number_bytes) {
      return false;
    }
    if (header.count == 0) return true;
    if (device_ != nullptr) {
      store()->write({.array = header.part, .first = at, .count = header.count},
                     {payload.begin(), payload.end()});
      return true;
    }
    std::memcpy(&arrays_[header.part][at * number_bytes], payload.data(), payload.size());
    return true;
  }
  if (header.encoding != Encoding::kRows ||
      payload.size() != header.count * (sizeof(uint32_t) + row_bytes)) {
    return false;
  }
  const auto row_key_at = [&](uint32_t i) {
    uint32_t row_key;
    std::memcpy(&row_key, payload.data() + i * sizeof row_key, sizeof row_key);
    return row_key;
  };
  // All of them before the first is written: what is refused leaves the table as it was, for those
  // who read what is left of a job that failed.
  for (uint32_t i = 0; i < header.count; ++i) {
    const uint32_t row_key = row_key_at(i);
    if (row_key >= partition_.rows() || (sharded_ && partition_.owner_of(row_key) != rank_)) {
      return false;
    }
  }
  const std::byte* values = payload.data() + header.count * sizeof(uint32_t);
  if (device_ != nullptr) {
    std::vector<uint32_t> rows(header.count);
    for (uint32_t i = 0; i < header.count; ++i) {
      rows[i] = static_cast<uint32_t>(row_of(row_key_at(i)));
    }
    store()->write({.array = header.part, .count = header.count, .list = rows.data()},
                   {values, payload.data() + payload.size()});
    return true;
  }
  const Writing writing(mark_);
  for (uint32_t i = 0; i < header.count; ++i, values += row_bytes) {
    std::memcpy(&arrays_[header.part][row_of(row_key_at(i)) * row_bytes], values, row_bytes);
  }
  return true;
}

void Table::take_own_part(const Table& mirror) {
  PARALLAX_CHECK(updates_.place(0, std::as_bytes(mirror.updates_.all())));
  for (uint32_t array = 0; array < array_count_; ++array) {
    const uint64_t count = element_count(array);
    const size_t bytes = bytes_of_dtype(dtype(array));
    for (uint64_t done = 0; done < count;) {
      const uint64_t run = std::min(count - done, run_at(array, done));
      std::memcpy(&arrays_[array][done * bytes],
                  &mirror.arrays_[array][place_of(array, rank_, done) * bytes], run * bytes);
      done += run;
    }
  }
}

}  // namespace parallax
