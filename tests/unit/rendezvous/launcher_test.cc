// SPDX-License-Identifier: Apache-2.0
// What launchers' environments come to, and each way in which one can be wrong.
#include "rendezvous/launcher.h"

#include <gtest/gtest.h>

#include <map>

namespace parallax {
namespace {

using Variables = std::map<std::string, std::string>;

Status read(const Variables& variables, Launched* launched) {
  return read_launcher(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::string() : found->second;
      },
      launched);
}

bool launched_by(const Variables& variables) {
  return is_launched([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

const Variables kOwn = {{"PARALLAX_RANK", "2"},
                        {"PARALLAX_WORLD", "4"},
                        {"PARALLAX_RENDEZVOUS", "tcp:127.0.0.1:29500"},
                        {"PARALLAX_HOST", "b"}};
const Variables kTorchrun = {{"RANK", "3"},        {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "3"},  {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"PMIX_NAMESPACE", "3735879681"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},
                          {"SLURM_NTASKS", "8"},
                          {"SLURM_NNODES", "2"},
                          {"SLURM_JOB_NODELIST", "gpu[003-004]"},
                          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"}};

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

struct Expected {
  const char* what;
  Variables variables;
  uint32_t rank;
  uint32_t world;
  std::string rendezvous;
};

TEST(Launcher, is_there) {
  for (const Variables& variables : {kOwn, kTorchrun, kOpenMpi, kSlurm}) {
    EXPECT_TRUE(launched_by(variables)) << variables.begin()->first;
  }
  EXPECT_TRUE(launched_by({{"WORLD_SIZE", "2"}})) << "though RANK is missing";
  EXPECT_FALSE(launched_by({{"PARALLAX_RENDEZVOUS", "env"}, {"MASTER_ADDR", "a"}}));
}

TEST(Launcher, each_is_understood) {
  const std::string slurm = std::to_string(port_of_job("slurm-77.0")) + "#slurm-77.0";
  const std::string ompi = std::to_string(port_of_job("ompi-3735879681")) + "#ompi-3735879681";
  const Expected cases[] = {
      {"ours", kOwn, 2, 4, "tcp:127.0.0.1:29500"},
      {"ours, alone", {{"PARALLAX_RANK", "0"}, {"PARALLAX_WORLD", "1"}}, 0, 1, ""},
      {"torchrun", kTorchrun, 3, 8, "tcp:a:29501"},
      {"torchrun on one node", with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}}), 3, 8,
       "tcp:127.0.0.1:29501"},
      {"torchrun, named", with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "run"}}), 3, 8,
       "tcp:a:29501#run"},
      {"torchrun, IPv6", with(kTorchrun, {{"MASTER_ADDR", "fd00::1"}}), 3, 8,
       "tcp:[fd00::1]:29501"},
      {"torchrun, port given", with(kTorchrun, {{"PARALLAX_PORT", "4000"}}), 3, 8, "tcp:a:4000"},
      {"torchrun inside Slurm", with(kSlurm, kTorchrun), 3, 8, "tcp:a:29501"},
      {"torchrun, rendezvous set", with(kTorchrun, {{"PARALLAX_RENDEZVOUS", "file:/x"}}), 3, 8,
       "file:/x"},
      {"Open MPI, asked for", with(kOpenMpi, {{"PARALLAX_RENDEZVOUS", "env"}}), 1, 2,
       "tcp:127.0.0.1:" + ompi},
      {"Open MPI", kOpenMpi, 1, 2, "tcp:127.0.0.1:" + ompi},
      {"Open MPI on two nodes",
       with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"MASTER_ADDR", "a"}}), 1, 2,
       "tcp:a:" + ompi},
      {"Slurm", kSlurm, 5, 8, "tcp:gpu003:" + slurm},
      {"Slurm on one node", with(kSlurm, {{"SLURM_NNODES", "1"}}), 5, 8, "tcp:127.0.0.1:" + slurm},
      {"Slurm without a list", with(kSlurm, {{"SLURM_JOB_NODELIST", ""}}), 5, 8,
       "tcp:10.0.0.1:" + slurm},
      {"a step of Slurm",
       with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_STEP_NUM_NODES", "1"}}), 5, 6,
       "tcp:127.0.0.1:" + slurm},
  };
  for (const Expected& one : cases) {
    Launched launched;
    const Status status = read(one.variables, &launched);
    EXPECT_TRUE(status.ok()) << one.what << ": " << status.message();
    EXPECT_EQ(launched.rank, one.rank) << one.what;
    EXPECT_EQ(launched.world, one.world) << one.what;
    EXPECT_EQ(launched.rendezvous, one.rendezvous) << one.what;
  }
}

