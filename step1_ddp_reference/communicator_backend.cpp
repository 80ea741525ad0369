#include "step1_ddp_reference/communicator_backend.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "common/core/check.hpp"

namespace ladder {
namespace {

class FinishedWork final : public c10d::Work {
 public:
  FinishedWork(int rank, c10d::OpType op, const std::vector<at::Tensor>& result)
      : c10d::Work(rank, op),
        future_(
            c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(), gpus_of(result))) {
    future_->markCompleted(c10::IValue(result));
    finish();
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  // The GPUs whose streams a reader of the future must wait for.
  static std::vector<c10::Device> gpus_of(const std::vector<at::Tensor>& tensors) {
    if (tensors.empty() || !tensors.front().is_cuda()) return {};
    return {tensors.front().device()};
  }

  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class CommunicatorBackend final : public c10d::Backend {
 public:
  explicit CommunicatorBackend(Communicator& comm)
      : c10d::Backend(comm.rank(), comm.size()), comm_(comm) {}

  const std::string getBackendName() const override { return "ladder"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    check_one(tensors, CommOp::kAllReduce);
    check(options.reduceOp == c10d::ReduceOp::SUM, "rank ", getRank(), " of ", getSize(),
          ": all_reduce: libtorch asks for a reduction other than SUM");
    comm_.all_reduce(tensors[0])->wait();
    return c10::make_intrusive<FinishedWork>(getRank(), c10d::OpType::ALLREDUCE, tensors);
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    check_one(tensors, CommOp::kBroadcast);
    comm_.broadcast(tensors[0], static_cast<int>(options.rootRank))->wait();
    return c10::make_intrusive<FinishedWork>(getRank(), c10d::OpType::BROADCAST, tensors);
  }

 private:
  void check_one(const std::vector<at::Tensor>& tensors, CommOp op) const {
    check(tensors.size() == 1, "rank ", getRank(), " of ", getSize(), ": ", to_string(op),
          ": libtorch passes ", tensors.size(), " tensors, but one is expected");
  }

  Communicator& comm_;
};

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(Communicator& comm) {
  // A group needs a store, through which its backends find each other. Ours knows its ranks
  // already, so the store stays empty.
  auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(),
                                                       comm.rank(), comm.size());
  const auto backend = c10::make_intrusive<CommunicatorBackend>(comm);
  for (const c10::DeviceType type : {c10::DeviceType::CPU, c10::DeviceType::CUDA})
    group->setBackend(type, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return group;
}

}  // namespace ladder
