// SPDX-License-Identifier: Apache-2.0
// MeetingDirectory: the directory of a "file:" meeting, and the small files in it. Opened once, and
// from then on reached by its descriptor alone: another that takes its place is none of ours.
//
// Whoever can write there could join the job, speak for its ranks, or lay traps for them, so it is
// taken only if it belongs to this user or root and nobody else may write to it. Within it no
// symbolic link is followed, nothing but plain files is read, none past kMeetingFileBytesMax, and
// no call waits for a pipe's other end. Const methods may be called by several threads; each
// blocks on the file system at most.
#ifndef PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_DIRECTORY_H_
#define PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_DIRECTORY_H_

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/endpoint.h"
#include "transport/shm/unique_fd.h"

namespace parallax {

inline constexpr size_t kMeetingFileBytesMax = kEndpointBytesMax + 256;

class MeetingDirectory {
 public:
  // Makes it (mode 0700) if it is not there. INVALID: whose it is and the remedy.
  static Status open(const std::string& path, MeetingDirectory* directory);
  static Status open_existing(const std::string& path, MeetingDirectory* directory);

  const std::string& path() const { return path_; }
  std::string path_of(const std::string& name) const { return path_ + "/" + name; }

  Status list(std::vector<std::string>* names) const;
  bool has(const std::string& name) const;
  // *there: false, and OK, if there is none of that name. *file is left open. IO: it cannot be
  // read, or is none of ours.
  Status read(const std::string& name, std::string* content, bool* there, UniqueFd* file) const;
  Status read(const std::string& name, std::string* content, bool* there) const;
  // Of a file of ours that is open: 0 or an errno; EFBIG past kMeetingFileBytesMax.
  static int read_all(const UniqueFd& file, std::string* content);
  // A new file, open for writing. *exists: there is one already, and an error is returned.
  Status create(const std::string& name, UniqueFd* file, bool* exists) const;
  // The one that all read and add to, made by whoever comes first.
  Status open_shared(const std::string& name, UniqueFd* file) const;
  Status write(const UniqueFd& file, const std::string& name, const std::string& content) const;
  // Seen whole or not at all. One writer for each name.
  Status replace(const std::string& name, const std::string& content) const;

  // Removes the files for whose names `is_ours` holds, and the directory itself, unless another
  // lies in its place by now. Other ranks may still add to it for a moment. IO: something is left.
  Status remove(const std::function<bool(const std::string&)>& is_ours) const;
  // False: it was removed, or another lies in its place.
  bool is_in_place() const;

 private:
  Status check_owner() const;
  int open_file(const std::string& name, int flags, UniqueFd* file) const;

  std::string path_;
  UniqueFd directory_;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_RENDEZVOUS_MEETING_DIRECTORY_H_
