// For tests: a slow link. Forwards TCP connections to an address, all of them together at so many
// bytes a second; what it has not forwarded yet waits at the sender.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "common/core/check.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"

namespace ladder {

class PacedLink {
 public:
  PacedLink(const std::string& to, double bytes_per_s)  // tcp://127.0.0.1:PORT
      : to_(host_port(to.substr(6)).port), bytes_per_s_(bytes_per_s), listener_(new_socket()) {
    sockaddr_in own = loopback(0);
    socklen_t size = sizeof own;
    check(::bind(listener_, reinterpret_cast<sockaddr*>(&own), size) == 0 &&
              ::listen(listener_, 16) == 0 &&
              ::getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) == 0,
          "a link cannot listen");
    address_ = concat("tcp://127.0.0.1:", ntohs(own.sin_port));
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~PacedLink() {
    has_ended_ = true;
    acceptor_.join();
    for (std::thread& thread : connections_) thread.join();
    ::close(listener_);
  }
  PacedLink(const PacedLink&) = delete;
  PacedLink& operator=(const PacedLink&) = delete;

  const std::string& address() const { return address_; }
  std::int64_t num_bytes() const { return num_bytes_; }  // forwarded

 private:
  using Clock = std::chrono::steady_clock;

  static sockaddr_in loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
  }
  static int new_socket() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int buffer_bytes = 64 * 1024;
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    return fd;
  }
  bool is_readable(int fd) const {
    pollfd item = {.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&item, 1, /*ms=*/10) > 0;
  }
  void accept_all() {
    while (!has_ended_) {
      if (!is_readable(listener_)) continue;
      const int from = ::accept(listener_, nullptr, nullptr), to = new_socket();
      const sockaddr_in address = loopback(to_);
      if (::connect(to, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        std::thread back([this, from, to] { forward(to, from, /*is_paced=*/false); });
        connections_.emplace_back([this, from, to, back = std::move(back)]() mutable {
          forward(from, to, /*is_paced=*/true);
          back.join();
          ::close(from);
          ::close(to);
        });
      }
    }
  }
  void forward(int from, int to, bool is_paced) {
    std::array<char, 16 * 1024> bytes;
    while (!has_ended_) {
      if (!is_readable(from)) continue;
      const ssize_t num = ::recv(from, bytes.data(), bytes.size(), 0);
      if (num <= 0) break;
      if (is_paced) wait_for_turn(num);
      if (::send(to, bytes.data(), static_cast<std::size_t>(num), MSG_NOSIGNAL) != num) break;
    }
    ::shutdown(from, SHUT_RDWR);  // ends the other direction, too
    ::shutdown(to, SHUT_RDWR);
  }
  // A late thread may catch up, by up to 50 ms.
  void wait_for_turn(std::int64_t num) {
    const auto duration = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(static_cast<double>(num) / bytes_per_s_));
    Clock::time_point end;
    {
      const std::lock_guard lock(mutex_);
      end_ = std::max(end_, Clock::now() - std::chrono::milliseconds(50)) + duration;
      end = end_;
    }
    std::this_thread::sleep_until(end);
    num_bytes_ += num;
  }

  int to_;
  double bytes_per_s_;
  int listener_;
  std::string address_;
  std::atomic<bool> has_ended_ = false;
  std::atomic<std::int64_t> num_bytes_ = 0;
  std::mutex mutex_;
  Clock::time_point end_;  // of what has been forwarded so far
  std::deque<std::thread> connections_;
  std::thread acceptor_;
};

}  // namespace ladder
