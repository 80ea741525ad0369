#include "common/testing/lockstep_communicator.hpp"

#include <algorithm>
#include <vector>

#include "common/comm/gather_text.hpp"
#include "common/core/check.hpp"

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
  const Traffic before = agreements_.traffic();
  const std::vector<std::string> intents = all_gather_text(intent, agreements_);
  of_agreements_ += agreements_.traffic();
  of_agreements_ -= before;
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
  check(!operation.is_message(), to_string(operation.kind), " is not needed here");
  agree(text_of(operation));
  return inner_.start(operation);
}

std::unique_ptr<Communicator> LockstepCommunicator::split(int /*color*/, int /*key*/) {
  throw CheckError("split is not needed here");
}

}  // namespace ladder