TEST(Launcher, what_is_wrong_is_named) {
  struct Case {
    Variables variables;
    const char* sentence;
  };
  const Case cases[] = {
      {{{"PARALLAX_RENDEZVOUS", "tcp:127.0.0.1:29500"}}, "PARALLAX_RENDEZVOUS is set, but"},
      {{{"PARALLAX_RENDEZVOUS", "env"}, {"MASTER_ADDR", "a"}}, "MASTER_ADDR is set, but"},
      {{{"MASTER_PORT", "29500"}}, "that of no launcher: set PARALLAX_RANK and PARALLAX_WORLD"},
      {{{"LOCAL_WORLD_SIZE", "2"}}, "LOCAL_WORLD_SIZE is set, but"},
      {{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}, "to be one rank alone, unset it"},
      {{{"PARALLAX_RANK", "0"}}, "PARALLAX_WORLD is not set"},
      {{{"PARALLAX_WORLD", "2"}}, "PARALLAX_RANK is not set"},
      {with(kOwn, {{"PARALLAX_RENDEZVOUS", ""}}), "PARALLAX_RENDEZVOUS is not"},
      {with(kOwn, {{"PARALLAX_RENDEZVOUS", "env"}}), "PARALLAX_RENDEZVOUS is not"},
      {with(kOwn, {{"PARALLAX_RANK", "4"}}), "PARALLAX_RANK is 4, but PARALLAX_WORLD is 4"},
      {with(kOwn, {{"PARALLAX_RANK", "two"}}), "PARALLAX_RANK is 'two'"},
      {with(kOwn, {{"PARALLAX_RANK", "-1"}}), "PARALLAX_RANK is '-1'"},
      {with(kOwn, {{"PARALLAX_RANK", "99999999999"}}), "PARALLAX_RANK is '99999999999'"},
      {with(kOwn, {{"PARALLAX_WORLD", "0"}}), "PARALLAX_WORLD is '0'"},
      {{{"RANK", "0"}}, "WORLD_SIZE is not set"},
      {with(kTorchrun, {{"MASTER_ADDR", ""}}), "MASTER_ADDR is not"},
      {with(kTorchrun, {{"MASTER_PORT", ""}}), "neither PARALLAX_PORT nor MASTER_PORT"},
      {with(kTorchrun, {{"MASTER_PORT", "65535"}}), "MASTER_PORT is '65535'"},
      {with(kTorchrun, {{"PARALLAX_PORT", "0"}}), "PARALLAX_PORT is '0'"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE is '9'"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", ""}}), "OMPI_COMM_WORLD_SIZE is not set"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}), "set MASTER_ADDR"},
      {with(kOpenMpi, {{"PMIX_NAMESPACE", ""}}), "PARALLAX_PORT"},
      {with(kSlurm, {{"SLURM_NTASKS", ""}}), "SLURM_STEP_NUM_TASKS is not set"},
      {with(kSlurm, {{"SLURM_JOB_NODELIST", ""}, {"SLURM_LAUNCH_NODE_IPADDR", ""}}),
       "SLURM_JOB_NODELIST is not set"},
  };
  for (const Case& one : cases) {
    Launched launched;
    const Status status = read(one.variables, &launched);
    EXPECT_EQ(status.code(), PARALLAX_INVALID) << one.sentence;
    EXPECT_NE(status.message().find(one.sentence), std::string::npos) << status.message();
  }
}

TEST(Launcher, ports_and_node_lists) {
  EXPECT_EQ(port_of_job("a"), port_of_job("a"));
  EXPECT_NE(port_of_job("a"), port_of_job("b"));
  for (int job = 0; job < 1000; ++job) {
    const uint16_t port = port_of_job(std::to_string(job));
    EXPECT_TRUE(port >= 20000 && port < 30000) << port;
  }
  EXPECT_EQ(first_of_node_list("gpu[003-006,009],cpu1"), "gpu003");
  EXPECT_EQ(first_of_node_list("gpu[007,009]"), "gpu007");
  EXPECT_EQ(first_of_node_list("cpu1,gpu[1-2]"), "cpu1");
  EXPECT_EQ(first_of_node_list("rack[1-2]n[05-06]x"), "rack1n05x");
  EXPECT_EQ(first_of_node_list("alone"), "alone");
  EXPECT_EQ(first_of_node_list("broken[1-2"), "");
  EXPECT_EQ(first_of_node_list(""), "");
}

