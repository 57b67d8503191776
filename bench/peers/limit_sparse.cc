// SPDX-License-Identifier: Apache-2.0
// What this machine allows of sparse steps: processes that fork() from one and have everything in
// common memory, without any check, lease or failure handling. Row `id` of a table lies with rank
// id % N. Each rank reads the rows it looks up out of the others' tables, sums its gradients by id
// once, and updates its own tables out of what all ranks have summed. Not a contender but the
// column to measure against.
//
// Variants: `alloc`, gradients lie in common memory, and a row that came once stays where it is;
// `private`, all are copied.
//
// Of rows kept as bf16, by SGD alone, it is a Hogwild loop (Niu et al., 2011): each rank takes each
// of its gradients off the row where that lies, without sums, owners or any wait. Updates are lost
// where two ranks meet, and rounded to nothing where a row is large: there is nothing to check.
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <thread>

#include "base/vector_code.h"
#include "flags.h"
#include "rows.h"

namespace parallax::peers {
namespace {

constexpr uint32_t kWorldMax = 16;
constexpr uint64_t kReserved = uint64_t{256} << 30;  // addresses; memory is had as it is touched

struct Control {
  Flag here[kWorldMax];
};

class LimitSparse final : public Sparse {
 public:
  LimitSparse(uint32_t rank, uint32_t world, char* memory)
      : Sparse(rank, world),
        crowded_(world > std::thread::hardware_concurrency()),
        control_(reinterpret_cast<Control*>(memory)),
        memory_(memory + 4096 * ((sizeof(Control) + 4095) / 4096)) {}

 protected:
  void open(const SparseStep& step) override {
    step_ = step;
    if (step.is_bf16 && step.rule != Rule::kSgd) fail("of bf16 it knows SGD alone");
    wait_for_all();
    if (rank_ == 0 && used_ > 0 && madvise(memory_, used_, MADV_REMOVE) != 0) {
      fail("cannot give memory back");
    }
    lay_out();
    if (used_ > kReserved / 2) fail("more than is reserved");
    wait_for_all();
    values_ = std::vector<float>(step.values);
    own_ = std::vector<float>(step.values);
    half_values_ = std::vector<uint16_t>(step.is_bf16 ? step.values : 0);
    half_own_ = half_values_;
  }

  Buffers choose(const std::string& variant) override {
    alloc_ = variant == "alloc";
    runs_ = 0;
    return {alloc_ ? std::span(rows_of(rank_), step_.values) : std::span(own_), values_};
  }

  Took run(const int64_t* ids, const int64_t* /*next*/) override {
    if (step_.is_bf16) return run_hogwild(ids);
    const int64_t start_ns = now_ns();
    look_up(ids);
    const int64_t looked_up_ns = now_ns();
    compute(step_);
    in_vectors([&] { stage(ids); });
    wait_for_all();
    in_vectors([&] { update_own(); });
    wait_for_all();
    return {looked_up_ns - start_ns, now_ns() - start_ns};
  }

  // Each rank's sum is taken off by itself, and rounded.
  float sgd_tolerance() const override {
    return step_.is_bf16 ? std::numeric_limits<float>::infinity()
                         : static_cast<float>(world_) * std::numeric_limits<float>::epsilon();
  }

 private:
  struct Staged {
    int32_t place;
    uint32_t row;  // of the table, in its rank's memory
  };

  template <typename T>
  T* at(uint32_t rank, uint64_t offset) const {
    return reinterpret_cast<T*>(memory_ + rank * stride_ + offset);
  }
  // Of a rank: gradients of all tables, then rows summed.
  float* rows_of(uint32_t rank) const { return at<float>(rank, 0); }
  uint32_t* ends_of(uint32_t rank, size_t table) const {
    return at<uint32_t>(rank, ends_) + table * world_;
  }
  float* row_of(uint32_t rank, const Table& table, uint32_t row) const {
    const bool given = row < table.ids;
    return rows_of(rank) + (given ? 0 : step_.values) + table.first_value +
           (given ? row : row - table.ids) * table.width;
  }

  void lay_out() {
    uint64_t next = 0;
    const auto take = [&](uint64_t bytes) {
      const uint64_t offset = next;
      next += (bytes + 4095) / 4096 * 4096;
      return offset;
    };
    take(2 * step_.values * sizeof(float));
    staged_ = take(step_.ids * sizeof(Staged));
    ends_ = take(step_.tables.size() * world_ * sizeof(uint32_t));
    tables_.clear();
    states_.clear();
    for (const auto& table : step_.tables) {
      const uint64_t bytes = (table.rows / world_ + 1) * table.width *
                             (step_.is_bf16 ? sizeof(uint16_t) : sizeof(float));
      tables_.push_back(take(bytes));
      states_.push_back(take(step_.rule == Rule::kAdagrad ? bytes : 0));
    }
    stride_ = next;
    used_ = std::max(used_, next * world_);
  }

