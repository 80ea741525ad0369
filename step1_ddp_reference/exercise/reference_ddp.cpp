// Exercise of step 1: data parallelism around libtorch's Reducer.
//
// Write it as step1_ddp_reference/reference_ddp.hpp describes it, then run:
//   ./ladder exercise step1_ddp_reference
// The Reducer is built for you (reference_reducer.hpp says what it does), and so is the process
// group that wraps our Communicator (communicator_backend.hpp).
#include "step1_ddp_reference/reference_ddp.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <utility>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "step1_ddp_reference/communicator_backend.hpp"
#include "step1_ddp_reference/reference_reducer.hpp"

namespace ladder {
namespace {

// The Reducer calls this with each full bucket, and copies what it returns into the gradients.
class SumOverRanks final : public c10d::CommHookInterface {
 public:
  explicit SumOverRanks(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    // bucket.getBufferRef() is a flat tensor of this rank's gradients. The group's allreduce takes
    // a vector of tensors and returns a c10d::Work, whose getFuture() holds the result. The loss
    // was already divided by the target count of all ranks: what else must happen to the sum?
    static_cast<void>(bucket);
    static_cast<void>(group_);
    not_implemented("step1_ddp_reference: SumOverRanks::runHook()");
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

ReferenceDdp::ReferenceDdp(FlatModel& model, Communicator& comm) : model_(model), comm_(comm) {
  const auto group = make_process_group(comm);
  const MemoryScope scope(MemoryCategory::kCommunication);
  reducer_ = std::make_unique<ReferenceReducer>(model, group);
  reducer_->register_comm_hook(std::make_unique<SumOverRanks>(group));
}

ReferenceDdp::~ReferenceDdp() = default;

void ReferenceDdp::broadcast_parameters() {
  // c10d::broadcast_coalesced(group, tensors, buffer_bytes, root) broadcasts a list of tensors;
  // DistributedDataParallel uses 250 MiB. It writes to the tensors: pass leaf.tensor.detach().
  // Which of model_.leaves() must be equal on all ranks? Only the trainable ones?
  static_cast<void>(model_);
  not_implemented("step1_ddp_reference: broadcast_parameters()");
}

LossSum ReferenceDdp::wrap(LossSum loss_sum) {
  // Return a function that calls loss_sum and knows which microbatch of the step this is (num_seen_
  // of num_microbatches_). reducer_->expect_backward() makes the Reducer send the gradients of the
  // next backward. When must you call it, and when must you not? An evaluation
  // (at::GradMode::is_enabled() is false) is not a microbatch of the step.
  static_cast<void>(loss_sum);
  not_implemented("step1_ddp_reference: wrap()");
}

void ReferenceDdp::arm(std::int64_t num_microbatches) {
  // Two things can already be wrong here; report them with check(is_right, where(), "what is wrong,
  // and with what value").
  static_cast<void>(num_microbatches);
  static_cast<void>(num_seen_);
  not_implemented("step1_ddp_reference: arm()");
}

void ReferenceDdp::wait() {
  // Did as many microbatches run as were announced? Has everything been reduced
  // (reducer_->is_reduced()), and if not, which gradients are missing? Afterwards nothing is armed.
  not_implemented("step1_ddp_reference: wait()");
}

std::string ReferenceDdp::where() const {
  return concat("rank ", comm_.rank(), " of ", comm_.size(), ": ReferenceDdp: ");
}

}  // namespace ladder
