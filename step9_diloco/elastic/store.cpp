#include "step9_diloco/elastic/store.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "common/core/check.hpp"
#include "step9_diloco/elastic/no_name_servers.hpp"

namespace ladder {
namespace {

constexpr std::chrono::milliseconds kHangingPause(5);  // between two looks at calls that hang
constexpr int kMaxDoublings = 7;                       // of the time until the next connection

using Bytes = std::vector<std::uint8_t>;
Bytes bytes_of_text(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string text_of_bytes(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(
      std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1e3)));
}

// The numeric address behind the name, if something listens there. TCPStore's own attempts would
// write a page to stderr otherwise.
std::optional<std::string> find_listener(const HostPort& address, double seconds) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) !=
      0)
    return {};
  std::optional<std::string> listener;
  for (const addrinfo* info = found; info != nullptr && !listener; info = info->ai_next) {
    const int fd = ::socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    bool is_there = ::connect(fd, info->ai_addr, info->ai_addrlen) == 0;
    pollfd ready = {.fd = fd, .events = POLLOUT, .revents = 0};
    if (!is_there && errno == EINPROGRESS &&
        ::poll(&ready, 1, static_cast<int>(milliseconds_of(seconds).count())) == 1) {
      int error = 0;
      socklen_t size = sizeof error;
      is_there = ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
    }
    ::close(fd);
    char text[NI_MAXHOST] = {};
    if (is_there && ::getnameinfo(info->ai_addr, info->ai_addrlen, text, sizeof text, nullptr, 0,
                                  NI_NUMERICHOST) == 0)
      listener = text;
  }
  ::freeaddrinfo(found);
  return listener;
}

}  // namespace

// A connection and the thread that uses it. The thread shares the ownership: whoever leaves it
// behind in the middle of a call need not wait for it.
class Store::Connection : public std::enable_shared_from_this<Store::Connection> {
 public:
  using Call = std::function<void(c10d::TCPStore&)>;
  Connection(HostPort address, double timeout_s)
      : address_(std::move(address)), timeout_s_(timeout_s) {}

  void start() {
    std::thread([self = shared_from_this()] { self->run(); }).detach();
  }
  // `use` gets the store, or `fail` the reason why there is none.
  void post(Call use, std::function<void(std::exception_ptr)> fail) {
    const std::lock_guard lock(mutex_);
    calls_.push_back({std::move(use), std::move(fail)});
    changed_.notify_all();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  void await_end(double seconds) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, milliseconds_of(seconds), [&] { return has_ended_; });
  }

 private:
  struct Entry {
    Call use;
    std::function<void(std::exception_ptr)> fail;
  };

  void run() {
    std::unique_ptr<c10d::TCPStore> store;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return is_closed_ || !calls_.empty(); });
      if (is_closed_) break;
      const Entry entry = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      try {
        if (!store) store = connect();
        entry.use(*store);
      } catch (...) {
        entry.fail(std::current_exception());
      }
      lock.lock();
    }
    lock.unlock();
    store.reset();
    lock.lock();
    has_ended_ = true;
    changed_.notify_all();
  }

  std::unique_ptr<c10d::TCPStore> connect() const {
    const std::optional<std::string> listener = find_listener(address_, timeout_s_);
    check(listener.has_value(), "nobody listens");
    const NoNameServers no_name_servers;
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(address_.port);
    options.waitWorkers = false;
    options.timeout = milliseconds_of(timeout_s_);
    return std::make_unique<c10d::TCPStore>(*listener, options);
  }

  const HostPort address_;
  const double timeout_s_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> calls_;
  bool is_closed_ = false, has_ended_ = false;
};

Store::Store(HostPort lighthouse, double timeout_s, Seal seal, Log log)
    : lighthouse_(std::move(lighthouse)),
      timeout_s_(timeout_s),
      seal_(seal),
      log_(std::move(log)) {}

Store::~Store() {
  if (!connection_) return;
  connection_->close();
  connection_->await_end(0.2);
}

void Store::connect() {
  const Timer timer;
  const auto has_ended = [](const std::weak_ptr<Connection>& call) { return call.expired(); };
  while (true) {
    std::erase_if(hanging_, has_ended);
    const int num_hanging = std::min(static_cast<int>(hanging_.size()), kMaxDoublings);
    if (since_hanging_.seconds() >= timeout_s_ * ((1 << num_hanging) / 2 - 1)) break;
    if (timer.seconds() >= timeout_s_)
      throw StoreError(concat("the lighthouse at ", lighthouse_.host, ":", lighthouse_.port,
                              " does not answer: ", hanging_.size(), " calls hang"));
    std::this_thread::sleep_for(kHangingPause);
  }
  connection_ = std::make_shared<Connection>(lighthouse_, timeout_s_);
  connection_->start();
}

template <class Result>
Result Store::call(std::function<Result(c10d::TCPStore&)> use) {
  const std::lock_guard lock(mutex_);
  if (!connection_) connect();
  const auto promise = std::make_shared<std::promise<Result>>();
  std::future<Result> result = promise->get_future();
  connection_->post([promise, use](c10d::TCPStore& store) { promise->set_value(use(store)); },
                    [promise](const std::exception_ptr& error) { promise->set_exception(error); });
  std::string reason = "no answer in time";
  try {
    if (result.wait_for(milliseconds_of(timeout_s_)) == std::future_status::ready)
      return result.get();
    hanging_.push_back(connection_);
    since_hanging_.restart();
  } catch (const std::exception& error) {
    reason = std::string(error.what()).substr(0, std::string(error.what()).find('\n'));
  }
  connection_->close();
  connection_.reset();
  throw StoreError(concat("the lighthouse at ", lighthouse_.host, ":", lighthouse_.port,
                          " cannot be reached: ", reason));
}

std::optional<std::string> Store::opened(const std::string& key, const std::string& sealed) {
  std::optional<std::string> text = seal_.open(key, sealed);
  if (!text && !has_warned_.exchange(true))
    log_(concat("ignores ", key,
                " in the store, written by somebody who does not have this worker's ",
                "--elastic-key: a stranger, or the lighthouse has another key"));
  return text;
}

void Store::set(const std::string& key, const std::string& value) {
  call<bool>([key, bytes = bytes_of_text(seal_.seal(key, value))](c10d::TCPStore& store) {
    store.set(key, bytes);
    return store.check({key});  // set() itself does not wait for an answer
  });
}

std::optional<std::string> Store::get(const std::string& key) {
  const auto sealed =
      call<std::optional<std::string>>([=](c10d::TCPStore& store) -> std::optional<std::string> {
        if (!store.check({key})) return {};  // get() would wait for the key
        return text_of_bytes(store.get(key));
      });
  if (!sealed) return {};
  return opened(key, *sealed);
}

bool Store::has_all(const std::vector<std::string>& keys) {
  const auto values = call<std::vector<Bytes>>([=](c10d::TCPStore& store) -> std::vector<Bytes> {
    if (!store.check(keys)) return {};
    return store.multiGet(keys);
  });
  if (values.size() != keys.size()) return false;
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (!opened(keys[i], text_of_bytes(values[i]))) return false;
  return true;
}

std::string Store::compare_set(const std::string& key, const std::string& expected,
                               const std::string& desired) {
  const auto sealed = [&](const std::string& text) {
    return bytes_of_text(text.empty() ? text : seal_.seal(key, text));
  };
  const std::string found = call<std::string>(
      [key, before = sealed(expected), after = sealed(desired)](c10d::TCPStore& store) {
        return text_of_bytes(store.compareSet(key, before, after));
      });
  return opened(key, found).value_or("");
}

}  // namespace ladder
