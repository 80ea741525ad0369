#include "step9_diloco/elastic/elastic_options.hpp"

#include <charconv>

#include "common/train/options/option_table.hpp"
#include "step9_diloco/diloco_options.hpp"

namespace ladder {

void ElasticOptions::declare(OptionTable& table) {
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
      .number(
          "--min-workers", min_workers, {1, kMostRanks},
          "so many must contribute to an average, not heal or have finished; fewer wait, or train "
          "on")
      .changes_no_bits();
  table
      .value("--join-timeout", join_timeout_s,
             "seconds that a round waits for a worker that still trains or heals; more than an "
             "inner step, an evaluation or a save takes")
      .changes_no_bits();
  table
      .value("--round-timeout", round_timeout_s,
             "seconds that an average and the vote on it may take; then the round has failed")
      .changes_no_bits();
  table
      .value("--patience", patience_s,
             "seconds without a committed round after which a worker gives up: it saves and stops")
      .changes_no_bits();
  table.choice("--merge", merge, {{"equal", Merge::kEqual}, {"tokens", Merge::kTokens}},
               "what a worker's part of the average weighs: as much as any other, or its tokens");
  table
      .value("--elastic-key", key_file,
             "file with the keys that all workers share (elastic_lighthouse --make-key FILE); "
             "without it they listen on this machine only")
      .changes_no_bits();
}

void ElasticOptions::finalize(TrainOptions& options) {
  check_elastic(*this);
  check_usage(options.get<DilocoOptions>().wire == WireFormat::kFp32,
              "--wire is for ranks of one run: values travel between workers in fp32");
  check_usage(options.device.is_cpu(),
              "workers that may die train on the CPU: leave out --device cuda");
  options.shape.num_data_parts = num_workers;
}

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