  void wait_for_all() {
    post(control_->here[rank_], ++round_);
    for (uint32_t each = 0; each < world_; ++each) await(control_->here[each], round_, crowded_);
  }

  // What is given has no more digits than bf16 has, but noise, of which the rest is cut off.
  Took run_hogwild(const int64_t* ids) {
    const std::span<const float> given = alloc_ ? std::span(rows_of(rank_), step_.values) : own_;
    for (size_t i = 0; i < given.size(); ++i) half_own_[i] = upper_half(given[i]);
    // Those that check what was looked up are no race.
    constexpr uint32_t kChecks = 3;
    const bool checks = runs_++ < kChecks;
    const int64_t start_ns = now_ns();
    for_half_rows(ids, half_values_, [](uint16_t* row, uint16_t* value, uint64_t width) {
      std::memcpy(value, row, width * sizeof(uint16_t));
    });
    const int64_t looked_up_ns = now_ns();
    if (checks) wait_for_all();
    compute(step_);
    in_vectors([&] {
      for_half_rows(ids, half_own_, [](uint16_t* row, const uint16_t* gradient, uint64_t width) {
        for (uint64_t i = 0; i < width; ++i)
          row[i] = rounded_half(whole(row[i]) - kLearningRate * whole(gradient[i]));
      });
    });
    const Took took = {looked_up_ns - start_ns, now_ns() - start_ns};
    if (checks) wait_for_all();
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = whole(half_values_[i]);
    return took;
  }
  // Calls each(row, of, width) for each id: its row, and its place in `side`.
  template <typename Each>
  void for_half_rows(const int64_t* ids, std::span<uint16_t> side, const Each& each) const {
    uint16_t* of = side.data();
    for (size_t table = 0; table < step_.tables.size(); ++table) {
      const auto& in = step_.tables[table];
      for (uint64_t i = 0; i < in.ids; ++i, of += in.width) {
        const auto id = static_cast<uint64_t>(*ids++);
        each(at<uint16_t>(id % world_, tables_[table]) + id / world_ * in.width, of, in.width);
      }
    }
  }
  static float whole(uint16_t half) {
    return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  }
  static uint16_t upper_half(float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  }
  // The nearest, of ties the even one; of what is finite.
  static uint16_t rounded_half(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }

  void look_up(const int64_t* ids) {
    float* to = values_.data();
    for (size_t table = 0; table < step_.tables.size(); ++table) {
      const auto& of = step_.tables[table];
      for (uint64_t each = 0; each < of.ids; ++each, to += of.width) {
        const auto id = static_cast<uint32_t>(*ids++);
        const float* const rows = at<float>(id % world_, tables_[table]);
        std::memcpy(to, rows + id / world_ * of.width, of.width * sizeof(float));
      }
    }
  }

  // Sums this rank's gradients by id, and lists them by owner.
  void stage(const int64_t* ids) {
    for (size_t table = 0; table < step_.tables.size(); ++table) {
      const auto& of = step_.tables[table];
      rows_.clear();
      ids_.clear();
      uint32_t summed = 0;
      index_.begin(of.ids);
      uint32_t* const ends = ends_of(rank_, table);
      std::fill_n(ends, world_, 0);
      for (uint64_t each = 0; each < of.ids; ++each) {
        const auto id = static_cast<int32_t>(ids[of.first_id + each]);
        const auto next = static_cast<uint32_t>(rows_.size());
        const uint32_t number = index_.number(id, next);
        if (number == next) {
          ids_.push_back(id);
          rows_.push_back(first_row(of, each, summed));
          ++ends[static_cast<uint32_t>(id) % world_];
        } else {
          add(of, rows_[number], each, summed);
        }
      }
      list(table);
    }
  }

  uint32_t first_row(const Table& table, uint64_t each, uint32_t& summed) {
    if (alloc_) return static_cast<uint32_t>(each);
    const auto row = static_cast<uint32_t>(table.ids) + summed++;
    std::copy_n(&own_[table.first_value + each * table.width], table.width,
                row_of(rank_, table, row));
    return row;
  }

  // Adds the gradient of an id that came before, whose sum is `row` so far.
  void add(const Table& table, uint32_t& row, uint64_t each, uint32_t& summed) {
    const float* const from =
        (alloc_ ? rows_of(rank_) : own_.data()) + table.first_value + each * table.width;
    const float* before = row_of(rank_, table, row);
    if (row < table.ids) row = static_cast<uint32_t>(table.ids) + summed++;
    float* const sum = row_of(rank_, table, row);
    for (uint64_t i = 0; i < table.width; ++i) sum[i] = before[i] + from[i];
  }

