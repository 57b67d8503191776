// SPDX-License-Identifier: Apache-2.0
// Conformance cases of exchanges in which a peer sends what it should not. A section is refused
// when this rank may not be sent it; then it has changed nothing that matters.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "collectives/host_rows.h"
#include "collectives/round_names.h"
#include "message/kinds.h"
#include "support/sanitizers.h"
#include "unit/collectives/exchange_conformance.h"

namespace parallax::exchange_conformance {

namespace {

constexpr std::array kKinds = {
    SectionKind::kLocalReduce,    SectionKind::kHostReduce,      SectionKind::kHostGather,
    SectionKind::kLocalBroadcast, SectionKind::kDenseReduce,     SectionKind::kDenseGather,
    SectionKind::kArrived,        SectionKind::kCensusUp,        SectionKind::kCensusDown,
    SectionKind::kContributorsUp, SectionKind::kContributorsDown};
constexpr size_t kProbedMax = 60;  // sections of one world that are tried in false forms

bool goes_up(SectionKind kind) {
  return kind == SectionKind::kLocalReduce || kind == SectionKind::kHostReduce ||
         kind == SectionKind::kDenseReduce;
}

// Rows on their way up may be more than one section of any rows; all else comes in order, once.
bool in_order(const SectionHeader& header) {
  return header.encoding == Encoding::kDense || !goes_up(header.kind);
}

const char* say(SectionKind kind) { return name_of(kind); }

struct Misfit {
  const char* what;
  Parcel parcel;
};

// What arrives in a step to which every rank contributes: the same for one setting.
std::vector<Parcel> arrivals_of(const Candidate& candidate, const Setting& setting) {
  ExchangeWorld world(candidate, setting);
  const Contributions contributions = draw_contributions(setting, {}, world.random());
  std::vector<Parcel> arrivals;
  world.tap([&](const Parcel& parcel) { arrivals.push_back(parcel); });
  run_step(world, 1, contributions);
  return arrivals;
}

// Runs the step of arrivals_of() with `probe` before each of some arrivals, then expects its sum:
// whatever the probe injected and saw refused must have done no harm.
void run_probed(const Candidate& candidate, const Setting& setting, size_t arrival_count,
                const std::function<void(ExchangeWorld&, const Parcel&, SeededRandom&)>& probe) {
  ExchangeWorld world(candidate, setting);
  const Contributions contributions = draw_contributions(setting, {}, world.random());
  SeededRandom random(setting.seed + 1000);
  world.tap([&](const Parcel& parcel) {
    if (random.below(arrival_count) < kProbedMax) probe(world, parcel, random);
  });
  run_step(world, 1, contributions);
  check_step(world, candidate, 1, contributions);
}

void expect_refused(ExchangeWorld& world, const Misfit& misfit) {
  const Parcel& parcel = misfit.parcel;
  EXPECT_FALSE(world.inject(parcel))
      << misfit.what << ": rank " << parcel.to << " took a section of rank " << parcel.from << ", "
      << say(parcel.header.kind) << ", first " << parcel.header.first << ", count "
      << parcel.header.count << ", " << parcel.payload().size() << " bytes";
}

void add_wrong_sizes(const Candidate& candidate, const ExchangeWorld& world, const Parcel& honest,
                     std::vector<Misfit>* misfits) {
  const auto add = [&](const char* what, auto change) {
    change(misfits->emplace_back(Misfit{what, honest}).parcel);
  };
  const bool several = world.hosts().ranks_of.size() > 1;
  if (candidate.all_send && several && honest.header.count > 0 &&
      honest.header.encoding == Encoding::kRows &&
      (goes_up(honest.header.kind) || candidate.pieces == Pieces::kOwner) &&
      honest.header.kind != SectionKind::kLocalReduce) {
    add("nothing, where that is not said", [](Parcel& parcel) {
      parcel.header.count = 0;
      parcel.header.flags = kSectionLast;
      parcel.bytes.resize(1);
    });
  }
  for (uint8_t encoding = 0; encoding <= static_cast<uint8_t>(Encoding::kValues); ++encoding) {
    if (static_cast<Encoding>(encoding) == honest.header.encoding) continue;
    add("another encoding",
        [&](Parcel& parcel) { parcel.header.encoding = static_cast<Encoding>(encoding); });
  }
  add("one more than there is", [](Parcel& parcel) { ++parcel.header.count; });
  add("all that a count can say", [](Parcel& parcel) { parcel.header.count = UINT32_MAX; });
  add("a byte too long", [](Parcel& parcel) { parcel.bytes.push_back(std::byte{0}); });
  add("a number too long", [](Parcel& parcel) { parcel.bytes.resize(parcel.bytes.size() + 4); });
  if (honest.header.count == 0) return;
  add("one less than there is", [](Parcel& parcel) { --parcel.header.count; });
  add("a count of nothing", [](Parcel& parcel) { parcel.header.count = 0; });
  if (honest.payload().empty()) return;  // its elements are where they belong already
  add("a byte too short", [](Parcel& parcel) { parcel.bytes.pop_back(); });
  add("no payload", [](Parcel& parcel) { parcel.bytes.resize(1); });
  if (honest.bytes.size() == 2) return;
  add("the first byte alone", [](Parcel& parcel) { parcel.bytes.resize(2); });
}

void add_wrong_ranges(const Candidate& candidate, const ExchangeWorld& world, const Parcel& honest,
                      std::vector<Misfit>* misfits) {
  if (honest.header.encoding != Encoding::kDense || honest.header.count == 0) return;
  const uint64_t elements = world.partition().elements();
  const auto add = [&](const char* what, uint64_t first) {
    misfits->emplace_back(Misfit{what, honest}).parcel.header.first = first;
  };
  add("past the end by one element", elements - honest.header.count + 1);
  add("from the end on", elements);
  add("far beyond the end", UINT64_MAX);
  add("where the end wraps", UINT64_MAX - honest.header.count + 1);
  add("an element on", honest.header.first + 1);
  if (honest.header.first > 0) add("an element back", honest.header.first - 1);
  if (!goes_up(honest.header.kind) && !candidate.made_dense) {
    Parcel& parcel = misfits->emplace_back(Misfit{"nothing, of what all gave", honest}).parcel;
    parcel.header.count = 0;
    parcel.header.flags = kSectionLast | kSectionContributed;
    parcel.bytes.resize(1);
  }
  if (candidate.pieces != Pieces::kOwner || !candidate.by_columns) return;
  const Columns& columns = world.columns(honest.to);
  for (uint32_t owner = 0; owner < world.size(); ++owner) {
    const Range range = world.partition().range_of(owner);
    const uint32_t end = goes_up(honest.header.kind) ? honest.to : honest.from;
    const bool theirs = columns.column_of(owner) != columns.column_of(end);
    if (theirs && range.count >= honest.header.count) add("another owner's range", range.first);
  }
}

void add_wrong_positions(const Candidate& candidate, const ExchangeWorld& world,
                         const Parcel& honest, SeededRandom& random, std::vector<Misfit>* misfits) {
  if (honest.header.encoding != Encoding::kRows || honest.header.count == 0) return;
  const Partition& partition = world.partition();
  const uint64_t item = random.below(honest.header.count);
  const auto add = [&](const char* what, uint64_t row_key) {
    Parcel& parcel = misfits->emplace_back(Misfit{what, honest}).parcel;
    const auto written = static_cast<uint32_t>(row_key);
    std::memcpy(&parcel.payload()[item * sizeof written], &written, sizeof written);
  };
  add("the row_key after the last", partition.rows());
  add("all that a row_key can say", UINT32_MAX);
  if (!candidate.whole_row_keys) return;
  const Columns& columns = world.columns(honest.to);
  const bool of_owner = candidate.pieces == Pieces::kOwner;
  for (uint32_t row_key = 0; row_key < partition.rows(); ++row_key) {
    const uint32_t owner =
        candidate.made_dense ? partition.range_owner_of(row_key) : partition.owner_of(row_key);
    const uint32_t column = columns.column_of(owner);
    bool theirs =
        column != (honest.header.kind == SectionKind::kLocalReduce ? honest.header.first >> 32
                                                                   : columns.column_of(honest.to));
    if (!goes_up(honest.header.kind)) {
      // The piece that it is of: an owner's, or a column's.
      theirs = (of_owner ? owner : column) != honest.header.first >> 32;
    } else if (honest.header.kind == SectionKind::kHostReduce && of_owner) {
      theirs = owner != honest.to;
    }
    if (theirs && random.chance(10)) add("another owner's row_key", row_key);
  }
}

// What a rank of the host gives, of a column that there is not.
void add_wrong_columns(const ExchangeWorld& world, const Parcel& honest,
                       std::vector<Misfit>* misfits) {
  if (honest.header.kind != SectionKind::kLocalReduce) return;
  Parcel& parcel = misfits->emplace_back(Misfit{"a column of nobody", honest}).parcel;
  parcel.header.first = uint64_t{world.columns(honest.to).count()} << 32;
}

// Of rows that are read where they lie.
void add_wrong_notes(const Candidate& candidate, const Parcel& honest,
                     std::vector<Misfit>* misfits) {
  if (!candidate.rows || honest.header.kind != SectionKind::kLocalReduce ||
      honest.header.encoding != Encoding::kBytes) {
    return;
  }
  const auto add = [&](const char* what, auto change) {
    Parcel& parcel = misfits->emplace_back(Misfit{what, honest}).parcel;
    StagedNote note;
    std::memcpy(&note, parcel.payload().data(), sizeof note);
    change(note);
    std::memcpy(parcel.payload().data(), &note, sizeof note);
  };
  add("all the rows that a note can say", [](StagedNote& note) { note.rows = UINT32_MAX; });
  add("all the items", [](StagedNote& note) { note.items = UINT32_MAX; });
  add("more rows than items", [](StagedNote& note) { note.rows = note.items + 1; });
  add("items beyond the block's", [](StagedNote& note) { note.first = note.items + 1; });
  add("more items than the block's", [](StagedNote& note) { note.count = note.items + 1; });
  add("all the rows of a slice", [](StagedNote& note) { note.slice_rows = UINT32_MAX; });
  add("where the end wraps", [](StagedNote& note) {
    note.first = 2;
    note.count = UINT32_MAX;
  });
  const bool own = honest.from == honest.to;
  add("a slice in no buffer, or in another's", [=](StagedNote& note) {
    note.slice_rows = std::max(note.slice_rows, 1u);
    note.slice.buffer = own ? 3 : 0;
  });
  add("in no buffer, or another's", [=](StagedNote& note) { note.block.buffer = own ? 3 : 0; });
  if (own) return;
  add("from the end on", [](StagedNote& note) { note.block.offset = uint64_t{1} << 40; });
  add("far beyond the end", [](StagedNote& note) { note.block.offset = UINT64_MAX - 63; });
  add("between two numbers", [](StagedNote& note) { note.block.offset += 2; });
  add("in a buffer that there is not", [](StagedNote& note) { note.block.buffer = 99; });
  const auto of_slice = [&](const char* what, uint64_t offset) {
    add(what, [offset](StagedNote& note) {
      note.slice = {.buffer = note.block.buffer, .offset = offset};
      note.slice_rows = std::max(note.slice_rows, 1u);
    });
  };
  of_slice("a slice from the end on", uint64_t{1} << 40);
  of_slice("a slice between two numbers", 2);
}

const Sweep kHostile = {.sums = {SumType::kF32, SumType::kF64}, .shape = 0, .thinned = 4};
const Sweep kHostileSplit = {.sums = {SumType::kF32, SumType::kF64},
                             .message_bytes_max = kSmallMessageBytes,
                             .shape = 1,
                             .thinned = 8};

}  // namespace

// Given sections with a wrong encoding, size, range or row key, expect each refused, and the
// sum of the others.
void misfits_are_refused(const Candidate& candidate) {
  uint64_t tried = 0;
  const auto probe = [&](ExchangeWorld& world, const Parcel& honest, SeededRandom& random) {
    std::vector<Misfit> misfits;
    add_wrong_sizes(candidate, world, honest, &misfits);
    add_wrong_ranges(candidate, world, honest, &misfits);
    add_wrong_positions(candidate, world, honest, random, &misfits);
    add_wrong_notes(candidate, honest, &misfits);
    add_wrong_columns(world, honest, &misfits);
    for (const Misfit& misfit : misfits) expect_refused(world, misfit);
    tried += misfits.size();
  };
  for (const Sweep& sweep : {kHostile, kHostileSplit}) {
    for_each_setting(candidate, sweep, [&](const Setting& setting) {
      run_probed(candidate, setting, arrivals_of(candidate, setting).size(), probe);
    });
  }
  EXPECT_GT(tried, 1000u);
}

// Given sections of ranks that never send their kind here, and of kinds that are never sent
// here, expect each refused, and the sum of the others.
void strangers_are_refused(const Candidate& candidate) {
  uint64_t tried = 0;
  for_each_setting(candidate, kHostile, [&](const Setting& setting) {
    const std::vector<Parcel> arrivals = arrivals_of(candidate, setting);
    std::map<std::pair<SectionKind, uint32_t>, std::set<uint32_t>> senders;
    for (const Parcel& parcel : arrivals) {
      senders[{parcel.header.kind, parcel.to}].insert(parcel.from);
    }
    if (candidate.all_send) {
      Candidate talkative = candidate;
      talkative.make = candidate.all_send;
      for (const Parcel& parcel : arrivals_of(talkative, setting)) {
        senders[{parcel.header.kind, parcel.to}].insert(parcel.from);
      }
    }
    run_probed(candidate, setting, arrivals.size(),
               [&](ExchangeWorld& world, const Parcel& honest, SeededRandom&) {
                 Misfit misfit = {"a stranger's", honest};
                 Parcel& parcel = misfit.parcel;
                 for (const SectionKind kind : kKinds) {
                   parcel.header.kind = kind;
                   for (uint32_t from = 0; from < world.size(); ++from) {
                     if (from == honest.to || senders[{kind, honest.to}].count(from)) continue;
                     parcel.from = from;
                     expect_refused(world, misfit);
                     ++tried;
                   }
                 }
               });
  });
  EXPECT_GT(tried, 100u);
}

// Given a section once more, while the step is under way (of rows on their way up, the last one),
// and every section once it is finished, and one more of each sender, expect each refused, and the
// sum as it was.
void nothing_follows_the_last(const Candidate& candidate) {
  const auto repeat = [&](const Setting& setting) {
    ExchangeWorld world(candidate, setting);
    const Contributions contributions =
        draw_contributions(setting, {.absent_percent = 20}, world.random());
    std::vector<Parcel> arrivals;
    SeededRandom random(setting.seed + 3000);
    world.tap([&](const Parcel& parcel) {
      if (!arrivals.empty()) {
        const Parcel& earlier = arrivals[random.below(arrivals.size())];
        const bool last = (earlier.header.flags & kSectionLast) != 0;
        if (last || in_order(earlier.header)) expect_refused(world, {"a repeat", earlier});
      }
      arrivals.push_back(parcel);
    });
    run_step(world, 1, contributions);
    for (const Parcel& parcel : arrivals) {
      expect_refused(world, {"a repeat", parcel});
      Misfit empty = {"one more without anything", parcel};
      empty.parcel.header.count = 0;
      empty.parcel.bytes.resize(1);
      expect_refused(world, empty);
      empty.what = "a second last one";
      empty.parcel.header.flags = kSectionLast | kSectionContributed;
      expect_refused(world, empty);
    }
    check_step(world, candidate, 1, contributions);
  };
  for (const Sweep& sweep : {kHostile, kHostileSplit}) for_each_setting(candidate, sweep, repeat);
}

// Given a sender that goes on and on, expect it refused before it has given more than it may:
// nothing is written beyond what was laid out.
void too_much_is_refused(const Candidate& candidate) {
  constexpr uint32_t kRepeatsMax = 2000;  // more sections than any sender's rows or blocks
  for_each_setting(candidate, kHostile, [&](const Setting& drawn) {
    // A loan is refused where nothing is lent; and of rows where they lie there is one note.
    Setting setting = drawn;
    setting.lends = false;
    setting.staged = false;
    const std::vector<Parcel> arrivals = arrivals_of(candidate, setting);
    for (const SectionKind kind : kKinds) {
      const auto found = std::find_if(arrivals.begin(), arrivals.end(), [kind](const Parcel& each) {
        const bool note =
            kind == SectionKind::kLocalReduce && each.header.encoding == Encoding::kBytes;
        return each.header.kind == kind && each.header.count > 0 && !note;
      });
      if (found == arrivals.end()) continue;
      ExchangeWorld world(candidate, setting);
      Parcel parcel = *found;
      parcel.header.flags = 0;
      uint32_t repeats = 0;
      while (repeats < kRepeatsMax && world.inject(parcel)) ++repeats;
      EXPECT_LT(repeats, kRepeatsMax) << say(kind) << " of rank " << parcel.from;
      // A sum of elements is not taken before this rank has given its share.
      // Nor is an answer, before this rank has joined; nor what is of a later round.
      EXPECT_TRUE(repeats > 0 || kind == SectionKind::kDenseGather ||
                  kind == SectionKind::kCensusDown ||
                  RoundNames::chunk_bits_of(parcel.header.part) != 0)
          << say(kind) << " of rank " << parcel.from;
    }
  });
}

// Given any bytes under any header among the sections of a step, expect no harm: it takes or
// refuses them, names no rank that there is not, and goes on. For the sanitizers above all.
void no_section_harms(const Candidate& candidate) {
  const Sweep sweep = {.sums = {SumType::kF32, SumType::kF64}, .seeds = 2, .thinned = 4};
  uint64_t refused = 0;
  for_each_setting(candidate, sweep, [&](const Setting& setting) {
    ExchangeWorld world(candidate, setting);
    world.expect_anything();
    SeededRandom random(setting.seed + 2000);
    const uint64_t elements = world.partition().elements();
    world.tap([&](const Parcel& honest) {
      if (!random.chance(30)) return;
      Parcel parcel = honest;
      SectionHeader& header = parcel.header;
      if (random.chance(30)) header.kind = kKinds[random.below(kKinds.size())];
      if (random.chance(20)) header.encoding = static_cast<Encoding>(random.below(7));
      if (random.chance(50)) header.flags = static_cast<uint8_t>(random.below(4));
      if (random.chance(30)) parcel.from = static_cast<uint32_t>(random.below(world.size()));
      if (random.chance(30)) header.first = random.below(elements + 2);
      if (random.chance(20)) header.count = static_cast<uint32_t>(random.below(300));
      if (random.chance(20)) parcel.bytes.resize(1 + random.below(parcel.bytes.size() + 8));
      for (std::byte& byte : parcel.payload()) {
        if (random.chance(5)) byte = static_cast<std::byte>(random.next());
      }
      header.payload_bytes = static_cast<uint32_t>(parcel.payload().size());
      if (!world.inject(parcel)) ++refused;
    });
    run_step(world, 1, draw_contributions(setting, {.absent_percent = 20}, world.random()));
    world.take_all_back();  // as a job that has failed does
    for (uint32_t rank = 0; rank < world.size(); ++rank) {
      EXPECT_TRUE(world.given_back(rank, 1));
      const MissingRanks missing = world.exchange(rank).missing(1);
      for (const auto& ranks : {missing.to_give, missing.to_return, missing.to_tell}) {
        for (const uint32_t missed : ranks) EXPECT_LT(missed, world.size());
      }
      EXPECT_LE(world.exchange(rank).whole(1).row_count, setting.shape.rows_max * world.size());
    }
  });
  EXPECT_GT(refused, 50u);
}

}  // namespace parallax::exchange_conformance
