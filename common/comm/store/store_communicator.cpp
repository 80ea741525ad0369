#include "common/comm/store/store_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "common/comm/messages/operation_engine.hpp"
#include "common/comm/store/store_messages.hpp"
#include "common/core/check.hpp"

namespace ladder {

std::unique_ptr<StoreCommunicator> StoreCommunicator::create(std::shared_ptr<KeyValueStore> store,
                                                             const std::string& prefix, int rank,
                                                             int size, double timeout_s) {
  auto group = std::make_shared<StoreGroup>();
  group->rank = rank;
  group->size = size;
  group->meter = std::make_shared<Traffic>();
  group->store = std::move(store);
  group->prefix = prefix;
  group->failure_key = failure_key(prefix);
  group->timeout_s = timeout_s;
  return std::unique_ptr<StoreCommunicator>(
      new StoreCommunicator(std::move(group), std::make_shared<OperationEngine>()));
}

std::string StoreCommunicator::failure_key(const std::string& prefix) {
  return prefix + "failed";
}

StoreCommunicator::StoreCommunicator(std::shared_ptr<StoreGroup> group,
                                     std::shared_ptr<OperationEngine> engine)
    : MessageCommunicator(group, std::move(engine)), group_(std::move(group)) {}

// All ranks put what they pass, and read what the others have put. The new group's prefix follows
// from how often this one was split, and from the color.
std::unique_ptr<Communicator> StoreCommunicator::split(int color, int key) {
  using Passed = std::array<int, 2>;  // color and key
  KeyValueStore& store = *group_->store;
  const std::string prefix = concat(group_->prefix, "s", group_->num_splits++, "/");
  const auto key_of = [&](int r) { return concat(prefix, "of ", r); };
  const Passed own = {color, key};
  std::vector<std::uint8_t> bytes(sizeof own);
  std::memcpy(bytes.data(), own.data(), sizeof own);
  store.put(key_of(rank()), bytes);
  meet();  // all have put theirs
  std::vector<std::pair<int /*key*/, int /*old rank*/>> members;
  for (int r = 0; r < size(); ++r) {
    Passed passed;
    bytes = store.get(key_of(r));
    check(bytes.size() == sizeof passed, "split: '", key_of(r), "' has ", bytes.size(),
          " bytes, not ", sizeof passed, ": another program writes to this store");
    std::memcpy(passed.data(), bytes.data(), sizeof passed);
    if (passed[0] == color) members.emplace_back(passed[1], r);
  }
  meet();  // all have read it
  store.remove(key_of(rank()));
  if (color < 0) return nullptr;

  std::sort(members.begin(), members.end());
  const auto place = std::find(members.begin(), members.end(), std::pair(key, rank()));
  auto part = std::make_shared<StoreGroup>();
  part->rank = static_cast<int>(place - members.begin());
  part->size = static_cast<int>(members.size());
  part->meter = group_->meter;
  part->store = group_->store;
  part->prefix = concat(prefix, color, "/");
  part->failure_key = group_->failure_key;
  part->timeout_s = group_->timeout_s;
  return std::unique_ptr<Communicator>(new StoreCommunicator(std::move(part), engine()));
}

}  // namespace ladder
