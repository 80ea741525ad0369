#include "common/comm/store/key_value_store.hpp"

#include <c10/core/thread_pool.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <future>
#include <mutex>
#include <sstream>
#include <utility>

#include "common/comm/communicator.hpp"
#include "common/comm/launcher_environment.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

// libtorch would log a stack trace for each failure: from here on it logs nothing below an error.
void silence_warnings() {
  static std::once_flag once;  // for all threads
  std::call_once(once, [] { FLAGS_caffe2_log_level = c10::GLOG_ERROR; });
}

// libtorch's errors come with a stack trace.
template <class Request>
auto ask(const std::string& who, const Request& request) {
  silence_warnings();
  try {
    return request();
  } catch (const c10::Error& error) {
    throw CheckError(concat(who, " does not answer: ", error.what_without_backtrace()));
  }
}

std::string store_at(const std::string& host, int port) {
  return concat("the store at ", host, ":", port);
}

c10d::TCPStoreOptions options_for(int port, bool is_server, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = is_server;
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1000));
  return options;
}

}  // namespace

struct KeyValueStore::Client {
  Client(const std::string& host, int wanted_port, bool is_server, double timeout_s)
      : Client(host, std::make_shared<c10d::TCPStore>(
                         host, options_for(wanted_port, is_server, timeout_s))) {}
  Client(const std::string& host, const std::shared_ptr<c10d::TCPStore>& tcp_store)
      : store(tcp_store), port(tcp_store->getPort()), who(store_at(host, port)) {}

  template <class Request>
  auto ask(const Request& request) {
    if (patience_s == 0) return ladder::ask(who, [&] { return request(*store); });
    check(!is_silent, who, " has not answered for ", patience_s, " s: is it frozen?");
    using Task = std::packaged_task<decltype(request(*store))()>;
    const auto task = std::make_shared<Task>([store = store, who = who, request] {
      return ladder::ask(who, [&] { return request(*store); });
    });
    auto answer = task->get_future();
    thread->run([task] { (*task)(); });
    constexpr std::chrono::milliseconds kTick(20);
    double waited_s = 0;  // in ticks: not while this process was frozen
    while (answer.wait_for(kTick) != std::future_status::ready) {
      waited_s += 1e-3 * static_cast<double>(kTick.count());
      is_silent = waited_s >= patience_s;
      if (is_silent) return ask(request);  // throws
    }
    return answer.get();
  }

  ~Client() {
    if (is_silent) static_cast<void>(thread.release());  // it waits for an answer, with the store
  }

  std::shared_ptr<c10d::Store> store;  // which has text as well as bytes
  int port;
  std::string who;
  double patience_s = 0;                    // 0: forever
  std::unique_ptr<c10::ThreadPool> thread;  // makes the requests, unless they may take forever
  bool is_silent = false;
};

KeyValueStore::KeyValueStore(const std::string& host, int port, bool is_server, double timeout_s)
    : client_(ask(store_at(host, port),
                  [&] { return std::make_unique<Client>(host, port, is_server, timeout_s); })) {}

KeyValueStore::~KeyValueStore() = default;

void KeyValueStore::limit_patience(double patience_s, const std::string& who) {
  client_->patience_s = patience_s;
  client_->thread = std::make_unique<c10::ThreadPool>(1);
  client_->who = who;
}

int KeyValueStore::port() const {
  return client_->port;
}

void KeyValueStore::put(const std::string& key, const std::string& value) {
  client_->ask([key, value](auto& store) { store.set(key, value); });
}

std::string KeyValueStore::put_if_absent(const std::string& key, const std::string& value) {
  // With an empty expectation, TCPStore sets a key that is not there.
  return client_->ask([key, value](auto& store) { return store.compareSet(key, "", value); });
}

bool KeyValueStore::has(const std::string& key) {
  return client_->ask([key](auto& store) { return store.check({key}); });
}

std::string KeyValueStore::get(const std::string& key) {
  return client_->ask([key](auto& store) { return store.get_to_str(key); });
}

void KeyValueStore::remove(const std::string& key) {
  client_->ask([key](auto& store) { store.deleteKey(key); });
}

std::int64_t KeyValueStore::add(const std::string& key, std::int64_t amount) {
  return client_->ask([key, amount](auto& store) { return store.add(key, amount); });
}

std::int64_t KeyValueStore::num_keys() {
  return client_->ask([](auto& store) { return store.getNumKeys(); });
}

std::unique_ptr<KeyValueStore> shared_store(Communicator& comm, double timeout_s) {
  std::unique_ptr<KeyValueStore> own;
  if (comm.rank() == 0)
    own = std::make_unique<KeyValueStore>("localhost", 0, /*is_server=*/true, timeout_s);
  const std::string host = host_name();
  std::istringstream of_server(
      all_gather_text(concat(own != nullptr ? own->port() : 0, " ", host), comm)[0]);
  int port = 0;
  std::string server;
  of_server >> port >> server;
  if (own != nullptr) return own;
  return std::make_unique<KeyValueStore>(host == server ? "localhost" : server, port,
                                         /*is_server=*/false, timeout_s);
}

}  // namespace ladder
