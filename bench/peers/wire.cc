// SPDX-License-Identifier: Apache-2.0
// What the links between hosts allow: plain sockets in a ring of hosts, each of which sends as many
// bytes to the next as an AllReduce must, 2 (N - 1) / N of the buffer with N hosts, while as many
// come from the one before. Nothing is summed. Not a contender but the column to measure against.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "dense.h"

namespace parallax::peers {
namespace {

constexpr uint64_t kAtOnce = 1 << 20;  // bytes of a call of send() and recv()

void expect(bool right, const char* call) {
  if (!right) fail(std::string(call) + ": " + std::string(strerror(errno)));
}

sockaddr_in address_of(const std::string& address, uint16_t port) {
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  expect(inet_pton(AF_INET, address.c_str(), &where.sin_addr) == 1, address.c_str());
  return where;
}

// Ready to send and to receive without delay and without blocking.
void prepare(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  expect(fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK) == 0, "fcntl");
}

class Wire final : public Dense {
 public:
  struct Place {
    uint32_t host, hosts;
    bool ends;  // the first rank of a host is its end of the ring
  };

  // `folder` is where the hosts find each other.
  Wire(uint32_t rank, uint32_t world, const Place& place, const std::string& folder,
       const std::string& address)
      : Dense(rank, world),
        host_(place.host),
        hosts_(place.hosts),
        ends_(place.ends),
        zeros_(kAtOnce) {
    if (!ends_) return;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in here = address_of(address, 0);
    auto* const raw = reinterpret_cast<sockaddr*>(&here);
    expect(listener >= 0 && bind(listener, raw, sizeof here) == 0, "bind");
    expect(listen(listener, 1) == 0, "listen");
    socklen_t size = sizeof here;
    expect(getsockname(listener, raw, &size) == 0, "getsockname");
    tell(folder, address, ntohs(here.sin_port));
    connect_next(folder);
    from_ = accept(listener, nullptr, nullptr);
    expect(from_ >= 0, "accept");
    close(listener);
    prepare(from_);
    prepare(to_);
  }

 protected:
  Memory place(const std::string& /*variant*/, const DenseStep& step) override {
    bytes_ = slab_elements(step.bytes, Gaps::kNone) * sizeof(float) * 2 * (hosts_ - 1) / hosts_;
    return memory_of(slab_.place(step.bytes));
  }
  bool sums() const override { return false; }

  Took iterate() override {
    const int64_t start_ns = now_ns();
    if (ends_) turn();
    const int64_t took_ns = now_ns() - start_ns;
    return {took_ns, took_ns};
  }

 private:
  static std::string file_of(const std::string& folder, uint32_t host) {
    return folder + "/wire." + std::to_string(host);
  }

  void tell(const std::string& folder, const std::string& address, uint16_t port) const {
    const std::string file = file_of(folder, host_);
    std::ofstream(file + ".new") << address << ' ' << port;
    expect(rename((file + ".new").c_str(), file.c_str()) == 0, "rename");
  }

  void connect_next(const std::string& folder) {
    const std::string file = file_of(folder, (host_ + 1) % hosts_);
    std::string address;
    uint16_t port = 0;
    while (!(std::ifstream(file) >> address >> port)) usleep(1000);
    const sockaddr_in there = address_of(address, port);
    to_ = socket(AF_INET, SOCK_STREAM, 0);
    expect(to_ >= 0 && connect(to_, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0,
           "connect");
  }

  void turn() {
    uint64_t to_send = bytes_, to_come = bytes_;
    while (to_send > 0 || to_come > 0) {
      const auto out = send(to_, zeros_.data(), std::min(to_send, kAtOnce), MSG_NOSIGNAL);
      if (out > 0) to_send -= static_cast<uint64_t>(out);
      expect(out >= 0 || errno == EAGAIN, "send");
      const auto in = to_come == 0 ? -1 : recv(from_, came_, std::min(to_come, kAtOnce), 0);
      if (in > 0) to_come -= static_cast<uint64_t>(in);
      if (to_come > 0) expect(in != 0 && (in > 0 || errno == EAGAIN), "recv");
      if (out > 0 || in > 0) continue;
      pollfd both[] = {{from_, POLLIN, 0}, {to_, POLLOUT, 0}};
      poll(to_come > 0 ? both : both + 1, to_send > 0 && to_come > 0 ? 2 : 1, 1000);
    }
  }

  const uint32_t host_, hosts_;
  const bool ends_;  // this rank is its host's end of the ring
  int to_ = -1, from_ = -1;
  Slab slab_;
  uint64_t bytes_ = 0;
  std::vector<char> zeros_;
  char came_[kAtOnce] = {};
};

}  // namespace
}  // namespace parallax::peers

// FOLDER RANK WORLD HOST HOSTS ENDS ADDRESS
int main(int count, char** all) {
  using namespace parallax::peers;
  const auto [folder, rank, world] = started_as(count, all);
  const std::string address = argument(count, all, 7);
  const Wire::Place place = {.host = static_cast<uint32_t>(std::stoul(argument(count, all, 4))),
                             .hosts = static_cast<uint32_t>(std::stoul(argument(count, all, 5))),
                             .ends = argument(count, all, 6) == "1"};
  const auto wire = std::make_unique<Wire>(rank, world, place, folder, address);
  serve(*wire, rank, folder);
  return 0;
}
