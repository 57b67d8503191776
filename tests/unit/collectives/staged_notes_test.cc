// SPDX-License-Identifier: Apache-2.0
// What notes may say of this rank itself. (Of others: the cases of exchanges that are garbage, and
// what lies there, host_rows_test.cc.)
#include "collectives/staged_notes.h"

#include <gtest/gtest.h>

#include "unit/message/outbox_fixture.h"

namespace parallax {
namespace {

TEST(StagedNotes, OfThisRankItselfNoBufferIsNamed) {
  const HostMap hosts = map_hosts(std::vector<std::string>{"a", "a"});
  const Columns columns(hosts, 0);
  const Partition partition(64, 3, true, SlotMap::of_ranks(2, kSlotsPerOwner), 0);
  outbox_tests::RecordingTransport transport;
  const Lending lending(transport);
  const ExchangeOptions options = {.rows_max = 8};
  const StagedNotes notes(columns, partition, lending, options, 12);
  const StagedNote right = {
      .block = {}, .slice = {}, .rows = 2, .items = 5, .first = 1, .count = 4, .slice_rows = 7};
  EXPECT_TRUE(notes.fits_own(right, 7));
  EXPECT_FALSE(notes.fits_own(right, 0)) << "its rows do not stay";
  StagedNote wrong = right;
  wrong.block.buffer = 1;
  EXPECT_FALSE(notes.fits_own(wrong, 7));
  wrong = right;
  wrong.slice.buffer = 1;
  EXPECT_FALSE(notes.fits_own(wrong, 7));
  wrong = right;
  wrong.items = 9;
  EXPECT_FALSE(notes.fits_own(wrong, 7)) << "more than rows_max";
  wrong = right;
  wrong.count = 5;
  EXPECT_FALSE(notes.fits_own(wrong, 7));
  wrong = right;
  wrong.rows = 6;
  EXPECT_FALSE(notes.fits_own(wrong, 7));
}

}  // namespace
}  // namespace parallax
