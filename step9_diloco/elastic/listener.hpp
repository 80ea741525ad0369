// A ZeroMQ socket that listens on this machine, and the keys that keep strangers out: one pair for
// all workers of a run, in a file that each has.
//
// Without keys it listens on the loopback only. With keys, every connection is encrypted and
// authenticated by CURVE, ZeroMQ's use of Curve25519 (rfc.zeromq.org/spec/26): both sides must own
// the pair's secret key, and one that does not is turned away before any message of its is read.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "step9_diloco/elastic/log.hpp"

namespace ladder {

struct CurveKeys {
  std::string public_key, secret_key;  // Z85 text, 40 characters each
};

// The file has two lines: public key and secret key. Throws CheckError naming the file if it cannot
// be read, is no such file, holds keys that do not belong together, or may be read by others.
CurveKeys read_curve_keys(const std::string& file);

// Writes a new pair that only the user may read. Throws CheckError if the file exists.
void write_curve_keys(const std::string& file);

// For a socket that connects to a Listener with these keys.
void use_keys(zmq::socket_t& socket, const CurveKeys& keys);

// The parts of the next message, without waiting; nothing if there is none.
std::vector<zmq::message_t> receive_parts(zmq::socket_t& socket);

class Listener {
 public:
  // `host`: an address of this machine, "0.0.0.0" for all of them. `port`: 0 for any free one. A
  // connection that sends a part of a message with more than `most_bytes` is cut. Throws CheckError
  // if it cannot listen. Lifetime: the context outlives it, and has no other listener.
  Listener(zmq::context_t& context, zmq::socket_type type, const std::string& host, int port,
           std::int64_t most_bytes, const std::optional<CurveKeys>& keys, Log log);

  // Waits so long for a message; it is then in the socket. Answers handshakes meanwhile.
  bool wait(std::chrono::milliseconds patience);

  zmq::socket_t& socket() { return socket_; }
  int port() const { return port_; }

 private:
  void answer_handshake();

  std::optional<CurveKeys> keys_;
  Log log_;
  zmq::socket_t socket_, handshakes_;
  int port_ = 0;
};

}  // namespace ladder
