#include "step9_diloco/elastic/messenger.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::chrono::milliseconds kPatience(20);  // between two looks at has_ended_

}  // namespace

Messenger::Messenger(const std::optional<CurveKeys>& keys, const std::string& host,
                     std::function<void(const Message&)> receive, Log log)
    : keys_(keys),
      receive_(std::move(receive)),
      log_(std::move(log)),
      inbox_(context_, zmq::socket_type::pull, keys ? "0.0.0.0" : "127.0.0.1", /*port=*/0,
             kMaxMessageBytes, keys, log_),
      address_(concat("tcp://", keys ? host : "127.0.0.1", ":", inbox_.port())) {
  thread_ = std::thread([this] { run(); });
}

Messenger::~Messenger() {
  has_ended_ = true;
  thread_.join();
}

void Messenger::send(const std::string& address, const Message& message) {
  const QuorumNumber quorum = {message.lighthouse_epoch, message.quorum};
  send({quorum, /*is_state=*/false, address}, std::make_shared<std::string>(encode(message)));
}

void Messenger::send_state(const std::string& address, const QuorumNumber& quorum,
                           const Bytes& piece) {
  send({quorum, /*is_state=*/true, address}, piece);
}

void Messenger::send(const Route& route, const Bytes& bytes) {
  const std::lock_guard lock(mutex_);
  try {
    zmq::message_t message(
        const_cast<char*>(bytes->data()), bytes->size(),
        [](void*, void* reference) { delete static_cast<Bytes*>(reference); }, new Bytes(bytes));
    socket_for(route).send(message, zmq::send_flags::dontwait);
    num_bytes_sent_ += std::ssize(*bytes);
  } catch (const zmq::error_t& error) {
    log_(concat("cannot send to ", std::get<std::string>(route), ": ", error.what()));
  }
}

zmq::socket_t& Messenger::socket_for(const Route& route) {
  const auto found = peers_.find(route);
  if (found != peers_.end()) return found->second;
  zmq::socket_t socket(context_, zmq::socket_type::push);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, 0);  // no limit
  socket.set(zmq::sockopt::reconnect_ivl, 10);
  if (keys_) use_keys(socket, *keys_);
  socket.connect(std::get<std::string>(route));
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
  while (!has_ended_) {
    try {
      if (!inbox_.wait(kPatience)) continue;
      const std::vector<zmq::message_t> parts = receive_parts(inbox_.socket());
      if (parts.empty()) continue;
      const auto message = parts.size() == 1 ? decode(parts[0].to_string_view()) : std::nullopt;
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

void Donor::give(const Quorum& quorum, const std::string& snapshot) {
  Gift gift = {.quorum = quorum};
  for (std::int64_t offset = 0; offset < std::ssize(snapshot); offset += kPieceBytes)
    gift.pieces.push_back(std::make_shared<std::string>(
        encode(piece_of(quorum, worker_, MessageKind::kState, offset, snapshot))));
  for (const Member& member : quorum.receivers(worker_))
    for (const Messenger::Bytes& piece : gift.pieces)
      messenger_.send_state(member.address, quorum.number(), piece);
  gifts_.push_back(std::move(gift));
}

// Nobody else refers to a piece that has left all connections.
void Donor::note_progress() {
  for (Gift& gift : gifts_) {
    const auto num_left =
        std::erase_if(gift.pieces, [](const auto& piece) { return piece.use_count() == 1; });
    if (num_left > 0) gift.since_progress.restart();
  }
  std::erase_if(gifts_, [](const Gift& gift) { return gift.pieces.empty(); });
}

void Donor::forget(const Quorum& later, double seconds) {
  note_progress();
  const auto asks_again = [&](const Member& member) {
    return std::ranges::find(later.members, member.worker, &Member::worker) != later.members.end();
  };
  std::erase_if(gifts_, [&](const Gift& gift) {
    return gift.since_progress.seconds() > seconds ||
           std::ranges::all_of(gift.quorum.receivers(worker_), asks_again);
  });
}

std::set<QuorumNumber> Donor::quorums() const {
  std::set<QuorumNumber> quorums;
  for (const Gift& gift : gifts_) quorums.insert(gift.quorum.number());
  return quorums;
}

bool Donor::is_giving(double seconds) {
  note_progress();
  return std::ranges::any_of(
      gifts_, [&](const Gift& gift) { return gift.since_progress.seconds() <= seconds; });
}

std::string own_host(const HostPort& other) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;  // "connects" without sending anything
  check(::getaddrinfo(other.host.c_str(), std::to_string(other.port).c_str(), &hints, &found) == 0,
        "the lighthouse's host ", other.host,
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
  check(is_known, "this machine has no way to the lighthouse's host ", other.host);
  return text;
}

}  // namespace ladder
