#include "step1_ddp_reference/reference_ddp.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <utility>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/trace.hpp"
#include "step1_ddp_reference/communicator_backend.hpp"
#include "step1_ddp_reference/reference_reducer.hpp"

namespace ladder {
namespace {

// The Reducer calls this with each full bucket, and copies what it returns into the gradients.
// `state_` is the group.
class SumOverRanks final
    : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    std::vector<at::Tensor> flat = {bucket.getBufferRef()};
    return state_->allreduce(flat)->getFuture();  // SUM; nothing is divided by the number of ranks
  }
};

}  // namespace

ReferenceDdp::ReferenceDdp(FlatModel& model, Communicator& comm) : model_(model), comm_(comm) {
  const auto group = make_process_group(comm);
  const MemoryScope scope(MemoryCategory::kCommunication);
  reducer_ = std::make_unique<ReferenceReducer>(model, group);
  reducer_->register_comm_hook(std::make_unique<SumOverRanks>(group));
}

ReferenceDdp::~ReferenceDdp() = default;

void ReferenceDdp::broadcast_parameters(std::int64_t buffer_bytes) {
  const auto num_bytes = static_cast<std::size_t>(buffer_bytes);
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& leaf : model_.leaves()) tensors.push_back(leaf.tensor.detach());
  const MemoryScope scope(MemoryCategory::kCommunication);
  c10d::broadcast_coalesced(make_process_group(comm_), tensors, num_bytes, /*rank=*/0);
}

LossSum ReferenceDdp::wrap(LossSum loss_sum) {
  return [this, loss_sum = std::move(loss_sum)](const Microbatch& microbatch) {
    const bool is_counted = num_microbatches_ > 0 && at::GradMode::is_enabled();
    if (!is_counted) return loss_sum(microbatch);
    check(num_seen_ < num_microbatches_, where(), "arm() announced ", num_microbatches_,
          " microbatches, and this is one more");
    at::Tensor loss = loss_sum(microbatch);
    // Until the last microbatch the Reducer ignores its hooks: gradients accumulate, and nothing is
    // sent.
    if (++num_seen_ == num_microbatches_) reducer_->expect_backward();
    return loss;
  };
}

void ReferenceDdp::arm(std::int64_t num_microbatches) {
  check(num_microbatches > 0, where(), "arm() announces ", num_microbatches,
        " microbatches; without a backward pass there is nothing to reduce");
  check(num_microbatches_ == 0, where(), "arm() before the wait() of the previous step");
  num_microbatches_ = num_microbatches;
  num_seen_ = 0;
}

void ReferenceDdp::wait() {
  const Span span("wait");
  check(num_microbatches_ > 0, where(), "wait() without arm()");
  const std::int64_t num_announced = std::exchange(num_microbatches_, 0);
  check(num_seen_ == num_announced, where(), "arm() announced ", num_announced,
        " microbatches, but only ", num_seen_, " ran");
  if (reducer_->is_reduced()) return;  // backward() returned only once that was so
  std::string names;
  for (const std::string& name : reducer_->params_without_gradient()) names += " '" + name + "'";
  throw CheckError(concat(where(), "the last microbatch's backward gave no gradient to", names,
                          "; freeze what is not used, or use it on every rank"));
}

std::string ReferenceDdp::where() const {
  return concat("rank ", comm_.rank(), " of ", comm_.size(), ": ReferenceDdp: ");
}

}  // namespace ladder
