// A worker's connection to the lighthouse: a client of its c10d::TCPStore on which nothing can
// hang.
//
// The store's own client waits without a limit for an answer once it is connected, so a lighthouse
// that is stopped, or a network that loses everything, would stop the worker too. Here every call
// has a deadline: a thread of the connection makes it, and a caller that runs out of patience
// leaves thread and connection to themselves and goes on with new ones. They end once the
// lighthouse goes on or is killed. While they hang, each new one waits twice as long as the one
// before: a lighthouse that is frozen for n time-outs costs log2(n) threads. Calls fail meanwhile.
//
// Thread-safe; calls are made one after the other. A call after a failed one connects again, to
// whatever lighthouse is there then.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/core/timer.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/seal.hpp"

namespace c10d {
class TCPStore;
}

namespace ladder {

// The lighthouse cannot be reached, or did not answer in time. What was asked may still happen.
class StoreError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Store {
 public:
  // Connects in the first call. `timeout_s`: of each call, connecting included.
  Store(HostPort lighthouse, double timeout_s, Seal seal = Seal(), Log log = say_nothing);
  ~Store();  // waits a moment for a call in progress, not longer
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // All throw StoreError. Values are sealed; one that was sealed with another key, or is no sealed
  // value at all, is as good as none, and the first such is logged.
  void set(const std::string& key, const std::string& value);  // once it has arrived
  std::optional<std::string> get(const std::string& key);      // nothing if there is no such key
  bool has_all(const std::vector<std::string>& keys);

  // One atomic step: writes `desired` if the value is `expected`. Returns the value after that,
  // empty if it is sealed with another key; with two exceptions for a missing key (store_test.cpp
  // shows both):
  //   `expected` is empty: creates the key, and returns `desired`
  //   otherwise: does nothing, and returns `expected`, although there is no such value
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired);

 private:
  class Connection;
  void connect();
  template <class Result>
  Result call(std::function<Result(c10d::TCPStore&)> use);
  std::optional<std::string> opened(const std::string& key, const std::string& sealed);

  HostPort lighthouse_;
  double timeout_s_;
  Seal seal_;
  Log log_;
  std::atomic<bool> has_warned_ = false;
  std::mutex mutex_;
  std::shared_ptr<Connection> connection_;  // null before the first call, and after one that failed
  std::vector<std::weak_ptr<Connection>> hanging_;  // in a call that nobody waits for any more
  Timer since_hanging_;                             // the last of them
};

}  // namespace ladder
