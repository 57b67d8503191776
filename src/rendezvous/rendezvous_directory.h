// SPDX-License-Identifier: Apache-2.0
// RendezvousDirectory: the directory of a "file:" rendezvous, and the small files in it. It is
// opened once and from then on reached through that descriptor alone, so that another directory
// moved to its path is never mistaken for it.
//
// Whoever can write there could join the job, forge what its ranks say, or plant links and pipes,
// so the directory is used only if it belongs to this user or root and nobody else may write to it.
// Within it no symbolic link is followed, nothing but plain files of at most
// kRendezvousFileBytesMax is read, and no call waits for the other end of a pipe. Several threads
// may call const methods; each blocks on the file system at most.
#ifndef PARALLAX_RENDEZVOUS_RENDEZVOUS_DIRECTORY_H_
#define PARALLAX_RENDEZVOUS_RENDEZVOUS_DIRECTORY_H_

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/endpoint.h"

namespace parallax {

inline constexpr size_t kRendezvousFileBytesMax = kEndpointBytesMax + 256;

class RendezvousDirectory {
 public:
  // Makes it (mode 0700) if it is not there. INVALID: whose it is and the remedy.
  static Status open(const std::string& path, RendezvousDirectory* directory);
  static Status open_existing(const std::string& path, RendezvousDirectory* directory);

  const std::string& path() const { return path_; }
  std::string path_of(const std::string& name) const { return path_ + "/" + name; }

  Status list(std::vector<std::string>* names) const;
  bool has(const std::string& name) const;
  // *there: false, with OK, if there is no file of that name. *file is left open. IO: it cannot be
  // read, or no rank wrote it.
  Status read(const std::string& name, std::string* content, bool* there, UniqueFd* file) const;
  Status read(const std::string& name, std::string* content, bool* there) const;
  // Reads an open file: 0 or an errno; EFBIG past kRendezvousFileBytesMax.
  static int read_all(const UniqueFd& file, std::string* content);
  // A new file, open for writing. *exists: there is one already, and an error is returned.
  Status create(const std::string& name, UniqueFd* file, bool* exists) const;
  // A file that all ranks read and append to; the first rank makes it.
  Status open_shared(const std::string& name, UniqueFd* file) const;
  Status write(const UniqueFd& file, const std::string& name, const std::string& content) const;
  // By rename: readers see the file whole or not at all. Each name has one writer.
  Status replace(const std::string& name, const std::string& content) const;

  // Removes the files for whose names `is_ours` holds, and the directory, unless another directory
  // has taken its path. Other ranks may add files while it runs, so it tries several times. IO:
  // something is left.
  Status remove(const std::function<bool(const std::string&)>& is_ours) const;
  // False: it was removed, or another directory has taken its path.
  bool is_in_place() const;

 private:
  Status check_owner() const;
  int open_file(const std::string& name, int flags, UniqueFd* file) const;

  std::string path_;
  UniqueFd directory_;
};

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_RENDEZVOUS_DIRECTORY_H_
