#include "common/comm/nccl/nccl_communicator.hpp"

#include <nccl.h>

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "common/comm/argument_checks.hpp"
#include "common/comm/nccl/fold_kernel.hpp"
#include "common/comm/nccl/nccl_watchdog.hpp"
#include "common/comm/nccl/staged_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/comm/tree_fold.hpp"
#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/trace.hpp"

namespace ladder {
namespace {

using at::cuda::CUDAEvent;
using at::cuda::CUDAStream;

void check_nccl(ncclResult_t result, const char* call) {
  if (result != ncclSuccess)
    throw CheckError(
        concat(call, ": ", ncclGetErrorString(result), ": ", ncclGetLastError(nullptr)));
}

int runtime_version() {
  int version = 0;
  check_nccl(ncclGetVersion(&version), "ncclGetVersion");
  return version;
}

std::string version_text(int version) {  // 22809 is 2.28.9
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// Sums are computed in the tensor's own type.
ncclDataType_t nccl_type(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kInt:
      return ncclInt32;
    case at::kLong:
      return ncclInt64;
    default:
      throw CheckError(concat("NCCL cannot sum ", type));
  }
}

// The call in NCCL's own words, with tensors on the GPU. NCCL knows no tags.
void call_nccl(const Operation& operation, ncclComm_t comm, cudaStream_t stream) {
  const auto& [kind, tensor, shard, peer, tag, where] = operation;
  std::byte* const data = data_of(tensor);
  const auto check_call = [&](ncclResult_t result) {
    check_nccl(result, to_string(operation.kind));
  };
  switch (kind) {
    case CommOp::kAllReduce:
      return check_call(ncclAllReduce(data, data, static_cast<std::size_t>(tensor.numel()),
                                      nccl_type(tensor.scalar_type()), ncclSum, comm, stream));
    case CommOp::kReduceScatter:
      return check_call(ncclReduceScatter(data, data_of(shard),
                                          static_cast<std::size_t>(shard.numel()),
                                          nccl_type(tensor.scalar_type()), ncclSum, comm, stream));
    case CommOp::kAllGather:
      return check_call(
          ncclAllGather(data_of(shard), data, shard.nbytes(), ncclUint8, comm, stream));
    case CommOp::kSend:
      return check_call(ncclSend(data, tensor.nbytes(), ncclUint8, peer, comm, stream));
    case CommOp::kRecv:
      return check_call(ncclRecv(data, tensor.nbytes(), ncclUint8, peer, comm, stream));
    default:
      return check_call(ncclBroadcast(data, data, tensor.nbytes(), ncclUint8, peer, comm, stream));
  }
}

// As one group of NCCL's, in which neither a send nor a receive has to come first.
template <class Sent, class Received>
void exchange_with_peers(const RankSlices& slices, Sent sent_to, Received received_from,
                         ncclComm_t comm, cudaStream_t stream) {
  check_nccl(ncclGroupStart(), "ncclGroupStart");
  try {
    for (int peer = 0; peer < slices.size(); ++peer) {
      if (peer == slices.rank()) continue;
      const RankSlices::Bytes out = sent_to(peer), in = received_from(peer);
      if (!out.empty())
        check_nccl(ncclSend(out.data(), out.size(), ncclUint8, peer, comm, stream), "ncclSend");
      if (!in.empty())
        check_nccl(ncclRecv(in.data(), in.size(), ncclUint8, peer, comm, stream), "ncclRecv");
    }
  } catch (...) {
    ncclGroupEnd();  // NCCL aborts no communicator inside a group
    throw;
  }
  check_nccl(ncclGroupEnd(), "ncclGroupEnd");
}

// Sums in the order of the tree over NCCL, which itself adds up in an order of its own.
//
//   scatter and fold   every rank sends slice q of its tensor to rank q, which folds what arrives: a
//                      reduce_scatter
//   gather             every rank sends its slice to all others: with the former, an all_reduce
//
// Both only queue their work, on the slices of a tensor on the GPU, with room; its memory and the
// room's must stay until the stream is done with them. The sum of this rank's slice goes to
// `target`, which may be that slice.
void scatter_and_fold(const RankSlices& slices, std::byte* target, ncclComm_t comm,
                      cudaStream_t stream) {
  exchange_with_peers(
      slices, [&](int peer) { return slices.slice(peer); },
      [&](int peer) { return slices.arriving(peer); }, comm, stream);
  fold_on_gpu(slices.pieces(), slices.rank(), target, slices.dtype(), slices.own_numel(), stream);
}

void gather(const RankSlices& slices, ncclComm_t comm, cudaStream_t stream) {
  exchange_with_peers(
      slices, [&](int /*peer*/) { return slices.own(); },
      [&](int peer) { return slices.slice(peer); }, comm, stream);
}

// A group's id, made by rank 0.
ncclUniqueId agree_on_id(Communicator& control) {
  ncclUniqueId id = {};
  if (control.rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const at::Tensor bytes = at::empty({sizeof id}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &id, sizeof id);
  control.broadcast(bytes, 0)->wait();
  std::memcpy(&id, bytes.const_data_ptr(), sizeof id);
  return id;
}

// NCCL itself would only say "invalid usage".
void check_one_gpu_each(Communicator& control) {
  const std::vector<std::string> gpus = all_gather_text(current_gpu_id(), control);
  for (std::size_t b = 1; b < gpus.size(); ++b) {
    const auto a = std::find(gpus.begin(), gpus.end(), gpus[b]) - gpus.begin();
    check_usage(
        a == static_cast<std::ptrdiff_t>(b), "ranks ", a, " and ", b, " have the same GPU, and ",
        "NCCL needs one for each rank: start fewer ranks, or leave --transport out, and messages ",
        "pass through the host's memory");
  }
}

}  // namespace

std::string nccl_version() {
  return version_text(runtime_version());
}

struct NcclCommunicator::Streams {
  // A stream, and who watches what is on it: one operation after the other.
  struct Watched {
    explicit Watched(double timeout_s) : watchdog(timeout_s) {}

