// Sends messages to other workers, and receives theirs: ZeroMQ over TCP.
//
// Each worker listens at one address, which its heartbeat makes known, and connects to those that
// it sends to: for each quorum anew, so that what an earlier one has left delays nothing. A message
// arrives whole or not at all; one that does not arrive is missed by whoever waits for it, under a
// deadline of its own. So sending never blocks and reports nothing.
//
// Without keys a messenger listens on the loopback only, with keys on all addresses (listener.hpp).
// What decode() refuses is dropped, and so is a message of several parts, and a connection that
// sends a part that is longer than a message can be. ZeroMQ keeps the parts of a message until the
// last one has arrived, however many there are: whoever may connect can fill the memory.
//
// Thread-safe. Memory: what is sent but not yet on its way.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/core/timer.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/listener.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/message.hpp"

namespace ladder {

class Messenger {
 public:
  // An encoded message. Several connections may share it; each has its own reference until the
  // message has left.
  using Bytes = std::shared_ptr<const std::string>;

  // `receive` gets every message, in a thread of the messenger. `host`: by which other machines
  // reach this one; used with keys only. Throws CheckError if it cannot listen.
  Messenger(const std::optional<CurveKeys>& keys, const std::string& host,
            std::function<void(const Message&)> receive, Log log);
  ~Messenger();  // messages that are not on their way yet are lost
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  const std::string& address() const { return address_; }  // "tcp://HOST:PORT"

  void send(const std::string& address, const Message& message);
  // A piece of a state, of this quorum.
  void send_state(const std::string& address, const QuorumNumber& quorum, const Bytes& piece);

  // Drops the connections of all other quorums, with what has not been sent, except those on which
  // states of `served` travel.
  void keep_only(const QuorumNumber& current, const std::set<QuorumNumber>& served);

  std::int64_t num_bytes_sent() const { return num_bytes_sent_; }
  std::int64_t num_refused() const { return num_refused_; }  // messages that decode() refused

 private:
  // Where messages go. A state has a connection of its own.
  using Route = std::tuple<QuorumNumber, bool /*is_state*/, std::string /*address*/>;
  void send(const Route& route, const Bytes& bytes);
  zmq::socket_t& socket_for(const Route& route);
  void run();

  std::optional<CurveKeys> keys_;
  std::function<void(const Message&)> receive_;
  Log log_;
  zmq::context_t context_{1};
  Listener inbox_;
  std::string address_;
  std::mutex mutex_;  // of the sockets that send
  std::map<Route, zmq::socket_t> peers_;
  std::atomic<bool> has_ended_ = false;
  std::atomic<std::int64_t> num_bytes_sent_ = 0, num_refused_ = 0;
  std::thread thread_;
};

// What a donor sends to those that heal from it (snapshot.hpp): all pieces at once, for TCP carries
// all that the link can. Memory: the pieces that have not left, once for all that heal from it.
// Lifetime: the messenger outlives it.
class Donor {
 public:
  Donor(int worker, Messenger& messenger) : worker_(worker), messenger_(messenger) {}

  // Sends this snapshot to those that heal from this worker in this quorum.
  void give(const Quorum& quorum, const std::string& snapshot);
  // Drops what nobody needs any more: all that should receive it are members of this later quorum,
  // or nothing of it has left in the last `seconds`.
  void forget(const Quorum& later, double seconds);
  std::set<QuorumNumber> quorums() const;  // whose snapshots have not left
  // Something has not left, but something has in the last `seconds`.
  bool is_giving(double seconds);

 private:
  struct Gift {
    Quorum quorum;
    std::vector<Messenger::Bytes> pieces;  // that have not left
    Timer since_progress = {};
  };
  void note_progress();

  int worker_;
  Messenger& messenger_;
  std::vector<Gift> gifts_;
};

// The address of this machine on the way to that one. Throws CheckError if there is no way.
std::string own_host(const HostPort& other);

}  // namespace ladder
