// A client of libtorch's TCPStore: values under keys, which one process serves to all others.
//
// Threads: any, one at a time.
// Throws:  CheckError naming the address, if the server cannot be reached or has gone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace ladder {

class Communicator;

class KeyValueStore {
 public:
  // The server accepts no longer value.
  static constexpr std::int64_t kMaxValueBytes = std::int64_t{8} << 20;

  // Serves at this port as well, if asked to; port 0 is any free one. The server ends with this
  // object. A client waits up to `timeout_s` for the server to appear, and for a key in get().
  KeyValueStore(const std::string& host, int port, bool is_server, double timeout_s);
  ~KeyValueStore();

  // From here on a request waits at most so long, in a thread of its own, because the server's
  // process may be frozen. Errors say `who` instead of the address.
  void limit_patience(double patience_s, const std::string& who);
  int port() const;
  void put(const std::string& key, const std::string& value);  // does not wait
  // Puts it unless the key is there. Returns what is there then.
  std::string put_if_absent(const std::string& key, const std::string& value);
  bool has(const std::string& key);
  std::string get(const std::string& key);
  void remove(const std::string& key);
  std::int64_t add(const std::string& key, std::int64_t amount);  // to a number; returns the sum
  std::int64_t num_keys();

 private:
  struct Client;
  std::unique_ptr<Client> client_;
};

// A store that rank 0 of this group serves, which tells the others where. Collective, blocking.
std::unique_ptr<KeyValueStore> shared_store(Communicator& comm, double timeout_s);

}  // namespace ladder