TEST(Launcher, names_of_jobs) {
  using Variables = std::map<std::string, std::string>;
  const std::pair<Variables, const char*> cases[] = {
      {{}, ""},
      {{{"MASTER_PORT", "1"}}, ""},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}},
       "master port 29500 of a"},
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_NAMESPACE", "vm-1@1"}}, "ompi-vm-1@1"},
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"SLURM_PROCID", "1"}}, ""},
      {{{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}}, "slurm-7.1"},
      {{{"SLURM_JOB_ID", "7"}}, ""},
      {{{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "\033[2J"}}, "slurm-?[2J."},
  };
  for (const auto& [variables, job] : cases) {
    const Environment environment = [&variables = variables](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::string() : found->second;
    };
    EXPECT_EQ(job_of_launcher(environment), job);
  }
}

// Given options, expect the environment to count for "env" alone, and not against them.
TEST(Launcher, options_and_environment) {
  const Environment environment = [](const char* name) {
    const auto found = kOwn.find(name);
    return found == kOwn.end() ? std::string() : found->second;
  };
  Launched launched;
  parallax_options_t options{};
  ASSERT_TRUE(apply_launcher(environment, false, &launched, &options).ok());
  EXPECT_EQ(options.world, 0U) << "who asks for nothing is one rank alone";
  options.rendezvous = "env";
  ASSERT_TRUE(apply_launcher(environment, false, &launched, &options).ok());
  EXPECT_EQ(options.rank, 2U);
  EXPECT_EQ(options.world, 4U);
  EXPECT_STREQ(options.rendezvous, "tcp:127.0.0.1:29500");
  EXPECT_STREQ(options.host, "b");
  options.rendezvous = "env";
  options.host = "mine";
  ASSERT_TRUE(apply_launcher(environment, false, &launched, &options).ok())
      << "the same numbers will do";
  EXPECT_STREQ(options.host, "mine");
  options.rendezvous = "env";
  options.world = 5;
  const Status status = apply_launcher(environment, false, &launched, &options);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_NE(status.message().find("rank 2 of 4"), std::string::npos) << status.message();
}

// Given nothing of a launcher, expect one rank alone, and a program that wants several to be told.
TEST(Launcher, none_is_one_rank_alone) {
  for (const Variables& variables :
       {Variables{}, {{"PARALLAX_RENDEZVOUS", "env"}}, {{"PARALLAX_HOST", "b"}}}) {
    const Environment environment = [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::string() : found->second;
    };
    EXPECT_FALSE(is_launched(environment));
    for (const uint32_t world : {0u, 1u}) {
      Launched launched;
      parallax_options_t options{};
      options.rendezvous = "env";
      options.world = world;
      const Status status = apply_launcher(environment, false, &launched, &options);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(options.rank, 0u);
      EXPECT_EQ(options.world, 1u);
      EXPECT_EQ(options.rendezvous, nullptr);
    }
    Launched launched;
    parallax_options_t options{};
    options.rendezvous = "env";
    options.rank = 1;
    options.world = 2;
    const Status status = apply_launcher(environment, false, &launched, &options);
    EXPECT_EQ(status.code(), PARALLAX_INVALID);
    EXPECT_NE(status.message().find("by the environment of no launcher this is rank 0 of 1"),
              std::string::npos)
        << status.message();
  }
}

// Given a rendezvous that the program did not set, expect rank and world from the launcher.
TEST(Launcher, where_from_outside_and_who_by_the_launcher) {
  const Environment environment = [](const char* name) {
    const std::string_view asked = name;
    if (asked == "RANK") return "1";
    return asked == "WORLD_SIZE" ? "3" : "";
  };
  constexpr const char* kWhere = "tcp:127.0.0.1:29500";
  Launched launched;
  parallax_options_t options{};
  options.rendezvous = kWhere;
  ASSERT_TRUE(apply_launcher(environment, false, &launched, &options).ok());
  EXPECT_EQ(options.world, 0U) << "a rendezvous that the program set is its own affair";
  options.world = 2;
  ASSERT_TRUE(apply_launcher(environment, true, &launched, &options).ok());
  EXPECT_EQ(options.world, 2U) << "so are rank and world that it set";
  options.world = 0;
  ASSERT_TRUE(apply_launcher(environment, true, &launched, &options).ok());
  EXPECT_EQ(options.rank, 1U);
  EXPECT_EQ(options.world, 3U);
  EXPECT_STREQ(options.rendezvous, kWhere);
  options = {};
  options.rendezvous = kWhere;
  const Environment nobody = [](const char*) { return ""; };
  ASSERT_TRUE(apply_launcher(nobody, true, &launched, &options).ok());
  EXPECT_EQ(options.world, 0U);
}

}  // namespace
}  // namespace parallax