    CUDAStream stream = at::cuda::getStreamFromPool(/*isHighPriority=*/true);
    NcclWatchdog watchdog;
  };

  explicit Streams(const NcclOptions& the_options)
      : options(the_options), collectives(the_options.timeout_s), messages(the_options.timeout_s) {}
  std::array<Watched*, 2> both() { return {&collectives, &messages}; }

  NcclOptions options;
  Traffic meter;
  Watched collectives, messages;
};

struct NcclCommunicator::Group {
  Group(ncclUniqueId id, int size, int rank, std::shared_ptr<Streams> the_streams)
      : streams(std::move(the_streams)) {
    check_nccl(ncclCommInitRank(&comm, size, id, rank), "ncclCommInitRank");
  }
  // Destroying waits for the other ranks, which after an exception here will not come.
  ~Group() {
    const bool is_failing = std::uncaught_exceptions() > exceptions_at_start;
    for (Streams::Watched* each : streams->both()) {
      // Watched; an error is the next call's to report.
      if (!is_failing) cudaStreamSynchronize(each->stream.stream());
      each->watchdog.forget(comm);
    }
    is_failing ? ncclCommAbort(comm) : ncclCommDestroy(comm);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  std::shared_ptr<Streams> streams;
  ncclComm_t comm = nullptr;
  int exceptions_at_start = std::uncaught_exceptions();
};

// An operation on a communication stream, which keeps its tensors until it has been waited for.
class NcclCommunicator::NcclWork final : public Work {
 public:
  NcclWork(std::shared_ptr<Group> group, CUDAStream stream, std::shared_ptr<CUDAEvent> done,
           std::vector<at::Tensor> tensors)
      : group_(std::move(group)),
        stream_(stream),
        done_(std::move(done)),
        tensors_(std::move(tensors)) {}

  // Dropped, by an exception: the allocator must not hand out the memory before NCCL is done with
  // it.
  ~NcclWork() override {
    for (const at::Tensor& tensor : tensors_)
      c10::cuda::CUDACachingAllocator::recordStream(tensor.storage().data_ptr(), stream_);
  }

  bool test() override { return done_->query(); }

