#include "step9_diloco/elastic/elastic_options.hpp"

#include <arpa/inet.h>

#include <charconv>

#include "common/train/options/option_table.hpp"
#include "step9_diloco/diloco_options.hpp"

namespace ladder {

void ElasticOptions::declare(OptionTable& table) {
  constexpr Range<double> kUpToADay = {.least = 0, .most = 86400, .is_above = true};
  table.heading("Workers that may die");
  table
      .value("--elastic", lighthouse,
             "HOST:PORT of the lighthouse, where workers that are started one by one meet")
      .changes_no_bits();
  table.number("--worker", worker, {0, kMostRanks - 1},
               "this worker's number, which decides its part of the data");
  table.number("--workers", num_workers, {1, kMostRanks},
               "how many parts the data has; not all need to be there");
  table
      .number("--round-timeout", round_timeout_s, kUpToADay,
              "seconds that an average and the vote on it may take; then the round has failed")
      .changes_no_bits();
  table
      .number("--patience", patience_s, kUpToADay,
              "seconds without a committed round after which a worker gives up: it saves and stops")
      .changes_no_bits();
  table
      .value("--elastic-key", key_file,
             "file with the keys that all workers share (elastic_lighthouse --make-key FILE); "
             "without it they listen on this machine only")
      .changes_no_bits();
}

void ElasticOptions::finalize(TrainOptions& options) {
  const HostPort address = host_port(lighthouse);
  check_usage(!key_file.empty() || is_loopback(address.host), "--elastic ", lighthouse,
              " is not on this machine: workers on several need --elastic-key, ",
              "for without keys they listen on the loopback only");
  check_usage(worker < num_workers, "--worker is ", worker, ", with --workers ", num_workers,
              " it must be from 0 to ", num_workers - 1);
  check_usage(options.get<DilocoOptions>().wire == WireFormat::kFp32,
              "--wire is for ranks of one run: values travel between workers in fp32");
  check_usage(options.gradient_sum == SumMode::kOrdered,
              "--gradient-sum exact is for steps 0 to 9, not for ", options.step);
  check_usage(options.device.is_cpu(),
              "workers that may die train on the CPU: leave out --device cuda");
}

HostPort host_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  HostPort address;
  const char* const end = text.data() + text.size();
  const bool has_port = colon != std::string::npos && colon > 0 &&
                        std::from_chars(text.data() + colon + 1, end, address.port).ptr == end &&
                        address.port >= 1 && address.port <= 65535;
  check_usage(has_port, "--elastic is '", text, "', it must be HOST:PORT of the lighthouse");
  address.host = text.substr(0, colon);
  check_usage(address.host.find(':') == std::string::npos, "--elastic is '", text,
              "': lighthouse and workers use IPv4 only, so HOST must be an IPv4 address, or a name "
              "that has one");
  return address;
}

bool is_loopback(const std::string& host) {
  in_addr address = {};  // of a name such as 127.example.com, anybody may be the owner
  return host == "localhost" ||
         (::inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

}  // namespace ladder
