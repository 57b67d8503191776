// SPDX-License-Identifier: Apache-2.0
// TwoHosts: two network namespaces joined by a veth pair, each end under the same name, removed
// with the object. Needs root and iproute2: where they cannot be made, why_not() says so. Tests
// only.
#ifndef PARALLAX_TESTS_NET_TWO_HOSTS_H_
#define PARALLAX_TESTS_NET_TWO_HOSTS_H_

#include <cstddef>
#include <string>
#include <vector>

namespace parallax::net {

// Runs a shell command; its output goes to *said. False: it failed.
bool run_command(const std::string& command, std::string* said);

class TwoHosts {
 public:
  static constexpr const char* kDevice = "plx0";
  static constexpr const char* kSecondDevice = "plx1";

  TwoHosts();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  const std::string& why_not() const { return why_not_; }
  const std::vector<std::string>& names() const { return names_; }

  // One more pair, kSecondDevice at both ends, of a network of its own.
  void join_again() const;
  // From now on each has addresses of IPv6 alone at kDevice; why_not() where there is no IPv6.
  void speak_six();
  // Of the kernel's statistics of a host's end.
  double counter(size_t host, const std::string& name, const char* device = kDevice) const;
  // Runs a command on a host; a failed expectation where it fails.
  void on_host(size_t host, const std::string& command) const;
  // Of that host's end: a cable that is pulled, and put back.
  void cut(size_t host = 0, const char* device = kDevice) const;
  void mend(size_t host = 0) const;
  // What the host sends goes to nobody from now on, and it does not hear of it.
  void silence(size_t host) const;
  // Packets for the host that are longer go to nobody from now on, and nobody hears of it. Only of
  // ranks that connected after stop_offload().
  void swallow_longer_than(size_t bytes, size_t host) const;
  void stop_offload() const;

 private:
  std::vector<std::string> names_;
  std::string why_not_;
};

}  // namespace parallax::net

#endif  // PARALLAX_TESTS_NET_TWO_HOSTS_H_
