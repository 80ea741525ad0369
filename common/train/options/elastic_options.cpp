#include "common/train/options/elastic_options.hpp"

#include <charconv>

#include "common/core/check.hpp"

namespace ladder {

void check_elastic(const ElasticOptions& options) {
  const HostPort lighthouse = host_port(options.lighthouse);
  check_usage(!options.key_file.empty() || is_loopback(lighthouse.host), "--elastic ",
              options.lighthouse,
              " is not on this machine: workers on several need --elastic-key, ",
              "for without keys they listen on the loopback only");
  check_usage(options.num_workers >= 1, "--workers is ", options.num_workers,
              ", it must be at least 1");
  check_usage(options.worker >= 0 && options.worker < options.num_workers, "--worker is ",
              options.worker, ", with --workers ", options.num_workers, " it must be from 0 to ",
              options.num_workers - 1);
  check_usage(options.min_workers >= 1 && options.min_workers <= options.num_workers,
              "--min-workers is ", options.min_workers, ", it must be from 1 to the ",
              options.num_workers, " of --workers");
  const auto check_time = [](const char* option, double seconds) {
    check_usage(seconds > 0 && seconds <= 86400, option, " is ", seconds,
                " s, it must be above 0 and at most a day");
  };
  check_time("--join-timeout", options.join_timeout_s);
  check_time("--round-timeout", options.round_timeout_s);
  check_time("--patience", options.patience_s);
  check_usage(options.patience_s > options.join_timeout_s, "--patience is ", options.patience_s,
              " s, it must be above the ", options.join_timeout_s,
              " s of --join-timeout: a worker waits that long for one that still trains");
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
  return host == "localhost" || host.starts_with("127.");
}

}  // namespace ladder
