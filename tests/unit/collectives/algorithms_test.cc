// SPDX-License-Identifier: Apache-2.0
// The tables of algorithms: every shape and method has one, and each is taken where its row says
// and nowhere else.
#include "collectives/algorithms.h"

#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>

namespace parallax {
namespace {

std::string chosen(const DenseShape& shape) { return dense_algorithm_for(shape).name; }

// Given every world and order, and elements around the bounds, expect the tree exactly where a
// small unordered sum of ranks crosses many hosts and comes back, and the ring where a large one
// does.
TEST(Algorithms, EveryShapeHasOne) {
  for (uint32_t hosts = 1; hosts <= 64; ++hosts) {
    for (const uint64_t elements : {0u, 1u, 1023u, 1024u, 1025u, 1u << 20, 1u << 22}) {
      for (const bool ordered : {false, true}) {
        for (const bool returned : {false, true}) {
          for (const bool of_hosts : {false, true}) {
            const DenseShape shape = {.elements = elements,
                                      .hosts = hosts,
                                      .ranks = 2 * hosts,
                                      .ordered = ordered,
                                      .returned = returned,
                                      .of_hosts = of_hosts};
            const bool tree = elements <= 1024 && hosts > 8 && !ordered && returned && !of_hosts;
            ASSERT_EQ(chosen(shape) == "tree", tree)
                << elements << " elements, " << hosts << " hosts";
            const bool ring =
                elements / (2 * hosts) >= 65536 && hosts > 15 && !ordered && returned && !of_hosts;
            ASSERT_EQ(chosen(shape) == "ring", ring)
                << elements << " elements, " << hosts << " hosts";
          }
        }
      }
    }
  }
}

// Given few elements, of few ranks of one host or of a host each, expect one shot exactly where
// they come back and are the framework's, fewer of them where they must cross between more than two
// hosts.
TEST(Algorithms, FewElementsOfFewRanksGoInOneShot) {
  for (uint32_t ranks = 1; ranks <= 12; ++ranks) {
    for (uint32_t hosts = 1; hosts <= ranks; ++hosts) {
      for (const uint64_t elements : {1u, 512u, 1024u, 1025u, 4096u, 8192u, 8193u}) {
        for (const bool ordered : {false, true}) {
          for (uint32_t other = 0; other < 4; ++other) {
            const DenseShape shape = {.elements = elements,
                                      .hosts = hosts,
                                      .ranks = ranks,
                                      .ordered = ordered,
                                      .returned = other != 1,
                                      .of_hosts = other == 2,
                                      .held = other != 3};
            const bool flat = hosts == 1 || hosts == ranks;
            const uint64_t most = hosts > 2 ? 1024 : 8192;
            const bool oneshot =
                other == 0 && flat && ranks > 1 && ranks <= 8 && elements * (ranks - 1) <= most;
            ASSERT_EQ(chosen(shape) == "oneshot", oneshot)
                << elements << " elements, " << hosts << " hosts, " << ranks << " ranks";
          }
        }
      }
    }
  }
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

// Given the tables, expect every row to have a name of its own and to be taken for some shape.
TEST(Algorithms, EveryRowIsReached) {
  std::set<std::string> names, taken;
  for (const DenseAlgorithm& algorithm : kDenseAlgorithms) {
    EXPECT_FALSE(std::string(algorithm.description).empty());
    names.insert(algorithm.name);
  }
  EXPECT_EQ(names.size(), std::size(kDenseAlgorithms));
  for (const uint64_t elements : {uint64_t{1}, uint64_t{1} << 24}) {
    for (const uint32_t hosts : {1u, 4u, 64u}) {
      for (const bool held : {false, true}) {
        taken.insert(chosen({.elements = elements, .hosts = hosts, .ranks = hosts, .held = held}));
      }
    }
  }
  EXPECT_EQ(taken, names);
  std::set<std::string> of_rows;
  for (const RowAlgorithm& algorithm : kRowAlgorithms) of_rows.insert(algorithm.name);
  EXPECT_EQ(of_rows.size(), std::size(kRowAlgorithms));
}

TEST(Algorithms, AMethodOfNoRowIsOurBug) {
  EXPECT_THROW(row_algorithm_for(static_cast<Method>(99)), InternalError);
}

}  // namespace
}  // namespace parallax
