// SPDX-License-Identifier: Apache-2.0
// Reading the secret: see the header. No message ever holds a byte of it.
#include "rendezvous/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/crypto.h"
#include "base/unique_fd.h"

namespace parallax {

namespace {

Status read_secret(const std::string& path, std::string* secret) {
  // O_NONBLOCK: a pipe that nobody writes must not block open().
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file.valid() || ::fstat(file.get(), &facts) != 0) {
    return io_error("the secret's file " + path + " cannot be read: " + std::strerror(errno));
  }
  if (!S_ISREG(facts.st_mode)) return invalid("the secret's file " + path + " is no plain file");
  if (facts.st_uid != ::geteuid() && facts.st_uid != 0) {
    return invalid("the secret's file " + path + " belongs to user " +
                   std::to_string(facts.st_uid) + ", who can change it: chown it to user " +
                   std::to_string(::geteuid()));
  }
  if ((facts.st_mode & 077) != 0) {
    return invalid("the secret's file " + path + " can be read or written by others: chmod 600 " +
                   path);
  }
  std::string read(kSecretBytesMax + 1, '\0');
  size_t done = 0;
  ssize_t bytes = 0;
  while (done < read.size() &&
         (bytes = ::read(file.get(), read.data() + done, read.size() - done)) != 0) {
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) {
      wipe(&read);
      return io_error("the secret's file " + path + " cannot be read: " + std::strerror(errno));
    }
    done += static_cast<size_t>(bytes);
  }
  secret->assign(read, 0, done);
  wipe(&read);
  return {};
}

Status check_secret(const std::string& source, std::string* secret) {
  while (!secret->empty() && std::strchr(" \t\r\n", secret->back()) != nullptr) secret->pop_back();
  const size_t bytes = secret->size();
  if (bytes >= kSecretBytesMin && bytes <= kSecretBytesMax) return {};
  wipe(secret);
  return invalid(source + " has a secret of " + std::to_string(bytes) + " bytes: give " +
                 std::to_string(kSecretBytesMin) + " to " + std::to_string(kSecretBytesMax) +
                 " random ones (openssl rand -hex 32)");
}

}  // namespace

Status find_secret(const char* file, const Environment& environment, std::string* secret) {
  secret->clear();
  std::string path = file == nullptr ? "" : file;
  const bool by_option = !path.empty();
  if (file != nullptr && !by_option) return invalid("options.secret_file is empty");
  if (!by_option) {
    path = environment("PARALLAX_SECRET_FILE");
    *secret = environment("PARALLAX_SECRET");
  }
  if (!path.empty() && !secret->empty()) {
    wipe(secret);
    return invalid("PARALLAX_SECRET_FILE and PARALLAX_SECRET are both set: set one");
  }
  if (!path.empty()) {
    PARALLAX_RETURN_IF_ERROR(read_secret(path, secret));
    return check_secret("the file " + path, secret);
  }
  return secret->empty() ? Status() : check_secret("PARALLAX_SECRET", secret);
}

}  // namespace parallax
