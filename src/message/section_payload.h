// SPDX-License-Identifier: Apache-2.0
// What of a send goes into its next section, by the section's encoding: how many of its items fit,
// how many bytes they take, and the bytes. Items are counted from Send::packed on. Part of Outbox.
#ifndef PARALLAX_MESSAGE_SECTION_PAYLOAD_H_
#define PARALLAX_MESSAGE_SECTION_PAYLOAD_H_

#include <cstddef>
#include <cstdint>

#include "message/section_coding.h"
#include "message/send_queue.h"

namespace parallax {

// In so many bytes.
uint64_t items_that_fit(const Send& send, size_t room);
// Of so many items: row keys, or bits; and what each takes behind these.
size_t bytes_before_numbers(const Send& send, uint64_t count);
size_t bytes_of_item(const Send& send);
void write_payload(const Send& send, uint64_t count, std::byte* out);
// A section that was just written, as it may be coded.
PlainSection plain_section(const Send& send, const SectionHeader& header, const std::byte* payload);

}  // namespace parallax

#endif  // PARALLAX_MESSAGE_SECTION_PAYLOAD_H_
