// SPDX-License-Identifier: Apache-2.0
// The table of algorithms: every method has one for every shape, and the tree is taken where its
// header says and nowhere else.
#include "collectives/algorithms.h"

#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>

namespace parallax {
namespace {

constexpr Method kMethods[] = {Method::kAllreduce, Method::kAllgatherv, Method::kReduceRows,
                               Method::kMadeDense, Method::kPushPull};

std::string chosen(Method method, const ExchangeShape& shape) {
  return algorithm_for(method, shape).name;
}

// Given every method, world and order, and elements around the bound, expect an algorithm of
// that method, and the tree exactly where a small unordered sum crosses many hosts.
TEST(Algorithms, EveryShapeHasOne) {
  for (const Method method : kMethods) {
    for (uint32_t hosts = 1; hosts <= 64; ++hosts) {
      for (const uint64_t elements : {0u, 1u, 1023u, 1024u, 1025u, 1u << 20}) {
        for (const bool ordered : {false, true}) {
          const Algorithm& algorithm = algorithm_for(method, {elements, hosts, ordered});
          ASSERT_EQ(algorithm.method, method);
          const bool tree =
              method == Method::kAllreduce && elements <= 1024 && hosts > 8 && !ordered;
          ASSERT_EQ(algorithm.up == ReduceTo::kTree, tree)
              << algorithm.name << ", " << elements << " elements, " << hosts << " hosts";
          ASSERT_EQ(algorithm.down == ReturnTo::kTree, tree);
        }
      }
    }
  }
}

// Given the names of methods, expect what crosses the wire and who gets it back to be as
// plans say.
TEST(Algorithms, FormAndWayBackAreTheMethods) {
  for (const Algorithm& algorithm : kAlgorithms) {
    const bool elements =
        algorithm.method == Method::kAllreduce || algorithm.method == Method::kMadeDense;
    EXPECT_EQ(algorithm.dense_wire, elements) << algorithm.name;
    EXPECT_EQ(algorithm.down == ReturnTo::kNobody, algorithm.method == Method::kPushPull)
        << algorithm.name << ": an owner keeps what is sharded, all others want the sum";
    EXPECT_EQ(algorithm.up == ReduceTo::kEveryHost, algorithm.down == ReturnTo::kOwnHost)
        << algorithm.name << ": who has every host's part sends it on within the host alone";
    EXPECT_EQ(algorithm.up == ReduceTo::kTree, algorithm.down == ReturnTo::kTree) << algorithm.name;
  }
}

// Given the table, expect every row to have a name of its own and to be taken for some shape.
TEST(Algorithms, EveryRowIsReached) {
  std::set<std::string> names, taken;
  for (const Algorithm& algorithm : kAlgorithms) {
    EXPECT_FALSE(std::string(algorithm.description).empty());
    names.insert(algorithm.name);
    taken.insert(chosen(algorithm.method, {.elements = 1, .hosts = 64}));
    taken.insert(chosen(algorithm.method, {.elements = 1, .hosts = 1}));
  }
  EXPECT_EQ(names.size(), std::size(kAlgorithms));
  EXPECT_EQ(taken, names);
}

TEST(Algorithms, AMethodOfNoRowIsOurBug) {
  EXPECT_THROW(algorithm_for(static_cast<Method>(99), {}), InternalError);
}

}  // namespace
}  // namespace parallax