  void list(size_t table) {
    auto* const staged = at<Staged>(rank_, staged_) + step_.tables[table].first_id;
    uint32_t* const ends = ends_of(rank_, table);
    uint32_t next[kWorldMax] = {};
    for (uint32_t owner = 1; owner < world_; ++owner)
      next[owner] = next[owner - 1] + ends[owner - 1];
    for (size_t each = 0; each < ids_.size(); ++each) {
      const auto id = static_cast<uint32_t>(ids_[each]);
      staged[next[id % world_]++] = {static_cast<int32_t>(id / world_), rows_[each]};
    }
    std::copy_n(next, world_, ends);
  }

  void update_own() {
    for (size_t table = 0; table < step_.tables.size(); ++table) {
      const auto& of = step_.tables[table];
      float* const rows = at<float>(rank_, tables_[table]);
      if (step_.rule == Rule::kSgd) {
        for_given(table, [&](int32_t place, const float* gradient) {
          update(Rule::kSgd, rows + static_cast<uint64_t>(place) * of.width, nullptr, gradient,
                 of.width);
        });
        continue;
      }
      sum_own(table);
      for (size_t each = 0; each < ids_.size(); ++each) {
        const uint64_t first = static_cast<uint64_t>(ids_[each]) * of.width;
        update(step_.rule, rows + first, at<float>(rank_, states_[table]) + first, sums_[each],
               of.width);
      }
    }
  }

  // Calls each(place, gradient) of what all ranks have for this one, in the order of ranks.
  template <typename Each>
  void for_given(size_t table, const Each& each) const {
    const auto& of = step_.tables[table];
    for (uint32_t rank = 0; rank < world_; ++rank) {
      const uint32_t* const ends = ends_of(rank, table);
      const auto* const staged = at<const Staged>(rank, staged_) + of.first_id;
      for (uint32_t i = rank_ == 0 ? 0 : ends[rank_ - 1]; i < ends[rank_]; ++i) {
        each(staged[i].place, row_of(rank, of, staged[i].row));
      }
    }
  }

  // Sums by place: ids_ and sums_. What one rank alone has stays where it is.
  void sum_own(size_t table) {
    const uint64_t width = step_.tables[table].width;
    ids_.clear();
    sums_.clear();
    index_.begin(step_.tables[table].ids * world_);
    make_scratch(step_.tables[table].ids * world_ * width);
    float* free = scratch_.data();
    for_given(table, [&](int32_t place, const float* gradient) {
      const auto next = static_cast<uint32_t>(sums_.size());
      const uint32_t number = index_.number(place, next);
      if (number == next) {
        ids_.push_back(place);
        sums_.push_back(gradient);
        return;
      }
      const float* const before = sums_[number];
      const bool is_summed = before >= scratch_.data() && before < free;
      float* const sum = is_summed ? scratch_.data() + (before - scratch_.data()) : free;
      if (!is_summed) free += width;
      for (uint64_t i = 0; i < width; ++i) sum[i] = before[i] + gradient[i];
      sums_[number] = sum;
    });
  }
  void make_scratch(uint64_t count) {
    if (scratch_.size() < count) scratch_.resize(count);
  }

  const bool crowded_;  // more ranks than processors
  Control* const control_;
  char* const memory_;
  SparseStep step_;
  bool alloc_ = false;
  uint32_t round_ = 0, runs_ = 0;                           // the latter since the last choice
  uint64_t stride_ = 0, used_ = 0, staged_ = 0, ends_ = 0;  // ends: of a table, of each owner
  std::vector<uint64_t> tables_, states_;
  std::vector<float> values_, own_, scratch_;
  std::vector<uint16_t> half_values_, half_own_;
  RowIndex index_;
  std::vector<int32_t> ids_;
  std::vector<uint32_t> rows_;
  std::vector<const float*> sums_;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER WORLD
int main(int count, char** all) {
  using namespace parallax::peers;
  const std::string folder = argument(count, all, 1);
  const auto world = static_cast<uint32_t>(std::stoul(argument(count, all, 2)));
  if (world > kWorldMax) fail("at most 16 ranks");
  void* const memory = mmap(nullptr, kReserved, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("cannot reserve memory");
  uint32_t rank = 0;
  while (rank + 1 < world && fork() == 0) ++rank;
  {
    LimitSparse limit(rank, world, static_cast<char*>(memory));
    serve(limit, rank, folder);
  }
  int status = 0;
  const bool has_child = wait(&status) > 0;
  return has_child && status != 0 ? 1 : 0;
}
