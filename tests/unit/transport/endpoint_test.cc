// SPDX-License-Identifier: Apache-2.0
// Endpoint: what is encoded comes back; nothing else is believed.
#include "transport/endpoint.h"

#include <gtest/gtest.h>

#include <random>

#include "base/check.h"

namespace parallax {
namespace {

std::span<const std::byte> bytes_in(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Endpoint sample() {
  Endpoint endpoint;
  endpoint.version =
      PARALLAX_VERSION_MAJOR * 10000 + PARALLAX_VERSION_MINOR * 100 + PARALLAX_VERSION_PATCH;
  endpoint.rank = 77;
  endpoint.job = 0xfedcba9876543210;
  endpoint.pid = 4711;
  endpoint.carrier = NetworkCarrier::kRdma;
  endpoint.messages_only = true;
  endpoint.host = "gpu03";
  endpoint.machine = "boot/net:[1]";
  endpoint.cores = {
      .mask = std::string("\xff\0\1", 3), .quota_thousandths = 1500, .quota_group = 99};
  endpoint.place = {.node = 3, .cache = 9};
  endpoint.shm_address = "parallax-0123";
  endpoint.network_address = std::string("\0\1\xff bytes", 9);
  endpoint.trouble = "open: no port";
  return endpoint;
}

TEST(Endpoint, round_trip) {
  const Endpoint in = sample();
  Endpoint out;
  const Status status = decode_endpoint(bytes_in(encode_endpoint(in)), &out);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(out.version, in.version);
  EXPECT_EQ(out.rank, in.rank);
  EXPECT_EQ(out.job, in.job);
  EXPECT_EQ(out.pid, in.pid);
  EXPECT_EQ(out.carrier, in.carrier);
  EXPECT_EQ(out.messages_only, in.messages_only);
  EXPECT_EQ(out.host, in.host);
  EXPECT_EQ(out.machine, in.machine);
  EXPECT_EQ(out.cores, in.cores);
  EXPECT_EQ(out.place, NearMemory());
  EXPECT_EQ(out.shm_address, "");
  EXPECT_EQ(out.network_address, "");
  ASSERT_TRUE(decode_addresses(bytes_in(encode_addresses(in)), &out).ok());
  EXPECT_EQ(out.host, in.host);
  EXPECT_EQ(out.place, in.place);
  EXPECT_EQ(out.shm_address, in.shm_address);
  EXPECT_EQ(out.network_address, in.network_address);
  EXPECT_EQ(out.trouble, in.trouble);
}

// What goes to every rank goes once: neither blob holds what the other has.
TEST(Endpoint, addresses_are_in_one_blob_alone) {
  const Endpoint in = sample();
  EXPECT_EQ(encode_endpoint(in).find(in.shm_address), std::string::npos);
  EXPECT_EQ(encode_endpoint(in).find(in.network_address), std::string::npos);
  EXPECT_EQ(encode_addresses(in).find(in.host), std::string::npos);
  EXPECT_EQ(encode_addresses(in).find(in.machine), std::string::npos);
}

TEST(Endpoint, addresses_of_another_rank_are_refused) {
  Endpoint other = sample();
  other.rank = 78;
  const Status status = decode_addresses(bytes_in(encode_addresses(sample())), &other);
  EXPECT_EQ(status.code(), PARALLAX_INVALID);
  EXPECT_EQ(status.message(), "the addresses of rank 77 stand where those of rank 78 belong");
}

TEST(Endpoint, largest_fields_fit_and_larger_ones_are_a_bug) {
  Endpoint in = sample();
  in.host.assign(127, 'h');
  in.machine.assign(127, 'm');
  in.cores.mask.assign(1024, '\xff');
  in.shm_address.assign(107, 's');
  in.network_address.assign(3072, 'u');
  in.trouble.assign(768, 't');
  Endpoint out;
  EXPECT_TRUE(decode_endpoint(bytes_in(encode_endpoint(in)), &out).ok());
  EXPECT_TRUE(decode_addresses(bytes_in(encode_addresses(in)), &out).ok());
  EXPECT_EQ(out.network_address, in.network_address);
  in.network_address += 'u';
  EXPECT_THROW(encode_addresses(in), InternalError);
  in.host += 'h';
  EXPECT_THROW(encode_endpoint(in), InternalError);
}

TEST(Endpoint, another_version_is_refused_by_name) {
  Endpoint in = sample();
  in.version = 20304;
  Endpoint out;
  const Status status = decode_endpoint(bytes_in(encode_endpoint(in)), &out);
  EXPECT_EQ(status.code(), PARALLAX_MISMATCH);
  EXPECT_NE(status.message().find("rank 77 (host gpu03) runs libparallax 2.3.4"), std::string::npos)
      << status.message();
}

TEST(Endpoint, every_cut_and_every_tail_is_refused) {
  const std::string blob = encode_endpoint(sample());
  Endpoint out;
  for (size_t bytes = 0; bytes < blob.size(); ++bytes) {
    const Status status = decode_endpoint(bytes_in(blob.substr(0, bytes)), &out);
    EXPECT_EQ(status.code(), PARALLAX_IO) << bytes;
    EXPECT_FALSE(status.message().empty());
  }
  EXPECT_EQ(decode_endpoint(bytes_in(blob + '\0'), &out).code(), PARALLAX_IO);
  EXPECT_EQ(decode_endpoint(bytes_in(std::string(5000, 'x')), &out).code(), PARALLAX_IO);
}

TEST(Endpoint, every_cut_and_every_tail_of_addresses_is_refused) {
  const std::string blob = encode_addresses(sample());
  Endpoint out;
  out.rank = sample().rank;
  for (size_t bytes = 0; bytes < blob.size(); ++bytes) {
    const Status status = decode_addresses(bytes_in(blob.substr(0, bytes)), &out);
    EXPECT_EQ(status.code(), PARALLAX_IO) << bytes;
  }
  EXPECT_EQ(decode_addresses(bytes_in(blob + '\0'), &out).code(), PARALLAX_IO);
  EXPECT_EQ(decode_addresses(bytes_in(std::string(5000, 'x')), &out).code(), PARALLAX_IO);
  EXPECT_EQ(out.shm_address, "") << "nothing was taken";
}

TEST(Endpoint, trouble_reaches_a_terminal) {
  Endpoint in = sample(), out;
  in.trouble = "open: \x1b[2J";
  out.rank = in.rank;
  EXPECT_EQ(decode_addresses(bytes_in(encode_addresses(in)), &out).code(), PARALLAX_IO);
}

TEST(Endpoint, random_bytes_and_mutations_never_pass_as_more_than_they_are) {
  constexpr uint32_t kSeed = 20240607;
  std::mt19937 random(kSeed);
  const std::string good = encode_endpoint(sample());
  Endpoint out;
  for (int i = 0; i < 20000; ++i) {
    std::string blob = good;
    if (i % 2 == 0) {
      blob.resize(random() % 300);
      for (char& c : blob) c = static_cast<char>(random());
    } else {
      for (uint32_t flips = 1 + random() % 4; flips > 0; --flips) {
        blob[random() % blob.size()] = static_cast<char>(random());
      }
    }
    const Status status = decode_endpoint(bytes_in(blob), &out);
    if (status.ok()) {
      EXPECT_EQ(encode_endpoint(out), blob) << "seed " << kSeed << ", round " << i;
    } else {
      EXPECT_FALSE(status.message().empty());
    }
  }
}

}  // namespace
}  // namespace parallax
