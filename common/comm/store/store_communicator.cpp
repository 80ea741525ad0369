#include "common/comm/store/store_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/messages/keyed_messages.hpp"
#include "common/comm/messages/message_communicator.hpp"
#include "common/comm/store/key_value_store.hpp"
#include "common/core/check.hpp"
#include "common/core/timer.hpp"

namespace ladder {
namespace {

constexpr std::size_t kHeaderBytes = 1 + sizeof(std::int64_t);  // operation, length
constexpr std::int64_t kPacketBytes = KeyValueStore::kMaxValueBytes / 2;

// A message is at least one packet: its header.
std::int64_t num_packets(std::int64_t bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / kPacketBytes + 1;
}

// How many of the message's bytes are in packet `index`.
std::size_t packet_bytes(std::int64_t bytes, std::int64_t index) {
  return static_cast<std::size_t>(std::min(kPacketBytes, bytes - index * kPacketBytes));
}

std::string packet_key(const std::string& key, std::int64_t index) {
  return index == 0 ? key : concat(key, "/", index);
}

struct StoreGroup final : KeyedGroup {
  std::unique_ptr<Messages> new_messages(CommOp op) override;
  std::shared_ptr<MessageGroup> part(int color, const std::vector<int>& members) override;

  std::shared_ptr<KeyValueStore> store;
  std::string failure_key;  // holds the name of a rank that has failed, once there is one
  double timeout_s = 0;
};

// The sender puts a message under its key, so a send is done at once. The receiver asks whether the
// key is there, and removes it with the last byte that it reads: the store holds only what is on
// its way. A message longer than the store's values travels under several keys, of which the first
// is put last. Other programs can write to the store, so no packet's length is believed.
class StoreMessages final : public KeyedMessages {
 public:
  StoreMessages(StoreGroup& group, CommOp op) : KeyedMessages(group, op), group_(group) {}

  void put(const std::string& key, const std::byte* data, std::int64_t bytes, int peer) override;
  bool try_take(const Awaited& awaited) override;
  void idle(double waited_s) override;

 private:
  struct Header {
    CommOp op;
    std::int64_t bytes = 0;  // of the message
  };
  std::optional<std::string> take(const std::string& key);  // out of the store
  static std::optional<Header> read_header(const std::string& packet);
  static std::string foreign(const Awaited& awaited);

