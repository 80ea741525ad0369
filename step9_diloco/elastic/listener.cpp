#include "step9_diloco/elastic/listener.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kCurveBytes = 33;  // that CURVE adds to a message
constexpr int kMaxWaiting = 64;           // messages of a connection that wait to be received

}  // namespace

CurveKeys read_curve_keys(const std::string& file) {
  struct stat status = {};
  check(::stat(file.c_str(), &status) == 0, "--elastic-key: cannot read ", file, ": ",
        [] { return std::strerror(errno); });
  check((status.st_mode & 077) == 0, "--elastic-key: others may read ", file, ": chmod 600 ", file);
  CurveKeys keys;
  std::ifstream(file) >> keys.public_key >> keys.secret_key;
  char wanted[41] = {};
  check(keys.secret_key.size() == 40 && zmq_curve_public(wanted, keys.secret_key.c_str()) == 0 &&
            keys.public_key == wanted,
        "--elastic-key: ", file,
        " is no pair of keys: elastic_lighthouse --make-key FILE writes one");
  return keys;
}

void write_curve_keys(const std::string& file) {
  char public_key[41], secret_key[41];
  check(zmq_curve_keypair(public_key, secret_key) == 0, "this libzmq has no CURVE keys");
  const std::string text = concat(public_key, "\n", secret_key, "\n");
  const int fd = ::open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  check(fd >= 0, "cannot write ", file, ": ", [] { return std::strerror(errno); });
  const bool is_written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  check(is_written, "cannot write ", file);
}

void use_keys(zmq::socket_t& socket, const CurveKeys& keys) {
  socket.set(zmq::sockopt::curve_serverkey, keys.public_key);
  socket.set(zmq::sockopt::curve_publickey, keys.public_key);
  socket.set(zmq::sockopt::curve_secretkey, keys.secret_key);
}

std::vector<zmq::message_t> receive_parts(zmq::socket_t& socket) {
  std::vector<zmq::message_t> parts;
  do {
    parts.emplace_back();
    if (!socket.recv(parts.back(), zmq::recv_flags::dontwait)) return {};
  } while (parts.back().more());
  return parts;
}

Listener::Listener(zmq::context_t& context, zmq::socket_type type, const std::string& host,
                   int port, std::int64_t most_bytes, const std::optional<CurveKeys>& keys, Log log)
    : keys_(keys), log_(std::move(log)) {
  try {
    socket_ = zmq::socket_t(context, type);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvhwm, kMaxWaiting);
    socket_.set(zmq::sockopt::maxmsgsize, most_bytes + (keys_ ? kCurveBytes : 0));
    if (keys_) {
      // libzmq asks whoever answers at this address about every key that it sees.
      handshakes_ = zmq::socket_t(context, zmq::socket_type::rep);
      handshakes_.set(zmq::sockopt::linger, 0);
      handshakes_.bind("inproc://zeromq.zap.01");
      socket_.set(zmq::sockopt::zap_domain, "ladder");  // without it nobody checks the other's key
      socket_.set(zmq::sockopt::curve_server, true);
      socket_.set(zmq::sockopt::curve_secretkey, keys_->secret_key);
    }
    socket_.bind(concat("tcp://", host, ":", port == 0 ? "*" : std::to_string(port)));
    const std::string bound = socket_.get(zmq::sockopt::last_endpoint);
    port_ = std::stoi(bound.substr(bound.rfind(':') + 1));
  } catch (const zmq::error_t& error) {
    throw CheckError(concat("cannot listen on ", host, ", port ", port, ": ", error.what()));
  }
}

bool Listener::wait(std::chrono::milliseconds patience) {
  std::vector<zmq::pollitem_t> items = {{socket_.handle(), 0, ZMQ_POLLIN, 0}};
  if (keys_) items.push_back({handshakes_.handle(), 0, ZMQ_POLLIN, 0});
  if (zmq_poll(static_cast<zmq_pollitem_t*>(items.data()), static_cast<int>(items.size()),
               static_cast<long>(patience.count())) <= 0)
    return false;  // nothing is there, or a signal has come
  if (keys_ && (items[1].revents & ZMQ_POLLIN) != 0) answer_handshake();
  return (items[0].revents & ZMQ_POLLIN) != 0;
}

// ZeroMQ's authentication protocol, rfc.zeromq.org/spec/27.
void Listener::answer_handshake() {
  const std::vector<zmq::message_t> frames = receive_parts(handshakes_);
  if (frames.empty()) return;
  char key[41] = {};
  const bool is_known = frames.size() == 7 && frames[5].to_string_view() == "CURVE" &&
                        frames[6].size() == 32 &&
                        zmq_z85_encode(key, frames[6].data<std::uint8_t>(), 32) != nullptr &&
                        keys_->public_key == key;
  if (!is_known) log_("turns away a connection without the right key");
  const std::string version = "1.0", status = is_known ? "200" : "400";
  const std::string request = frames.size() > 1 ? frames[1].to_string() : "";
  for (const std::string& text : {version, request, status, std::string(), std::string()})
    handshakes_.send(zmq::buffer(text), zmq::send_flags::sndmore);
  handshakes_.send(zmq::message_t(), zmq::send_flags::none);
}

}  // namespace ladder
