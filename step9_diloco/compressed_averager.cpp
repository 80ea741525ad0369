#include "step9_diloco/compressed_averager.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>

#include "common/comm/slice.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/tree_sum.hpp"
#include "common/train/options/options.hpp"
#include "step9_diloco/exact_averager.hpp"

namespace ladder {
namespace {

constexpr int kSliceTag = 10;
constexpr int kMeanTag = 11;

bool are_done(const std::vector<WorkPtr>& works) {
  return std::all_of(works.begin(), works.end(), [](const WorkPtr& work) { return work->test(); });
}

void wait_for_all(std::vector<WorkPtr>& works) {
  for (const WorkPtr& work : works) work->wait();
  works.clear();
}

at::Tensor room_for(const at::Tensor& values, WireFormat format) {
  return at::empty({encoded_bytes(values.numel(), format)}, values.options().dtype(at::kByte));
}

}  // namespace

void CompressedAverager::start(at::Tensor values) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  values_ = std::move(values);
  for (int worker = 0; worker < comm_.size(); ++worker) {
    const at::Tensor own = slice_of_worker(comm_.rank());
    const bool is_own = worker == comm_.rank();
    pieces_.push_back(is_own ? encode(own, format_) : room_for(own, format_));
    if (is_own) continue;
    on_their_way_.push_back(comm_.recv(pieces_.back(), worker, kSliceTag));
    const at::Tensor bytes = encode(slice_of_worker(worker), format_);
    on_their_way_.push_back(comm_.send(bytes, worker, kSliceTag));
  }
}

void CompressedAverager::poll() {
  if (values_.defined() && are_done(on_their_way_) && means_.empty()) share_mean();
}

std::optional<int> CompressedAverager::finish() {
  const MemoryScope scope(MemoryCategory::kCommunication);
  if (means_.empty()) share_mean();
  wait_for_all(on_their_way_);
  for (int worker = 0; worker < comm_.size(); ++worker)
    decode(means_[static_cast<std::size_t>(worker)], format_, slice_of_worker(worker));
  means_.clear();
  values_.reset();
  return comm_.size();
}

void CompressedAverager::average_own_slice() {
  const at::Tensor sum = slice_of_worker(comm_.rank());
  const std::vector<at::Tensor> pieces = std::exchange(pieces_, {});
  const auto decoded = [&](int worker) {
    const at::Tensor values = worker == 0 ? sum : at::empty_like(sum);
    decode(pieces[static_cast<std::size_t>(worker)], format_, values);
    return values;
  };
  const auto add = [](const at::Tensor& left, const at::Tensor& right) { return left.add_(right); };
  tree_sum(0, comm_.size(), decoded, add).div_(comm_.size());
}

void CompressedAverager::share_mean() {
  const MemoryScope scope(MemoryCategory::kCommunication);
  wait_for_all(on_their_way_);
  average_own_slice();
  const at::Tensor mean = encode(slice_of_worker(comm_.rank()), format_);
  for (int worker = 0; worker < comm_.size(); ++worker) {
    const bool is_own = worker == comm_.rank();
    means_.push_back(is_own ? mean : room_for(slice_of_worker(worker), format_));
    if (is_own) continue;
    on_their_way_.push_back(comm_.recv(means_.back(), worker, kMeanTag));
    on_their_way_.push_back(comm_.send(mean, worker, kMeanTag));
  }
}

at::Tensor CompressedAverager::slice_of_worker(int worker) const {
  const ElementRange slice = slice_of(values_.numel(), comm_.size(), worker);
  return values_.narrow(0, slice.begin, slice.numel);
}

std::unique_ptr<Averager> make_averager(const TrainOptions& options, Communicator& comm) {
  const WireFormat wire = options.get<DilocoOptions>().wire;
  if (wire != WireFormat::kFp32) return std::make_unique<CompressedAverager>(comm, wire);
  if (options.gradient_sum == SumMode::kExact) return std::make_unique<ExactAverager>(comm);
  return std::make_unique<GroupAverager>(comm);
}

}  // namespace ladder
