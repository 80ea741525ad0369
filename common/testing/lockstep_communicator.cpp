#include "common/testing/lockstep_communicator.hpp"

#include <algorithm>
#include <vector>

#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

std::string text_of(const Operation& operation) {
  const char* const call = to_string(operation.kind);
  if (operation.is_barrier()) return call;
  const std::int64_t numel = operation.tensor.numel();
  const std::string text = concat(call, " of ", numel, numel == 1 ? " element" : " elements");
  return operation.kind == CommOp::kBroadcast ? concat(text, " from rank ", operation.peer) : text;
}

}  // namespace

void LockstepCommunicator::agree(const std::string& intent) {
  if (!disagreement_.empty()) throw Disagreement(disagreement_);
  const MemoryScope scope(MemoryCategory::kOther, "agreements");  // none of the answer's
  const std::vector<std::string> intents = all_gather_text(intent, agreements_);
  // Counted by theory, because what is on its way meanwhile belongs to the answer.
  std::size_t longest = 0;
  for (const std::string& other : intents) longest = std::max(longest, other.size());
  of_agreements_ += all_gather_traffic(size(), sizeof(std::int64_t), size(), rank());
  of_agreements_ +=
      all_gather_traffic(size() * static_cast<std::int64_t>(longest), 1, size(), rank());
  if (std::all_of(intents.begin(), intents.end(),
                  [&](const std::string& other) { return other == intents[0]; })) {
    calls_.push_back(intent);
    return;
  }
  disagreement_ = "the ranks do not do the same, and would wait for each other forever:";
  for (int r = 0; r < size(); ++r)
    disagreement_ += concat(" rank ", r, ": ", intents[static_cast<std::size_t>(r)], ";");
  throw Disagreement(disagreement_);
}

Traffic LockstepCommunicator::traffic() const {
  Traffic traffic = inner_.traffic();
  return traffic -= of_agreements_;
}

void LockstepCommunicator::finish() {
  agree("nothing more");
}

WorkPtr LockstepCommunicator::start(const Operation& operation) {
  if (operation.is_message() && passes_messages_on_) return inner_.start(operation);
  check(!operation.is_message(), to_string(operation.kind), " is not needed here");
  agree(text_of(operation));
  return inner_.start(operation);
}

std::unique_ptr<Communicator> LockstepCommunicator::split(int color, int key) {
  check(passes_messages_on_, "split is not needed here");
  return inner_.split(color, key);
}

}  // namespace ladder
