// SPDX-License-Identifier: Apache-2.0
// SharedRegion: see the header for owners and seals.
#include "transport/shm/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

#include "base/signal_block.h"

namespace parallax {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

Status out_of(const char* what) {
  const int error = errno;
  std::string message = std::string(what) + " for shared memory failed: " + std::strerror(error);
  if (error == EMFILE) message += "; raise ulimit -n";
  if (error == EFBIG) message += "; raise ulimit -f";
  return limit(std::move(message));
}

}  // namespace

SharedRegion::~SharedRegion() { unmap(); }

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), data_bytes_(other.data_bytes_) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  if (this != &other) {
    unmap();
    base_ = std::exchange(other.base_, nullptr);
    data_bytes_ = other.data_bytes_;
  }
  return *this;
}

void SharedRegion::unmap() {
  if (base_ != nullptr) ::munmap(base_, kRingHeaderBytes + data_bytes_);
  base_ = nullptr;
}

Status SharedRegion::map(int fd, size_t data_bytes) {
  void* at =
      ::mmap(nullptr, kRingHeaderBytes + data_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return out_of("mmap");
  base_ = static_cast<std::byte*>(at);
  data_bytes_ = data_bytes;
  return {};
}

Status SharedRegion::make(size_t data_bytes, SharedRegion* region, UniqueFd* fd) {
  fd->reset(::memfd_create("parallax-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd->valid()) return out_of("memfd_create");
  {
    const SignalBlock too_large(SIGXFSZ);  // ulimit -f: an error, not the end of the process
    if (::ftruncate(fd->get(), static_cast<off_t>(kRingHeaderBytes + data_bytes)) != 0) {
      return out_of("ftruncate");
    }
  }
  if (::fcntl(fd->get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) return out_of("sealing");
  return region->map(fd->get(), data_bytes);  // zeroed: a valid, empty ring
}

Status SharedRegion::attach(const UniqueFd& fd, size_t data_bytes, SharedRegion* region) {
  struct stat status;
  if (::fstat(fd.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(kRingHeaderBytes + data_bytes)) {
    return io_error("a peer's shared memory has not the size it said");
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return io_error("a peer's shared memory is not sealed");
  }
  return region->map(fd.get(), data_bytes);
}

}  // namespace parallax
