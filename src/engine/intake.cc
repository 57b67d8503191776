// SPDX-License-Identifier: Apache-2.0
// Messages, section by section. See intake.h.
#include "engine/intake.h"

#include <string>

#include "message/kinds.h"

namespace parallax {

Status misfit(const HostMap& hosts, uint32_t rank, const std::string& what) {
  return internal(rank_name(hosts, rank) + " " + what +
                  "; check that all ranks run the same version")
      .about_peer(rank);
}

std::byte* Intake::place(uint32_t from, std::span<const std::byte> head, size_t rest_bytes) {
  if (!parts_.failure.job_goes_on() || !parts_.failure.status().ok()) return nullptr;
  SectionReader reader(head, rest_bytes);
  Section section;
  if (!parts_.traffic.is_next(from, reader) || !reader.next(&section)) return nullptr;
  return parts_.handlers.place(from, section);
}

void Intake::take(uint32_t from, SectionReader reader, size_t bytes) {
  parts_.pass.settle(false);
  FirstFailure& failure = parts_.failure;
  if (!failure.job_goes_on()) return;
  if (!parts_.traffic.take(from, reader, bytes)) return;
  Section section;
  while (failure.status().ok() && reader.next(&section)) dispatch(from, section);
  if (failure.status().ok() && reader.malformed()) {
    failure.fail(internal(rank_name(parts_.hosts, from) +
                          " sent a malformed message; check that all ranks run the same "
                          "version and that no stranger reaches the job's ports")
                     .about_peer(from),
                 SectionKind::kAbort, from);
  }
}

void Intake::dispatch(uint32_t from, Section section) {
  const SectionHeader& header = section.header;
  parts_.traffic.take_section(from, header);
  const bool legible = !SectionDecoder::is_coded(header) || decoder_.decode(&section);
  if (legible && parts_.handlers.take(from, section)) return;
  if (!parts_.failure.status().ok()) return;
  parts_.failure.fail(
      misfit(parts_.hosts, from,
             std::string("sent a message that does not fit (") + name_of(header.kind) +
                 ", variable or tag " + std::to_string(header.tag) + ", step " +
                 std::to_string(header.step) + ")"),
      SectionKind::kAbort, from);
}

}  // namespace parallax
