// For tests: accepts connections on the loopback and never says a word, as a frozen lighthouse
// does.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "common/core/check.hpp"

namespace ladder {

class SilentListener {
 public:
  SilentListener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;  // somebody else may listen there while old connections are still open
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    check(::bind(fd_, name, size) == 0 && ::listen(fd_, 64) == 0 &&
              ::getsockname(fd_, name, &size) == 0,
          "cannot listen");
    port_ = ntohs(address.sin_port);
  }
  ~SilentListener() {
    stop_listening();
    for (const int fd : connections_) ::close(fd);
  }
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;

  int port() const { return port_; }
  // Waits for a connection, and keeps it. Those that nobody has accepted hang as well.
  void accept() { connections_.push_back(::accept(fd_, nullptr, nullptr)); }
  // Cuts the connections that nobody has accepted; the port is free.
  void stop_listening() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_, port_ = 0;
  std::vector<int> connections_;
};

}  // namespace ladder
