#include "common/testing/lockstep_communicator.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/comm/gather_text.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

std::string on_tensor(const char* op, const at::Tensor& tensor) {
  return concat(op, " of ", tensor.numel(), tensor.numel() == 1 ? " element" : " elements");
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

WorkPtr LockstepCommunicator::all_reduce(at::Tensor inout) {
  agree(on_tensor("all_reduce", inout));
  return inner_.all_reduce(std::move(inout));
}

WorkPtr LockstepCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor shard) {
  agree(on_tensor("reduce_scatter", full));
  return inner_.reduce_scatter(full, std::move(shard));
}

WorkPtr LockstepCommunicator::all_gather(const at::Tensor& shard, at::Tensor full) {
  agree(on_tensor("all_gather", full));
  return inner_.all_gather(shard, std::move(full));
}

WorkPtr LockstepCommunicator::broadcast(at::Tensor inout, int root) {
  agree(concat(on_tensor("broadcast", inout), " from rank ", root));
  return inner_.broadcast(std::move(inout), root);
}

WorkPtr LockstepCommunicator::send(const at::Tensor& /*tensor*/, int /*peer*/, int /*tag*/) {
  throw CheckError("send is not needed here");
}

WorkPtr LockstepCommunicator::recv(at::Tensor /*tensor*/, int /*peer*/, int /*tag*/) {
  throw CheckError("recv is not needed here");
}

void LockstepCommunicator::barrier() {
  agree("barrier");
  inner_.barrier();
}

std::unique_ptr<Communicator> LockstepCommunicator::split(int /*color*/, int /*key*/) {
  throw CheckError("split is not needed here");
}

}  // namespace ladder
