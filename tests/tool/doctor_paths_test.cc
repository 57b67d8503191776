// SPDX-License-Identifier: Apache-2.0
// What the doctor says of paths when its time is over before it has tried them all.
#include "tool/doctor_paths.h"

#include <gtest/gtest.h>

#include <thread>

#include "tool/answering_port.h"

namespace parallax::tool {
namespace {

constexpr int64_t kTimeNs = 300 * kNanosecondsPerMillisecond;

// Of a rank that answers once, and no more before the time is over.
std::vector<Finding> found_in_time(bool tries_other_ports) {
  AnsweringPort port;
  std::thread answering([&] { (void)port.answer(); });
  Card own, card;
  own.secret = card.secret = 7;
  card.endpoints = {port.endpoint()};
  card.mtus_bytes = {65536};
  if (tries_other_ports) card.other_ports = {port.endpoint().port};
  Findings findings;
  const ListenPlan plan;
  const PathChecks paths = {own, plan, findings, SteadyClock().now_ns() + kTimeNs};
  paths.check("rank 1", card, true);
  answering.join();
  return findings.list();
}

// Given no time left for what a check needs, expect no verdict of it.
TEST(DoctorPaths, WhatThereWasNoTimeForHasNotFailed) {
  for (const bool tries_other_ports : {false, true}) {
    bool reached = false;
    for (const Finding& each : found_in_time(tries_other_ports)) {
      EXPECT_EQ(each.verdict, Verdict::kOk) << each.check << ": " << each.text;
      EXPECT_NE(each.check, "mtu");
      EXPECT_FALSE(tries_other_ports && each.check == "firewall");
      reached = reached || each.check == "reach";
    }
    EXPECT_TRUE(reached);
  }
}

}  // namespace
}  // namespace parallax::tool
