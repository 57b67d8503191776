// SPDX-License-Identifier: Apache-2.0
#include "engine/device_terms.h"

#include <gtest/gtest.h>

namespace parallax {
namespace {

DeviceTerms able(uint32_t library, uint32_t driver) {
  DeviceTerms terms;
  terms.wanted = terms.able = true;
  terms.library_version = library;
  terms.driver_version = driver;
  return terms;
}

TEST(DeviceTerms, ReadsBackWhatItWroteAndRefusesWhatIsCut) {
  DeviceTerms terms = able(22809, 13000);
  terms.has_id = true;
  terms.id.bytes[127] = std::byte{9};
  terms.why = "rank 1: none";
  terms.places = {{.host = 0, .rank = 1, .device = {.bus = "0000:3b:00.0", .uuid = "u"}},
                  {.host = 2, .rank = 7, .device = {}}};
  std::string text;
  terms.encode(&text);
  for (size_t size = 0; size < text.size(); ++size) {
    auto in = std::as_bytes(std::span(text)).first(size);
    DeviceTerms read;
    EXPECT_FALSE(read.decode(&in)) << size;
  }
  text += "behind";
  auto in = std::as_bytes(std::span(text));
  DeviceTerms read;
  ASSERT_TRUE(read.decode(&in));
  EXPECT_EQ(in.size(), 6u);
  EXPECT_TRUE(read.wanted && read.able && read.has_id);
  EXPECT_EQ(read.id.bytes[127], std::byte{9});
  EXPECT_EQ(read.why, terms.why);
  ASSERT_EQ(read.places.size(), 2u);
  EXPECT_EQ(read.places[0].device.bus, "0000:3b:00.0");
  EXPECT_EQ(read.places[0].device.uuid, "u");
  EXPECT_EQ(read.places[1].rank, 7u);
  EXPECT_EQ(read.versions(), "NCCL 2.28.9 and a driver of CUDA 13.0");
  text[0] = 2;
  in = std::as_bytes(std::span(text));
  EXPECT_FALSE(read.decode(&in)) << "neither yes nor no";
}

// What devices say of themselves is told as it is: those that differ in the last byte are two.
TEST(DeviceTerms, NamesAreToldWholeOrNotAtAll) {
  const std::string same(DevicePlace::kTextMax - 1, 'm');
  DeviceTerms own = able(22809, 13000), other = own;
  own.places = {{.host = 0, .rank = 0, .device = {.bus = same + "a", .uuid = same + "1"}}};
  other.places = {{.host = 0, .rank = 1, .device = {.bus = same + "b", .uuid = same + "2"}}};
  std::string text;
  other.encode(&text);
  auto in = std::as_bytes(std::span(text));
  DeviceTerms read;
  ASSERT_TRUE(read.decode(&in));
  own.merge(read);
  EXPECT_TRUE(own.able) << own.why;
  EXPECT_TRUE(own.places[0].fits() && own.places[1].fits());
  DevicePlace longer = own.places[0];
  longer.device.uuid += "0";
  EXPECT_FALSE(longer.fits());
  longer = own.places[0];
  longer.device.bus += "0";
  EXPECT_FALSE(longer.fits());
}

TEST(DeviceTerms, VersionsFit) {
  const DeviceTerms own = able(22809, 13000);
  EXPECT_EQ(own.differs_from(able(22809, 13000)), nullptr);
  EXPECT_EQ(own.differs_from(able(22809, 13010)), nullptr) << "a minor version of the driver";
  EXPECT_STREQ(own.differs_from(able(21805, 13000)), "NCCL");
  EXPECT_STREQ(own.differs_from(able(22809, 12040)), "CUDA");
  DeviceTerms none = able(0, 0);
  none.able = false;
  EXPECT_EQ(own.differs_from(none), nullptr) << "host memory carries all";
}

TEST(DeviceTerms, OneThatGoesAnotherWayLeavesItToTheHost) {
  DeviceTerms own = able(22809, 13000), other = own;
  other.by_host = true;
  std::string text;
  other.encode(&text);
  auto in = std::as_bytes(std::span(text));
  DeviceTerms read;
  ASSERT_TRUE(read.decode(&in));
  EXPECT_TRUE(read.by_host);
  read.merge(other);
  EXPECT_TRUE(read.able);
  own.merge(other);
  EXPECT_FALSE(own.able);
  EXPECT_NE(own.why.find("host on some ranks"), std::string::npos) << own.why;
}

TEST(DeviceTerms, OutOfTheJobsWhereAllCanAndWhoCannotIsSaid) {
  DeviceTerms own = able(22809, 13000), other = own;
  own.out_of_job = OutOfJob::kHeld;
  other.why = "rank 1: it has reductions under way";
  std::string text;
  own.encode(&text);
  auto in = std::as_bytes(std::span(text));
  DeviceTerms read;
  ASSERT_TRUE(read.decode(&in));
  EXPECT_EQ(read.out_of_job, OutOfJob::kHeld);
  own.merge(read);
  EXPECT_EQ(own.out_of_job, OutOfJob::kHeld);
  own.merge(other);
  EXPECT_EQ(own.out_of_job, OutOfJob::kNo);
  EXPECT_EQ(own.why, other.why);
  own.merge(read);
  EXPECT_EQ(own.out_of_job, OutOfJob::kNo) << "whoever else can";
  EXPECT_EQ(own.why, other.why);
  text[24] = 3;
  in = std::as_bytes(std::span(text));
  EXPECT_FALSE(read.decode(&in)) << "no such state";
}

TEST(DeviceTerms, WindowsAreThereWhereAllHaveThem) {
  DeviceTerms own = able(22809, 13000), with = own;
  own.windows = with.windows = true;
  std::string text;
  with.encode(&text);
  auto in = std::as_bytes(std::span(text));
  DeviceTerms read;
  ASSERT_TRUE(read.decode(&in));
  own.merge(read);
  EXPECT_TRUE(own.windows);
  own.merge(able(22809, 13000));
  EXPECT_FALSE(own.windows);
  own.merge(read);
  EXPECT_FALSE(own.windows) << "one is enough";
  EXPECT_TRUE(own.able);
}

TEST(DeviceTerms, OneThatCannotIsHeardByAll) {
  DeviceTerms own = able(22809, 13000), none;
  none.wanted = true;
  none.why = "rank 2: no NCCL";
  own.merge(able(22809, 13000));
  EXPECT_TRUE(own.able);
  own.merge(none);
  EXPECT_FALSE(own.able);
  EXPECT_EQ(own.why, "rank 2: no NCCL");
}

// One device, on one host, is one rank's; what is merged then says so, and of whom.
TEST(DeviceTerms, ADeviceIsOneRanks) {
  const auto of = [](uint32_t host, uint32_t rank, const char* bus, const char* uuid = "") {
    DeviceTerms terms = able(22809, 13000);
    terms.places = {{.host = host, .rank = rank, .device = {.bus = bus, .uuid = uuid}}};
    return terms;
  };
  DeviceTerms merged = of(0, 5, "a");
  merged.merge(of(0, 2, "b"));
  merged.merge(of(1, 3, "a"));
  EXPECT_TRUE(merged.able);
  EXPECT_EQ(merged.places.size(), 3u);
  DeviceTerms others = of(1, 4, "c");
  others.merge(of(0, 1, "a"));
  merged.merge(others);
  EXPECT_FALSE(merged.able);
  EXPECT_NE(merged.why.find("ranks 1 and 5 have one device (a)"), std::string::npos) << merged.why;
  EXPECT_TRUE(merged.places.empty());
  merged.merge(of(0, 9, "a"));
  EXPECT_NE(merged.why.find("ranks 1 and 5"), std::string::npos) << "the first is kept";
  // By either; what is not told is like nothing.
  DeviceTerms unknown = of(0, 0, "");
  unknown.merge(of(0, 1, ""));
  EXPECT_TRUE(unknown.able);
  unknown.merge(of(0, 2, "a", "u"));
  unknown.merge(of(1, 3, "b", "u"));
  EXPECT_TRUE(unknown.able) << "on another host";
  DeviceTerms instances = unknown;
  unknown.merge(of(0, 4, "b", "u"));
  EXPECT_NE(unknown.why.find("ranks 2 and 4 have one device (u)"), std::string::npos)
      << unknown.why;
  instances.merge(of(0, 4, "a", "v"));
  EXPECT_NE(instances.why.find("ranks 2 and 4 have two instances of one GPU (a)"),
            std::string::npos)
      << instances.why;
}

}  // namespace
}  // namespace parallax
