// SPDX-License-Identifier: Apache-2.0
// Payloads with fewer bytes, and as they were. See section_coding.h.
#include "message/section_coding.h"

#include <algorithm>
#include <cstring>

#include "message/number_coding.h"
#include "message/row_key_coding.h"

namespace parallax {

namespace {

// Bytes one behind the other, as far as there is room.
class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}

  std::span<std::byte> rest() const { return out_.subspan(used_); }
  void skip(size_t bytes) { used_ += bytes; }
  // False: there is no room.
  bool copy(std::span<const std::byte> bytes) {
    if (bytes.size() > out_.size() - used_) return false;
    std::copy(bytes.begin(), bytes.end(), rest().begin());
    used_ += bytes.size();
    return true;
  }
  std::span<const std::byte> written() const { return out_.first(used_); }

 private:
  std::span<std::byte> out_;
  size_t used_ = 0;
};

bool holds_rows(Encoding encoding) {
  return encoding == Encoding::kRows || encoding == Encoding::kIds ||
         encoding == Encoding::kValues || encoding == Encoding::kListedRows;
}

}  // namespace

std::span<const std::byte> code_section(const PlainSection& section, SectionCoding coding,
                                        std::span<std::byte> out) {
  const std::span<const std::byte> before = section.payload.first(section.before_bytes);
  const std::span<const std::byte> numbers = section.payload.subspan(section.before_bytes);
  if (section.payload.size() <= sizeof(CodedHead)) return {};
  Writer writer(out.first(section.payload.size() - 1));
  CodedHead head = {.number_bytes = static_cast<uint8_t>(section.number_bytes),
                    .before_bytes = static_cast<uint32_t>(before.size())};
  if (!numbers.empty()) head.numbers = static_cast<uint32_t>(numbers.size() / head.number_bytes);
  writer.skip(sizeof head);
  size_t coded = 0;
  if (coding.row_keys && !section.row_keys.empty()) {
    coded = code_row_keys(section.row_keys, writer.rest());
  }
  if (coded > 0) {
    head.coded |= CodedHead::kRowKeys;
    writer.skip(coded);
  } else if (!writer.copy(before)) {
    return {};
  }
  coded = 0;
  if (coding.numbers && head.numbers > 0) {
    coded = code_numbers(head.number_bytes, numbers.data(), head.numbers, writer.rest());
  }
  if (coded > 0) {
    head.coded |= CodedHead::kNumbers;
    writer.skip(coded);
  } else if (!writer.copy(numbers)) {
    return {};
  }
  if (head.coded == 0) return {};
  std::memcpy(out.data(), &head, sizeof head);
  return writer.written();
}

bool SectionDecoder::decode(Section* section) {
  CodedHead head;
  std::span<const std::byte> coded = section->payload;
  SectionHeader& header = section->header;
  if (!holds_rows(header.encoding) || coded.size() < sizeof head) return false;
  std::memcpy(&head, coded.data(), sizeof head);
  coded = coded.subspan(sizeof head);
  const std::span<std::byte> plain = std::as_writable_bytes(std::span(plain_));
  const size_t numbers_bytes = size_t{head.numbers} * head.number_bytes;
  if (head.before_bytes > plain.size() || numbers_bytes > plain.size() - head.before_bytes ||
      head.coded == 0 || head.coded > (CodedHead::kRowKeys | CodedHead::kNumbers)) {
    return false;
  }
  if ((head.coded & CodedHead::kRowKeys) != 0) {
    size_t used = 0;
    if (head.before_bytes != sizeof(uint32_t) * header.count ||
        !read_row_keys(coded, header.count, plain_.data(), &used)) {
      return false;
    }
    coded = coded.subspan(used);
  } else {
    if (head.before_bytes > coded.size()) return false;
    std::copy_n(coded.begin(), head.before_bytes, plain.begin());
    coded = coded.subspan(head.before_bytes);
  }
  std::byte* const numbers = plain.data() + head.before_bytes;
  if ((head.coded & CodedHead::kNumbers) != 0) {
    if (head.numbers == 0 || !read_numbers(head.number_bytes, coded, head.numbers, numbers)) {
      return false;
    }
  } else {
    if (coded.size() != numbers_bytes) return false;
    std::copy(coded.begin(), coded.end(), numbers);
  }
  section->payload = plain.first(head.before_bytes + numbers_bytes);
  header.payload_bytes = static_cast<uint32_t>(section->payload.size());
  header.flags &= static_cast<uint8_t>(~kSectionCoded);
  return true;
}

}  // namespace parallax