  void wait() override {
    done_->block(at::cuda::getCurrentCUDAStream());
    tensors_.clear();  // freed in the order of the current stream, and so after the operation
  }

 private:
  std::shared_ptr<Group> group_;
  CUDAStream stream_;
  std::shared_ptr<CUDAEvent> done_;
  std::vector<at::Tensor> tensors_;
};

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> control,
                                   std::shared_ptr<Streams> streams)
    : ForwardingCommunicator(std::move(control)), streams_(std::move(streams)) {
  group_ = std::make_shared<Group>(agree_on_id(inner_), size(), rank(), streams_);
}

NcclCommunicator::~NcclCommunicator() = default;

std::unique_ptr<NcclCommunicator> NcclCommunicator::create(std::unique_ptr<Communicator> control,
                                                           const NcclOptions& options) {
  check(runtime_version() == NCCL_VERSION_CODE, "this process has loaded NCCL ", nccl_version(),
        ", but the program was built with ", version_text(NCCL_VERSION_CODE),
        ": is another one in LD_LIBRARY_PATH? It must be the one that libtorch loads");
  check_one_gpu_each(*control);
  return std::unique_ptr<NcclCommunicator>(
      new NcclCommunicator(std::make_unique<StagedCommunicator>(std::move(control)),
                           std::make_shared<Streams>(options)));
}

Traffic NcclCommunicator::traffic() const {
  Traffic sum = inner_.traffic();
  return sum += streams_->meter;
}

WorkPtr NcclCommunicator::start(const Operation& operation) {
  check_operation(operation, *this, Reach::kAnyDevice);
  if (operation.is_barrier()) {
    at::cuda::getCurrentCUDAStream().synchronize();
    for (Streams::Watched* each : streams_->both()) each->stream.synchronize();
  }
  const bool is_staged = operation.is_message() && !has_message_order_;
  if (operation.is_barrier() || is_staged || operation.tensor.is_cpu())
    return inner_.start(operation);
  if (!operation.is_sum() || streams_->options.reduction == Reduction::kNative) {
    return queue(operation, {},
                 [&](ncclComm_t comm, cudaStream_t stream) { call_nccl(operation, comm, stream); });
  }
  RankSlices slices(operation.tensor, rank(), size());
  slices.make_room();
  return queue(operation, slices.room(), [&](ncclComm_t comm, cudaStream_t stream) {
    const bool is_scatter = operation.kind == CommOp::kReduceScatter;
    scatter_and_fold(slices, is_scatter ? data_of(operation.shard) : slices.own().data(), comm,
                     stream);
    if (!is_scatter) gather(slices, comm, stream);
  });
}

// Runs `launch(comm, stream)` behind what the caller's stream has been given so far.
template <class Launch>
WorkPtr NcclCommunicator::queue(const Operation& operation, const at::Tensor& scratch,
                                Launch launch) {
  const Span span(to_string(operation.kind));
  streams_->meter += traffic_of(operation, size(), rank(), machines().without_grid());
  auto& [stream, watchdog] = operation.is_message() ? streams_->messages : streams_->collectives;
  CUDAEvent ready;
  ready.record(at::cuda::getCurrentCUDAStream());
  ready.block(stream);
  CUDAEvent begun;
  begun.record(stream);
  launch(group_->comm, stream.stream());
  auto done = std::make_shared<CUDAEvent>();
  done->record(stream);
  watchdog.watch(group_->comm, std::move(begun), done,
                 [prefix = message_prefix(rank(), size(), to_string(operation.kind)),
                  numel = operation.tensor.numel(), type = operation.tensor.scalar_type()] {
                   return concat(prefix, numel, " ", type);
                 });
  std::vector<at::Tensor> tensors = {operation.tensor, operation.shard, scratch};
  std::erase_if(tensors, [](const at::Tensor& tensor) { return !tensor.defined(); });
  return std::make_unique<NcclWork>(group_, stream, std::move(done), std::move(tensors));
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part = inner_.split(color, key);
  if (part == nullptr) return nullptr;
  return std::unique_ptr<Communicator>(new NcclCommunicator(std::move(part), streams_));
}

}  // namespace ladder
