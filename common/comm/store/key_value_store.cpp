#include "common/comm/store/key_value_store.hpp"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// libtorch's errors come with a stack trace of its own.
template <class Request>
auto ask(const std::string& host, int port, Request request) {
  try {
    return request();
  } catch (const c10::Error& error) {
    throw CheckError(concat("the store at ", host, ":", port,
                            " does not answer: ", error.what_without_backtrace()));
  }
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
  Client(const std::string& host, int port, bool is_server, double timeout_s)
      : store(host, options_for(port, is_server, timeout_s)) {}
  template <class Request>
  auto ask(Request request) {
    return ladder::ask(store.getHost(), store.getPort(), request);
  }

  c10d::TCPStore store;
};

KeyValueStore::KeyValueStore(const std::string& host, int port, bool is_server, double timeout_s)
    : client_(ask(host, port,
                  [&] { return std::make_unique<Client>(host, port, is_server, timeout_s); })) {}

KeyValueStore::~KeyValueStore() = default;

int KeyValueStore::port() const {
  return client_->store.getPort();
}

void KeyValueStore::put(const std::string& key, const std::vector<std::uint8_t>& value) {
  client_->ask([&] { client_->store.set(key, value); });
}

std::vector<std::uint8_t> KeyValueStore::put_if_absent(const std::string& key,
                                                       const std::vector<std::uint8_t>& value) {
  // With an empty expectation, TCPStore sets a key that is not there.
  return client_->ask([&] { return client_->store.compareSet(key, {}, value); });
}

bool KeyValueStore::has(const std::string& key) {
  return client_->ask([&] { return client_->store.check({key}); });
}

std::vector<std::uint8_t> KeyValueStore::get(const std::string& key) {
  return client_->ask([&] { return client_->store.get(key); });
}

void KeyValueStore::remove(const std::string& key) {
  client_->ask([&] { client_->store.deleteKey(key); });
}

std::int64_t KeyValueStore::add(const std::string& key, std::int64_t amount) {
  return client_->ask([&] { return client_->store.add(key, amount); });
}

std::int64_t KeyValueStore::num_keys() {
  return client_->ask([&] { return client_->store.getNumKeys(); });
}

}  // namespace ladder
