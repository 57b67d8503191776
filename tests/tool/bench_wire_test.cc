// SPDX-License-Identifier: Apache-2.0
// Figures and formats of `parallax bench wire`, against texts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tool/bench/wire_figures.h"
#include "tool/bench/wire_way.h"

namespace parallax::tool::bench {
namespace {

WireLine line(uint64_t bytes, Way way, WireForm form, std::vector<double> times_us) {
  WireLine made;
  made.bytes = bytes;
  made.way = way;
  made.form = form;
  made.iterations = 100;
  made.times_us = std::move(times_us);
  return made;
}

WireRun two_hosts() {
  WireRun run;
  run.version = "9.8.7";
  run.hosts = 2;
  run.warmups = 5;
  run.checks = 1;
  run.repeats = 3;
  run.ways = {{"tcp", "one connection to 10.0.0.2"}, {"verbs_send", "NOT RUN: no device"}};
  run.lines = {line(65536, Way::kTcp, WireForm::kPingPong, {70, 60, 80}),
               line(65536, Way::kTcp, WireForm::kStream, {40, 50, 60}),
               line(65536, Way::kUcx, WireForm::kPingPong, {100, 100, 100}),
               line(65536, Way::kUcx, WireForm::kStream, {40, 40, 40}),
               line(65536, Way::kAllreduce, WireForm::kStep, {140, 140, 140}),
               line(65536, Way::kPushPull, WireForm::kStep, {280, 280, 280})};
  run.lines[5].legs = 2;
  run.lines[5].share = 0.75;
  settle(&run);
  return run;
}

TEST(BenchWire, MediansOfRepeats) {
  WireRun run;
  run.lines = {line(1000, Way::kTcp, WireForm::kStream, {5, 1, 9}),
               line(1000, Way::kTcp, WireForm::kPingPong, {5, 1, 9, 4})};
  settle(&run);
  EXPECT_DOUBLE_EQ(run.lines[0].time_us, 5);
  EXPECT_DOUBLE_EQ(run.lines[0].time_us_min, 1);
  EXPECT_DOUBLE_EQ(run.lines[0].time_us_max, 9);
  EXPECT_DOUBLE_EQ(run.lines[0].gb_s, 0.2);
  EXPECT_DOUBLE_EQ(run.lines[1].time_us, 4.5);
}

TEST(BenchWire, SharesOfTheWire) {
  const WireRun run = two_hosts();
  EXPECT_DOUBLE_EQ(run.lines[0].of_wire, 1) << "the fastest ping-pong is the wire's";
  EXPECT_DOUBLE_EQ(run.lines[1].of_wire, 0.8) << "streams are compared with streams";
  EXPECT_DOUBLE_EQ(run.lines[2].of_wire, 0.7);
  EXPECT_DOUBLE_EQ(run.lines[3].of_wire, 1);
  EXPECT_DOUBLE_EQ(run.lines[4].of_wire, 0.5) << "bytes one way";
  EXPECT_DOUBLE_EQ(run.lines[5].of_wire, 70 * 2 * 0.75 / 280) << "there and back";
  EXPECT_DOUBLE_EQ(run.lines[5].gb_s, 65536 * 2 * 0.75 / 280 / 1e3);
}

TEST(BenchWire, WhatHasNoShare) {
  WireRun run = two_hosts();
  run.hosts = 1;
  settle(&run);
  EXPECT_LT(run.lines[4].of_wire, 0) << "shared memory is no wire";
  EXPECT_DOUBLE_EQ(run.lines[2].of_wire, 0.7);
  run.hosts = 2;
  run.lines.erase(run.lines.begin(), run.lines.begin() + 4);
  settle(&run);
  EXPECT_LT(run.lines[0].of_wire, 0) << "nothing raw was timed";
}

TEST(BenchWire, AReadsRoundTripIsNoMeasureOfOneWay) {
  WireRun run;
  run.lines = {line(8, Way::kVerbsRead, WireForm::kPingPong, {1}),
               line(8, Way::kVerbsSend, WireForm::kPingPong, {2}),
               line(8, Way::kVerbsRead, WireForm::kStream, {1}),
               line(8, Way::kVerbsSend, WireForm::kStream, {2})};
  settle(&run);
  EXPECT_DOUBLE_EQ(run.lines[1].of_wire, 1);
  EXPECT_DOUBLE_EQ(run.lines[3].of_wire, 0.5);
}

TEST(BenchWire, Table) {
  WireRun run = two_hosts();
  run.lines[3].wrong = 2;
  EXPECT_EQ(wire_table(run),
            "# parallax bench wire: libparallax 9.8.7, 2 ranks, 2 hosts\n"
            "# tcp: one connection to 10.0.0.2\n"
            "# verbs_send: NOT RUN: no device\n"
            "# medians of 3 repeats, the ways in turn; warm-ups 5, checked 1\n"
            "#     size          way       form        time    algbw  of wire  #wrong\n"
            "#      (B)                                (us)   (GB/s)                 \n"
            "     65536          tcp  ping-pong       70.00    0.936     1.00       0\n"
            "     65536          tcp     stream       50.00    1.311     0.80       0\n"
            "     65536          ucx  ping-pong      100.00    0.655     0.70       0\n"
            "     65536          ucx     stream       40.00    1.638     1.00       2\n"
            "     65536    allreduce       step      140.00    0.468     0.50       0\n"
            "     65536    push_pull       step      280.00    0.351     0.38       0\n"
            "# Out of bounds values : 2 FAILED\n");
  run.checks = 0;
  run.hosts = 1;
  EXPECT_NE(wire_table(run).find("shared memory"), std::string::npos);
  EXPECT_NE(wire_table(run).find("    N/A\n"), std::string::npos) << "not checked";
  EXPECT_NE(wire_table(run).find("NOT CHECKED"), std::string::npos);
}

TEST(BenchWire, LayoutOfOsu) {
  EXPECT_EQ(wire_osu(two_hosts()),
            "# parallax bench wire: libparallax 9.8.7, 2 ranks, 2 hosts\n"
            "# tcp: one connection to 10.0.0.2\n"
            "# verbs_send: NOT RUN: no device\n"
            "\n# parallax bench wire: tcp ping-pong\n"
            "# Size            Latency (us)\n"
            "65536                    70.00\n"
            "\n# parallax bench wire: tcp stream\n"
            "# Size        Bandwidth (MB/s)\n"
            "65536                  1310.72\n"
            "\n# parallax bench wire: ucx ping-pong\n"
            "# Size            Latency (us)\n"
            "65536                   100.00\n"
            "\n# parallax bench wire: ucx stream\n"
            "# Size        Bandwidth (MB/s)\n"
            "65536                  1638.40\n"
            "\n# parallax bench wire: allreduce step\n"
            "# Size         Avg Latency(us)\n"
            "65536                   140.00\n"
            "\n# parallax bench wire: push_pull step\n"
            "# Size         Avg Latency(us)\n"
            "65536                   280.00\n");
}

TEST(BenchWire, LayoutOfUcxPerftest) {
  WireRun run = two_hosts();
  run.ways.clear();
  run.lines.resize(2);
  run.lines[0].times_us = {70, 60, 95};
  EXPECT_EQ(wire_ucx(run),
            "# parallax bench wire: libparallax 9.8.7, 2 ranks, 2 hosts\n"
            "+-------------------------------------------------------------------------------------"
            "---------------------+\n"
            "| Test:         tcp ping-pong                                                         "
            "                     |\n"
            "| Message size: 65536                                                                 "
            "                     |\n"
            "+--------------+--------------+------------------------------+---------------------+--"
            "---------------------+\n"
            "|              |              |        latency (usec)        |   bandwidth (MB/s)  |  "
            "message rate (msg/s) |\n"
            "+--------------+--------------+----------+---------+---------+----------+----------+--"
            "---------+-----------+\n"
            "|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  "
            "average  |  overall  |\n"
            "+--------------+--------------+----------+---------+---------+----------+----------+--"
            "---------+-----------+\n"
            "Final:                   100     70.000    75.000    75.000     892.86     833.33     "
            "  14286       13333\n"
            "+-------------------------------------------------------------------------------------"
            "---------------------+\n"
            "| Test:         tcp stream                                                            "
            "                     |\n"
            "| Message size: 65536                                                                 "
            "                     |\n"
            "+--------------+--------------+------------------------------+---------------------+--"
            "---------------------+\n"
            "|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  "
            "message rate (msg/s) |\n"
            "+--------------+--------------+----------+---------+---------+----------+----------+--"
            "---------+-----------+\n"
            "|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  "
            "average  |  overall  |\n"
            "+--------------+--------------+----------+---------+---------+----------+----------+--"
            "---------+-----------+\n"
            "Final:                   100     50.000    50.000    50.000    1250.00    1250.00     "
            "  20000       20000\n");
}

TEST(BenchWire, CsvAndJsonHaveTheSameCells) {
  WireRun run = two_hosts();
  run.lines.resize(1);
  run.lines[0].times_us = {64, 32, 128};
  settle(&run);
  EXPECT_EQ(wire_csv(run),
            "size,way,form,iters,time_us,time_us_min,time_us_max,gb_s,of_wire,wrong\n"
            "65536,tcp,ping-pong,100,64.0,32.0,128.0,1.024,1.0,0\n");
  const auto json = nlohmann::json::parse(wire_json(run));
  EXPECT_EQ(json["ways"]["verbs_send"], "NOT RUN: no device");
  EXPECT_EQ(json["hosts"], 2);
  EXPECT_EQ(json["lines"][0]["time_us_max"], 128);
  run.checks = 0;
  run.lines[0].of_wire = -1;
  EXPECT_TRUE(nlohmann::json::parse(wire_json(run))["lines"][0]["of_wire"].is_null());
  EXPECT_EQ(wire_csv(run).find(",,\n") != std::string::npos, true) << "empty cells";
}

TEST(BenchWire, EveryWrongByteIsCounted) {
  std::vector<std::byte> message(100'000);
  for (uint32_t seed = 0; seed < 3; ++seed) {
    fill_pattern(seed, message);
    EXPECT_EQ(count_wrong(seed, message), 0u);
    message[99'999] ^= std::byte{1};
    message[0] ^= std::byte{128};
    EXPECT_EQ(count_wrong(seed, message), 2u);
  }
  // A message that is another, late, or empty, differs nearly everywhere.
  fill_pattern(1, message);
  EXPECT_GT(count_wrong(2, message), 90'000u);
  EXPECT_GT(count_wrong(1, std::vector<std::byte>(100'000)), 90'000u);
  const std::span<const std::byte> shifted = std::span(message).subspan(4096);
  EXPECT_GT(count_wrong(1, shifted), 80'000u);
}

TEST(BenchWire, MoreMessagesOfSmallSizes) {
  WireOptions options;
  EXPECT_EQ(iterations_of(options, 8), 1000u);
  EXPECT_EQ(iterations_of(options, 1 << 20), 100u);
  EXPECT_EQ(iterations_of(options, 64 << 20), 20u);
  options.iterations = 7;
  EXPECT_EQ(iterations_of(options, 8), 7u);
}

}  // namespace
}  // namespace parallax::tool::bench
