// SPDX-License-Identifier: Apache-2.0
// A launcher's word for a rank that can say nothing any more: those that wait for it in the
// directory of a "file:" meeting hear of it at once.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_WITNESS_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_WITNESS_H_

#include <cstdint>
#include <string>

namespace parallax {

struct EndedRank {
  uint32_t rank = 0;
  std::string host;
  std::string how;  // "killed by signal 9 (Killed)", "exited with status 0"
};

// To be called again and again, since ranks may begin to meet, or meet again, after it has ended.
// Does nothing while no rank is in the meeting, nor where the rank is through with it, where a
// process that lives has its number, or where the meeting is one of fewer ranks. Blocks on the file
// system at most.
void tell_of_ended(const std::string& directory, const EndedRank& ended);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_WITNESS_H_
