// Workers that may die: where they meet, and how long they wait.
#pragma once

#include <string>

#include "common/train/options/step_options.hpp"

namespace ladder {

struct ElasticOptions {
  std::string lighthouse = "127.0.0.1:29400";  // --elastic HOST:PORT
  std::string key_file = {};  // --elastic-key: a pair of CURVE keys; empty: loopback only
  int worker = 0;             // --worker: this one's number, which decides its part of the data
  int num_workers = 1;        // --workers: how many parts the data has
  // --round-timeout: for the average of a fragment, and the vote on it.
  double round_timeout_s = 30;
  double patience_s = 600;  // --patience: without a committed round for so long, it gives up

  void declare(OptionTable& table);
  void finalize(TrainOptions& options);
  void shape_batch(BatchShape& batch) const { batch.num_data_parts = num_workers; }
};

// HOST:PORT. Throws UsageError, also for an IPv6 address.
struct HostPort {
  std::string host;
  int port = 0;
};
HostPort host_port(const std::string& text);

// True for the names of this machine that no other one can reach: 127.0.0.0/8 as numbers, localhost.
bool is_loopback(const std::string& host);

}  // namespace ladder
