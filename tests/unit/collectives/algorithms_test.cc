// SPDX-License-Identifier: Apache-2.0
// The tables of algorithms: every shape and method has one, and each may be taken where its row
// says and nowhere else.
#include "collectives/algorithms.h"

#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>

namespace parallax {
namespace {

std::set<std::string> applying(const DenseShape& shape) {
  std::set<std::string> names;
  for (const DenseAlgorithm& each : kDenseAlgorithms) {
    if (each.applies(shape)) names.insert(each.name);
  }
  return names;
}

// Given every shape, expect the direct one always, and what has an order of its own only where sums
// need none, come back, and are of ranks on some hosts.
TEST(Algorithms, WhatNeedsNoOrderMayGoAnyWay) {
  for (uint32_t hosts = 1; hosts <= 64; ++hosts) {
    for (const uint64_t elements : {0u, 1u, 65536u, 65537u, 1u << 22}) {
      for (uint32_t other = 0; other < 4; ++other) {
        const DenseShape shape = {.elements = elements,
                                  .hosts = hosts,
                                  .ranks = 2 * hosts,
                                  .ordered = other == 1,
                                  .returned = other != 2,
                                  .of_hosts = other == 3};
        std::set<std::string> expected = {"direct"};
        if (other == 0 && hosts > 2 && elements > 0) {
          expected.insert("ring");
          if (elements / shape.ranks <= 32768) expected.insert("halving");
          if (elements <= 65536) expected.insert("tree");
        }
        ASSERT_EQ(applying(shape), expected) << elements << " elements, " << hosts << " hosts";
      }
    }
  }
}

// Given few elements, of few ranks of one host or of a host each, expect one shot exactly where
// they come back and are the framework's.
TEST(Algorithms, FewElementsOfFewRanksMayGoInOneShot) {
  for (uint32_t ranks = 1; ranks <= 12; ++ranks) {
    for (uint32_t hosts = 1; hosts <= ranks; ++hosts) {
      for (const uint64_t elements :
           {1u, 512u, 1023u, 1024u, 1025u, 2047u, 2048u, 8192u, 8193u, 16'384u, 16'385u}) {
        for (const bool ordered : {false, true}) {
          for (uint32_t other = 0; other < 5; ++other) {
            const DenseShape shape = {.elements = elements,
                                      .hosts = hosts,
                                      .ranks = ranks,
                                      .ordered = ordered,
                                      .returned = other != 1,
                                      .of_hosts = other == 2,
                                      .held = other != 3,
                                      .element_bytes = other == 4 ? 8u : 4u};
            const bool flat = hosts == 1 || hosts == ranks;
            // Of two ranks of one host less: they share a sum of 8 KiB.
            const bool of_two = hosts == 1 && ranks == 2;
            const uint64_t most = of_two ? (other == 4 ? 1023 : 2047)
                                         : (other == 4 ? 4096 : 8192) * (hosts == 1 ? 1 : 2);
            const bool oneshot = (other == 0 || other == 4) && flat && ranks > 1 && ranks <= 8 &&
                                 elements * (ranks - 1) <= most;
            ASSERT_EQ(applying(shape).contains("oneshot"), oneshot)
                << elements << " elements, " << hosts << " hosts, " << ranks << " ranks";
          }
        }
      }
    }
  }
}

// Given one host, expect levels where it has several domains of memory, some of them with several
// ranks, and sums need no order.
TEST(Algorithms, DomainsOfOneHostMayBeLevels) {
  const auto may = [](DenseShape shape) { return applying(shape).contains("levels"); };
  EXPECT_TRUE(may({.elements = 1, .ranks = 8, .domains = 2}));
  EXPECT_TRUE(may({.elements = 1, .ranks = 3, .domains = 2}));
  EXPECT_FALSE(may({.elements = 1, .ranks = 8, .domains = 1}));
  EXPECT_FALSE(may({.elements = 1, .ranks = 8, .domains = 8}));
  EXPECT_FALSE(may({.elements = 0, .ranks = 8, .domains = 2}));
  EXPECT_FALSE(may({.elements = 1, .ranks = 8, .domains = 2, .ordered = true}));
  EXPECT_FALSE(may({.elements = 1, .ranks = 8, .domains = 2, .returned = false}));
}

// Given the names of methods, expect what comes back to be as plans say.
TEST(Algorithms, TheWayBackIsTheMethods) {
  for (const RowAlgorithm& algorithm : kRowAlgorithms) {
    EXPECT_EQ(algorithm.down == ReturnTo::kNobody, algorithm.method == Method::kPushPull)
        << algorithm.name << ": an owner keeps what is sharded, all others want the sum";
    EXPECT_EQ(algorithm.up == ReduceTo::kEveryHost, algorithm.down == ReturnTo::kOwnHost)
        << algorithm.name << ": who has every host's part sends it on within the host alone";
    EXPECT_EQ(&row_algorithm_for(algorithm.method), &algorithm);
  }
}

// Given the tables, expect every row to have a name of its own.
TEST(Algorithms, NamesAreTheirOwn) {
  std::set<std::string> names;
  for (const DenseAlgorithm& algorithm : kDenseAlgorithms) {
    EXPECT_FALSE(std::string(algorithm.description).empty());
    names.insert(algorithm.name);
  }
  EXPECT_EQ(names.size(), std::size(kDenseAlgorithms));
  EXPECT_EQ(std::string(direct_algorithm().name), "direct");
  std::set<std::string> of_rows;
  for (const RowAlgorithm& algorithm : kRowAlgorithms) of_rows.insert(algorithm.name);
  EXPECT_EQ(of_rows.size(), std::size(kRowAlgorithms));
}

TEST(Algorithms, AMethodOfNoRowIsOurBug) {
  EXPECT_THROW(row_algorithm_for(static_cast<Method>(99)), InternalError);
}

}  // namespace
}  // namespace parallax
