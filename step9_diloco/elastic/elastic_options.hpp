// Workers that may die: where they meet, and how long they wait for one another.
#pragma once

#include <string>

#include "common/train/options/step_options.hpp"

namespace ladder {

// How much a worker counts in the average: as much as each other one, or by the tokens it has seen.
enum class Merge { kEqual, kTokens };

struct ElasticOptions {
  std::string lighthouse = "127.0.0.1:29400";  // --elastic HOST:PORT
  std::string key_file = {};   // --elastic-key: a pair of CURVE keys; empty: loopback only
  int worker = 0;              // --worker: this one's number, which decides its part of the data
  int num_workers = 1;         // --workers: how many parts the data has
  int min_workers = 1;         // --min-workers: fewer contributors than these average nothing
  double join_timeout_s = 60;  // --join-timeout: how long a quorum waits for a worker that trains;
                               // longer than the slowest inner step, evaluation or save
  // --round-timeout: for the average of a fragment, and the vote on it.
  double round_timeout_s = 30;
  double patience_s = 600;      // --patience: without a committed round for so long, it gives up
  Merge merge = Merge::kEqual;  // --merge equal|tokens

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

// True for the names of this machine that no other one can reach: 127.0.0.0/8, localhost.
bool is_loopback(const std::string& host);

}  // namespace ladder
