// SPDX-License-Identifier: Apache-2.0
// Claims and their locks: see the header.
#include "rendezvous/rendezvous_claim.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <fstream>
#include <string_view>

namespace parallax {

namespace {

constexpr std::string_view kOnHost = " on host ";
constexpr std::string_view kLockedOn = "locked on ";

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool lock(const UniqueFd& file) {
  struct statfs system {};
  if (::fstatfs(file.get(), &system) != 0 || system.f_type == NFS_SUPER_MAGIC) return false;
  struct flock whole = whole_file();
  return ::fcntl(file.get(), F_OFD_SETLK, &whole) == 0;
}

bool is_free(const UniqueFd& file) {
  struct flock whole = whole_file();
  return ::fcntl(file.get(), F_OFD_GETLK, &whole) == 0 && whole.l_type == F_UNLCK;
}

std::string boot_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

// Identifies boot and file system, within which alone a lock on this file can be seen; "" if that
// cannot be told.
std::string scope_of(const UniqueFd& file) {
  static const std::string boot = boot_id();
  struct stat facts {};
  if (boot.empty() || ::fstat(file.get(), &facts) != 0) return "";
  return boot + "/" + std::to_string(facts.st_dev);
}

}  // namespace

std::string claim_name(uint32_t rank) { return "claim." + std::to_string(rank); }

Status take_claim(const RendezvousDirectory& directory, uint32_t rank, const std::string& host,
                  UniqueFd* held) {
  const std::string name = claim_name(rank);
  bool exists = false;
  const Status made = directory.create(name, held, &exists);
  if (made.ok()) {
    std::string text = "process " + std::to_string(::getpid());
    text += std::string(kOnHost) + host + "\n";
    const std::string scope = scope_of(*held);
    if (!scope.empty() && lock(*held)) text += std::string(kLockedOn) + scope + "\n";
    return directory.write(*held, name, text);
  }
  if (!exists) return made.prefixed("options.rendezvous: cannot write ");
  Claim other;
  PARALLAX_RETURN_IF_ERROR(look_at_claim(directory, rank, &other));
  return invalid("rank " + std::to_string(rank) + " was claimed in " + directory.path() + " by " +
                 (other.holder.empty() ? "another process" : other.holder) +
                 ": two ranks have one number, or the directory was used by another job; give "
                 "every job a new or empty directory");
}

Status look_at_claim(const RendezvousDirectory& directory, uint32_t rank, Claim* claim) {
  *claim = {};
  UniqueFd file;
  std::string text;
  PARALLAX_RETURN_IF_ERROR(directory.read(claim_name(rank), &text, &claim->taken, &file));
  if (!claim->taken) return {};
  const size_t end = text.find('\n');
  claim->holder = text.substr(0, end);
  const size_t host = claim->holder.find(kOnHost);
  if (host != std::string::npos) claim->host = claim->holder.substr(host + kOnHost.size());
  if (end == std::string::npos) return {};
  const std::string expected = std::string(kLockedOn) + scope_of(file) + "\n";
  claim->let_go = text.substr(end + 1) == expected && is_free(file);
  return {};
}

}  // namespace parallax
