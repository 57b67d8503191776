// SPDX-License-Identifier: Apache-2.0
// RendezvousEnd: why a rendezvous in a directory is over, and which ranks no longer need it.
//
//   verdict   lines "CODE sentence"; the first that is whole counts, so all ranks say the same
//   done.R    rank R no longer needs the rendezvous: it is through, left, was lost, or ended before
//             it came. Made by R, or by the rank that noticed its loss
//
// Each rank keeps the verdict file open, so that it can read the verdict even after another rank
// has removed the directory. The rank that finds all ranks done removes the directory. One thread.
#ifndef PARALLAX_RENDEZVOUS_RENDEZVOUS_END_H_
#define PARALLAX_RENDEZVOUS_RENDEZVOUS_END_H_

#include <cstdint>

#include "rendezvous/rendezvous_directory.h"

namespace parallax {

class RendezvousEnd {
 public:
  // `directory` outlives this object.
  Status open(const RendezvousDirectory& directory);

  // After this no verdict is read or pronounced.
  void close() { verdict_.reset(); }

  // OK while the rendezvous is not over.
  Status verdict() const;
  // `why` is an error; an earlier verdict stays. Best effort: if it cannot be written, the others
  // take this rank for lost.
  void pronounce(const Status& why) const;

  void mark_done(uint32_t rank) const;
  bool is_done(uint32_t rank) const;
  // Removes the directory if all ranks of the world are done.
  void remove_if_last(uint32_t world) const;

 private:
  const RendezvousDirectory* directory_ = nullptr;
  UniqueFd verdict_;
};

// Whether ranks make a file of this name; no other file is ever removed.
bool is_rendezvous_file(const std::string& name);

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_RENDEZVOUS_END_H_
