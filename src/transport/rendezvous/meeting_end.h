// SPDX-License-Identifier: Apache-2.0
// MeetingEnd: why a meeting in a directory is over, and who needs it no more.
//
//   verdict   lines "CODE sentence"; the first that is whole counts, so all ranks say the same
//   gone.R    rank R needs the meeting no more: it is through, left, was lost, or ended before it
//             came. Made by R, or by who saw that
//
// Its verdict is held open: what was written there is known to a rank even when another has taken
// the directory away. Whoever finds all ranks gone removes it. One thread.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_END_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_END_H_

#include <cstdint>

#include "transport/rendezvous/meeting_directory.h"

namespace parallax {

class MeetingEnd {
 public:
  // `directory` outlives it.
  Status open(const MeetingDirectory& directory);

  // No verdict is read or pronounced any more.
  void close() { verdict_.reset(); }

  // OK while the meeting is not over.
  Status verdict() const;
  // An error. If there is one already, that stays. Best effort: who cannot write is lost to others.
  void pronounce(const Status& why) const;

  void mark_gone(uint32_t rank) const;
  bool is_gone(uint32_t rank) const;
  // The directory, if all of the world are gone.
  void remove_if_last(uint32_t world) const;

 private:
  const MeetingDirectory* directory_ = nullptr;
  UniqueFd verdict_;
};

// Of a file that ranks make, and only that is ever removed.
bool is_meeting_file(const std::string& name);

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_END_H_
