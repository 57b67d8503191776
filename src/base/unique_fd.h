// SPDX-License-Identifier: Apache-2.0
// UniqueFd: owns one file descriptor. Not thread-safe; closing does not block for the kinds used
// here (eventfd, epoll, pidfd, memfd, unix sockets).
#ifndef PARALLAX_BASE_UNIQUE_FD_H_
#define PARALLAX_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace parallax {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace parallax

#endif  // PARALLAX_BASE_UNIQUE_FD_H_
