#include "step9_diloco/elastic/lighthouse_client.hpp"

#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "step9_diloco/elastic/lighthouse.hpp"

namespace ladder {

Answer LighthouseClient::report(const Report& report, double seconds) {
  send(to_text(report));
  for (const Timer timer; timer.seconds() < seconds;) {
    const std::optional<std::string> text = receive();
    if (!text) continue;
    const Answer answer = parse_answer(*text);
    if (answer.number == report.number) return answer;
  }
  give_up();
}

std::string LighthouseClient::status(double seconds) {
  send(kStatusQuestion);
  for (const Timer timer; timer.seconds() < seconds;)
    if (const std::optional<std::string> text = receive()) return *text;
  give_up();
}

void LighthouseClient::send(const std::string& text) {
  if (!socket_) {
    socket_ = zmq::socket_t(context_, zmq::socket_type::dealer);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvtimeo, 20);
    socket_.set(zmq::sockopt::reconnect_ivl, 10);
    socket_.set(zmq::sockopt::maxmsgsize, kMaxReportBytes);
    if (keys_) use_keys(socket_, *keys_);
    socket_.connect(address_);
  }
  socket_.send(zmq::buffer(text), zmq::send_flags::dontwait);
}

std::optional<std::string> LighthouseClient::receive() {
  zmq::message_t text;
  if (zmq_msg_recv(text.handle(), socket_.handle(), 0) < 0) return {};
  return text.to_string();
}

void LighthouseClient::give_up() {
  socket_.close();
  throw CheckError(concat("nobody answers at ", address_,
                          ". Is it running, and does it have the same --elastic-key?"));
}

}  // namespace ladder