  StoreGroup& group_;
};

std::unique_ptr<Messages> StoreGroup::new_messages(CommOp op) {
  return std::make_unique<StoreMessages>(*this, op);
}

std::shared_ptr<MessageGroup> StoreGroup::part(int color, const std::vector<int>& /*members*/) {
  auto part = std::make_shared<StoreGroup>();
  part->prefix = prefix_of_part(color);
  part->store = store;
  part->failure_key = failure_key;
  part->timeout_s = timeout_s;
  return part;
}

void StoreMessages::put(const std::string& key, const std::byte* data, std::int64_t bytes,
                        int /*peer*/) {
  for (std::int64_t i = num_packets(bytes) - 1; i >= 0; --i) {
    const std::int64_t begin = i * kPacketBytes;
    const std::size_t length = packet_bytes(bytes, i);
    const std::size_t header = i == 0 ? kHeaderBytes : 0;
    std::string packet(header + length, 0);
    if (i == 0) {
      packet[0] = static_cast<char>(op_);
      std::memcpy(packet.data() + 1, &bytes, sizeof bytes);
    }
    if (length > 0) std::memcpy(packet.data() + header, data + begin, length);
    group_.store->put(packet_key(key, i), packet);
  }
}

// Nothing if no rank can have sent it.
std::optional<StoreMessages::Header> StoreMessages::read_header(const std::string& packet) {
  if (packet.size() < kHeaderBytes || static_cast<std::uint8_t>(packet[0]) >= kNumCommOps)
    return {};
  Header header = {.op = static_cast<CommOp>(packet[0])};
  std::memcpy(&header.bytes, packet.data() + 1, sizeof header.bytes);
  if (header.bytes < 0) return {};
  return header;
}

bool StoreMessages::try_take(const Awaited& awaited) try {
  std::optional<std::string> packet = take(awaited.key);
  if (!packet) return false;
  const std::optional<Header> header = read_header(*packet);
  std::string problem = header ? difference(awaited, header->op, header->bytes) : foreign(awaited);
  for (std::int64_t i = 0; header && i < num_packets(header->bytes); ++i) {
    if (i > 0) packet = take(packet_key(awaited.key, i));
    const std::size_t begin = i == 0 ? kHeaderBytes : 0;
    const std::size_t length = packet_bytes(header->bytes, i);
    if (!packet || packet->size() != begin + length) {
      problem = foreign(awaited);
      break;
    }
    if (problem.empty() && length > 0)
      std::memcpy(awaited.data + i * kPacketBytes, packet->data() + begin, length);
  }
  if (!problem.empty()) error_ = problem;
  return true;
} catch (const CheckError& error) {
  throw CheckError(who() + error.what());
}

std::optional<std::string> StoreMessages::take(const std::string& key) {
  if (!group_.store->has(key)) return {};
  std::string packet = group_.store->get(key);
  group_.store->remove(key);
  return packet;
}

std::string StoreMessages::foreign(const Awaited& awaited) {
  return concat("the message of rank ", awaited.peer, " under '", awaited.key,
                "' is none of Ladder's: another program writes to this store; give the job a "
                "MASTER_PORT of its own");
}

void StoreMessages::idle(double waited_s) {
  KeyValueStore& store = *group_.store;
  if (waited_s > 1 && store.has(group_.failure_key))
    throw CheckError(concat(who(), store.get(group_.failure_key), " has failed"));
  check(waited_s < group_.timeout_s, who(), "rank ", awaited_.front().peer,
        " has sent nothing for ", group_.timeout_s,
        " s: it has ended, or waits for something else");
  const double pause_s = std::clamp(waited_s / 10, 20e-6, 1e-3);
  std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
}

}  // namespace

std::unique_ptr<Communicator> store_communicator(std::shared_ptr<KeyValueStore> store,
                                                 const std::string& prefix, int rank, int size,
                                                 double timeout_s) {
  auto group = std::make_shared<StoreGroup>();
  group->rank = rank;
  group->size = size;
  group->meter = std::make_shared<Traffic>();
  group->store = std::move(store);
  group->prefix = prefix;
  group->failure_key = store_failure_key(prefix);
  group->timeout_s = timeout_s;
  return std::make_unique<MessageCommunicator>(std::move(group));
}

std::string store_failure_key(const std::string& prefix) {
  return prefix + "failed";
}

StoreProcess::StoreProcess()
    : point_(torchrun_meeting_point()), exceptions_at_start_(std::uncaught_exceptions()) {
  store_ = std::make_shared<KeyValueStore>(point_.address, point_.port, is_server(),
                                           kStoreTimeoutSeconds);
  const std::string job = concat("ladder/", point_.num_restarts, "/");
  prefix_ = concat(job, store_->add(concat(job, "worlds of ", launched_rank()), 1), "/");
}

StoreProcess::~StoreProcess() {
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    announce_failure();
  } else {
    try {
      leave();
    } catch (const CheckError&) {  // rank 0 has not waited: whoever still needs it will say so
    }
  }
}

std::unique_ptr<Communicator> StoreProcess::communicator() const {
  return store_communicator(store_, prefix_, launched_rank(), launched_ranks());
}

void StoreProcess::announce_failure() noexcept {
  try {
    store_->put(store_failure_key(prefix_), concat("rank ", launched_rank()));
  } catch (const std::exception&) {  // the others will find that the store does not answer
  }
}

bool StoreProcess::is_server() const {
  return !point_.has_store && launched_rank() == 0;
}

// The server ends with its process.
void StoreProcess::leave() {
  if (point_.has_store) return;
  const std::string key = prefix_ + "left";
  const Timer timer;
  std::int64_t num_left = store_->add(key, 1);
  while (is_server() && num_left < launched_ranks() && timer.seconds() < kStoreTimeoutSeconds &&
         !store_->has(store_failure_key(prefix_))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    num_left = store_->add(key, 0);
  }
}

}  // namespace ladder
