#include "step9_diloco/elastic/messenger.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>
#include <zmq.hpp>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::chrono::milliseconds kPatience(20);  // between two looks at has_ended_
constexpr int kMaxWaiting = 64;                     // messages that wait to be received
constexpr std::int64_t kCurveBytes = 33;            // that CURVE adds to a message

void use_keys(zmq::socket_t& socket, const CurveKeys& keys, bool is_server) {
  if (is_server) {
    socket.set(zmq::sockopt::zap_domain, "ladder");  // without it nobody checks the other's key
    socket.set(zmq::sockopt::curve_server, true);
  } else {
    socket.set(zmq::sockopt::curve_serverkey, keys.public_key);
    socket.set(zmq::sockopt::curve_publickey, keys.public_key);
  }
  socket.set(zmq::sockopt::curve_secretkey, keys.secret_key);
}

}  // namespace

Messenger::Messenger(const std::optional<CurveKeys>& keys, const std::string& host,
                     std::function<void(const Message&)> receive, Log log)
    : keys_(keys),
      receive_(std::move(receive)),
      log_(std::move(log)),
      context_(std::make_unique<zmq::context_t>(1)) {
  try {
    inbox_ = std::make_unique<zmq::socket_t>(*context_, zmq::socket_type::pull);
    inbox_->set(zmq::sockopt::linger, 0);
    inbox_->set(zmq::sockopt::rcvhwm, kMaxWaiting);
    inbox_->set(zmq::sockopt::maxmsgsize, kMaxMessageBytes + (keys_ ? kCurveBytes : 0));
    if (keys_) {
      // libzmq asks whoever answers at this address about every key that it sees.
      handshakes_ = std::make_unique<zmq::socket_t>(*context_, zmq::socket_type::rep);
      handshakes_->set(zmq::sockopt::linger, 0);
      handshakes_->bind("inproc://zeromq.zap.01");
      use_keys(*inbox_, *keys_, /*is_server=*/true);
    }
    inbox_->bind(keys_ ? "tcp://0.0.0.0:*" : "tcp://127.0.0.1:*");
    const std::string bound = inbox_->get(zmq::sockopt::last_endpoint);
    address_ = concat("tcp://", keys_ ? host : "127.0.0.1", bound.substr(bound.rfind(':')));
  } catch (const zmq::error_t& error) {
    throw CheckError(concat("cannot listen for other workers: ", error.what()));
  }
  thread_ = std::thread([this] { run(); });
}

Messenger::~Messenger() {
  has_ended_ = true;
  thread_.join();
}

void Messenger::send(const std::string& address, const Message& message) {
  const std::string bytes = encode(message);
  const bool is_state =
      message.kind == MessageKind::kState || message.kind == MessageKind::kRequest;
  const std::lock_guard lock(mutex_);
  try {
    zmq::socket_t& socket =
        socket_for({{message.lighthouse_epoch, message.quorum}, is_state, address});
    const bool is_queued = socket.send(zmq::buffer(bytes), zmq::send_flags::dontwait).has_value();
    if (is_queued) num_bytes_sent_ += static_cast<std::int64_t>(bytes.size());
  } catch (const zmq::error_t& error) {
    log_(concat("cannot send to ", address, ": ", error.what()));
  }
}

zmq::socket_t& Messenger::socket_for(const Route& route) {
  const auto found = peers_.find(route);
  if (found != peers_.end()) return found->second;
  const auto& [quorum, is_state, address] = route;
  zmq::socket_t socket(*context_, zmq::socket_type::push);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, is_state ? kMaxQueued : 0);  // 0: no limit
  socket.set(zmq::sockopt::reconnect_ivl, 10);
  if (keys_) use_keys(socket, *keys_, /*is_server=*/false);
  socket.connect(address);
  return peers_.emplace(route, std::move(socket)).first->second;
}

void Messenger::keep_only(const QuorumNumber& current, const std::set<QuorumNumber>& served) {
  const std::lock_guard lock(mutex_);
  std::erase_if(peers_, [&](const auto& peer) {
    const auto& [quorum, is_state, address] = peer.first;
    return quorum != current && !(is_state && served.contains(quorum));
  });
}

void Messenger::run() {
  std::vector<zmq::pollitem_t> items = {{inbox_->handle(), 0, ZMQ_POLLIN, 0}};
  if (handshakes_) items.push_back({handshakes_->handle(), 0, ZMQ_POLLIN, 0});
  while (!has_ended_) {
    try {
      zmq::poll(items, kPatience);
      if (items.size() > 1 && (items[1].revents & ZMQ_POLLIN) != 0) answer_handshake();
      if ((items[0].revents & ZMQ_POLLIN) == 0) continue;
      zmq::message_t bytes;
      if (!inbox_->recv(bytes, zmq::recv_flags::dontwait)) continue;
      bool is_whole = true;
      while (bytes.more() && inbox_->recv(bytes, zmq::recv_flags::dontwait)) is_whole = false;
      const auto message = is_whole ? decode(bytes.to_string_view()) : std::nullopt;
      if (message) {
        receive_(*message);
      } else if (++num_refused_ == 1) {
        log_("refuses a message that is damaged, or from a stranger");
      }
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) log_(concat("cannot receive: ", error.what()));
    }
  }
}

// ZeroMQ's authentication protocol, rfc.zeromq.org/spec/27.
void Messenger::answer_handshake() {
  std::vector<std::string> frames;
  zmq::message_t frame;
  do {
    if (!handshakes_->recv(frame)) return;
    frames.push_back(frame.to_string());
  } while (frame.more());
  char key[41] = {};
  const bool is_known =
      frames.size() == 7 && frames[5] == "CURVE" && frames[6].size() == 32 &&
      zmq_z85_encode(key, reinterpret_cast<const std::uint8_t*>(frames[6].data()), 32) != nullptr &&
      keys_->public_key == key;
  if (!is_known) log_("turns away a connection without the right key");
  const std::string version = "1.0", status = is_known ? "200" : "400";
  const std::string request = frames.size() > 1 ? frames[1] : "";
  for (const std::string& text : {version, request, status, std::string(), std::string()})
    handshakes_->send(zmq::buffer(text), zmq::send_flags::sndmore);
  handshakes_->send(zmq::message_t(), zmq::send_flags::none);
}

std::string own_host(const std::string& host, int port) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;  // "connects" without sending anything
  check(::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) == 0,
        "the lighthouse's host ", host,
        " has no IPv4 address: lighthouse and workers use IPv4 only");
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own = {};
  socklen_t size = sizeof own;
  char text[NI_MAXHOST] = {};
  const bool is_known = ::connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                        ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text,
                                      nullptr, 0, NI_NUMERICHOST) == 0;
  ::close(fd);
  ::freeaddrinfo(found);
  check(is_known, "this machine has no way to the lighthouse's host ", host);
  return text;
}

}  // namespace ladder
