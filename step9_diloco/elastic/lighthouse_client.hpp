// Asks the lighthouse: one question at a time, whose answer it waits for. A question that gets none
// is forgotten, with its connection.
#pragma once

#include <optional>
#include <string>
#include <zmq.hpp>

#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/listener.hpp"
#include "step9_diloco/elastic/report.hpp"

namespace ladder {

class LighthouseClient {
 public:
  LighthouseClient(const HostPort& lighthouse, const std::optional<CurveKeys>& keys)
      : address_(concat("tcp://", lighthouse.host, ":", lighthouse.port)), keys_(keys) {}

  // Both throw CheckError if there is no answer after `seconds`.
  Answer report(const Report& report, double seconds);
  std::string status(double seconds);  // Lighthouse::status()

 private:
  void send(const std::string& text);
  std::optional<std::string> receive();  // nothing if there is none for a moment
  [[noreturn]] void give_up();

  std::string address_;
  std::optional<CurveKeys> keys_;
  zmq::context_t context_{1};
  zmq::socket_t socket_;
};

}  // namespace ladder
