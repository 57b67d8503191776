// SPDX-License-Identifier: Apache-2.0
// FrameStream: frames over a socket, however its bytes are cut, and the end of the connection.
#include "rendezvous/frame_stream.h"

#include "unit/rendezvous/link_kit.h"

namespace parallax {
namespace {

class FrameStreamTest : public ::testing::Test {
 protected:
  FrameStreamTest() {
    std::tie(near_.socket, far_.socket) = link_kit::connected();
    const Key up = derive_key("up", "test");
    const Key down = derive_key("down", "test");
    near_.channel.emplace(up, down);
    far_.channel.emplace(down, up);
  }

  FrameStream near_;
  FrameStream far_;
};

TEST_F(FrameStreamTest, frames_that_arrive_together_are_taken_one_by_one) {
  near_.seal(FrameKind::kBring, "one");
  near_.seal(FrameKind::kBye, "");
  EXPECT_NE(near_.waits().events & POLLOUT, 0);
  ASSERT_TRUE(near_.send());
  EXPECT_EQ(near_.waits().events & POLLOUT, 0);
  ASSERT_TRUE(far_.receive(1000));
  Frame frame;
  ASSERT_EQ(far_.take(&frame), Took::kFrame);
  EXPECT_EQ(frame.body, "one");
  ASSERT_EQ(far_.take(&frame), Took::kFrame);
  EXPECT_EQ(frame.kind, FrameKind::kBye);
  EXPECT_EQ(far_.take(&frame), Took::kMore);
  far_.drop_taken();
  EXPECT_TRUE(far_.in.empty());
}

TEST_F(FrameStreamTest, a_frame_in_pieces_is_taken_when_it_is_whole) {
  near_.seal(FrameKind::kBring, "a blob");
  ASSERT_TRUE(near_.send());
  Frame frame;
  int passes = 0;
  for (; far_.take(&frame) == Took::kMore; ++passes) {
    far_.drop_taken();
    ASSERT_TRUE(far_.receive(7));
  }
  EXPECT_EQ(frame.body, "a blob");
  EXPECT_EQ(passes, (5 + 6 + 32 + 6) / 7);
}

TEST_F(FrameStreamTest, a_frame_of_another_key_breaks) {
  near_.channel.emplace(derive_key("else", "test"), Key());
  near_.seal(FrameKind::kKeepalive, "");
  ASSERT_TRUE(near_.send());
  ASSERT_TRUE(far_.receive(1000));
  Frame frame;
  EXPECT_EQ(far_.take(&frame), Took::kBroken);
}

TEST_F(FrameStreamTest, what_arrived_before_the_end_is_there) {
  near_.seal(FrameKind::kBye, "");
  ASSERT_TRUE(near_.send());
  near_.close();
  EXPECT_FALSE(near_.socket.valid());
  EXPECT_FALSE(far_.receive(1000));
  Frame frame;
  EXPECT_EQ(far_.take(&frame), Took::kFrame);
}

}  // namespace
}  // namespace parallax
