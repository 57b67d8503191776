// SPDX-License-Identifier: Apache-2.0
// RendezvousDirectory: see the header. What lies there is input: kind, size and owner are checked.
#include "rendezvous/rendezvous_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

namespace parallax {

namespace {

constexpr int kRemoveTriesMax = 20;
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr int kNotPlain = -1;  // beside the numbers of errno

Status failed(const std::string& path, int failure) {
  if (failure == kNotPlain) {
    return io_error(path + " is no plain file, so no rank's: give a new directory");
  }
  if (failure == EFBIG) {
    return io_error(path + " is too large for a rank's: give a new directory");
  }
  if (failure == EMFILE || failure == ENFILE) {
    return limit(path + ": " + std::strerror(failure) + "; raise ulimit -n");
  }
  return io_error(path + ": " + std::strerror(failure));
}

}  // namespace

Status RendezvousDirectory::open(const std::string& path, RendezvousDirectory* directory) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return io_error("options.rendezvous: cannot make " + path + ": " + std::strerror(errno));
  }
  return open_existing(path, directory);
}

Status RendezvousDirectory::open_existing(const std::string& path, RendezvousDirectory* directory) {
  directory->path_ = path;
  std::string& own = directory->path_;
  while (own.size() > 1 && own.back() == '/') own.pop_back();  // O_NOFOLLOW would follow it
  directory->directory_.reset(::open(own.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const int failure = errno;
  if (directory->directory_.valid()) return directory->check_owner();
  if (failure == ELOOP || failure == ENOTDIR) {
    return invalid("options.rendezvous: " + own +
                   " is a symbolic link or no directory: give the directory itself");
  }
  const Status opened = failed(own, failure);
  return opened.prefixed("options.rendezvous: ");
}

Status RendezvousDirectory::check_owner() const {
  struct stat facts {};
  if (::fstat(directory_.get(), &facts) != 0) {
    return io_error("options.rendezvous: " + path_ + ": " + std::strerror(errno));
  }
  const bool ours = facts.st_uid == ::geteuid() || facts.st_uid == 0;
  if (ours && (facts.st_mode & kOthersWrite) == 0) return {};
  std::array<char, 8> mode;
  (void)std::snprintf(mode.data(), mode.size(), "%04o", facts.st_mode & 07777u);
  return invalid(
      "options.rendezvous: " + path_ + " belongs to user " + std::to_string(facts.st_uid) +
      " and has mode " + mode.data() + ", so others than user " + std::to_string(::geteuid()) +
      " could speak for the ranks there: " + (ours ? "chmod go-w " + path_ + ", or give" : "give") +
      " a new directory, which is made with mode 0700");
}

Status RendezvousDirectory::list(std::vector<std::string>* names) const {
  const int again = ::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return failed(path_, errno);
  DIR* stream = ::fdopendir(again);  // and with it the descriptor
  if (stream == nullptr) {
    const Status none = failed(path_, errno);
    ::close(again);
    return none;
  }
  for (const dirent* entry = ::readdir(stream); entry != nullptr; entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names->push_back(name);
  }
  ::closedir(stream);
  return {};
}

bool RendezvousDirectory::has(const std::string& name) const {
  struct stat facts {};
  return ::fstatat(directory_.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 ||
         errno != ENOENT;
}

// 0, or why not: an errno or kNotPlain.
int RendezvousDirectory::open_file(const std::string& name, int flags, UniqueFd* file) const {
  file->reset(::openat(directory_.get(), name.c_str(),
                       flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600));
  if (!file->valid()) return errno == ELOOP || errno == ENXIO ? kNotPlain : errno;
  struct stat facts {};
  if (::fstat(file->get(), &facts) != 0) return errno;
  return S_ISREG(facts.st_mode) ? 0 : kNotPlain;
}

int RendezvousDirectory::read_all(const UniqueFd& file, std::string* content) {
  std::array<char, kRendezvousFileBytesMax> buffer;
  content->clear();
  while (content->size() < buffer.size()) {
    const ssize_t bytes = ::pread(file.get(), buffer.data(), buffer.size() - content->size(),
                                  static_cast<off_t>(content->size()));
    if (bytes == 0) return 0;
    if (bytes < 0 && errno != EINTR) return errno;
    if (bytes > 0) content->append(buffer.data(), static_cast<size_t>(bytes));
  }
  return EFBIG;
}

Status RendezvousDirectory::read(const std::string& name, std::string* content, bool* there,
                                 UniqueFd* file) const {
  content->clear();
  int failure = open_file(name, O_RDONLY, file);
  if (failure == 0) failure = read_all(*file, content);
  *there = failure == 0;
  // ESTALE: replaced by another machine, and there is a newer one.
  const bool absent = failure == ENOENT || failure == ESTALE;
  return *there || absent ? Status() : failed(path_of(name), failure);
}

Status RendezvousDirectory::read(const std::string& name, std::string* content, bool* there) const {
  UniqueFd file;
  return read(name, content, there, &file);
}

Status RendezvousDirectory::create(const std::string& name, UniqueFd* file, bool* exists) const {
  const int failure = open_file(name, O_WRONLY | O_CREAT | O_EXCL, file);
  *exists = failure == EEXIST;
  return failure == 0 ? Status() : failed(path_of(name), failure);
}

Status RendezvousDirectory::open_shared(const std::string& name, UniqueFd* file) const {
  const int failure = open_file(name, O_RDWR | O_APPEND | O_CREAT, file);
  return failure == 0 ? Status() : failed(path_of(name), failure);
}

Status RendezvousDirectory::write(const UniqueFd& file, const std::string& name,
                                  const std::string& content) const {
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t bytes = ::write(file.get(), content.data() + done, content.size() - done);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return failed(path_of(name), errno);
    done += static_cast<size_t>(bytes);
  }
  return {};
}

Status RendezvousDirectory::replace(const std::string& name, const std::string& content) const {
  const std::string temporary = "tmp." + name;
  bool exists = false;
  UniqueFd file;
  Status written = create(temporary, &file, &exists);
  if (exists && ::unlinkat(directory_.get(), temporary.c_str(), 0) == 0) {  // left by an earlier us
    written = create(temporary, &file, &exists);
  }
  PARALLAX_RETURN_IF_ERROR(written);
  PARALLAX_RETURN_IF_ERROR(write(file, temporary, content));
  if (::renameat(directory_.get(), temporary.c_str(), directory_.get(), name.c_str()) != 0) {
    return failed(path_of(name), errno);
  }
  return {};
}

bool RendezvousDirectory::is_in_place() const {
  struct stat here {};
  struct stat there {};
  return ::fstat(directory_.get(), &here) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

Status RendezvousDirectory::remove(const std::function<bool(const std::string&)>& is_ours) const {
  for (int tries = 0; tries < kRemoveTriesMax; ++tries) {
    if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::vector<std::string> names;
    if (!list(&names).ok()) return {};  // gone already
    for (const std::string& name : names) {
      if (is_ours(name)) (void)::unlinkat(directory_.get(), name.c_str(), 0);
    }
    if (!is_in_place() || ::rmdir(path_.c_str()) == 0 || errno == ENOENT) return {};
    if (errno != ENOTEMPTY && errno != EEXIST) break;
  }
  return io_error("options.rendezvous: cannot remove " + path_ + ": " + std::strerror(errno));
}

}  // namespace parallax
