#include "step9_diloco/exact_averager.hpp"

#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "common/optim/norm.hpp"

namespace ladder {
namespace {

// Views of the values [blocks, values of a block]: of the whole blocks, and of a shorter last one.
std::vector<at::Tensor> blocks_of(const at::Tensor& values) {
  const std::int64_t whole = values.numel() / kNormBlock, rest = values.numel() % kNormBlock;
  std::vector<at::Tensor> blocks;
  if (whole > 0)
    blocks.push_back(values.narrow(0, 0, whole * kNormBlock).view({whole, kNormBlock}));
  if (rest > 0) blocks.push_back(values.narrow(0, whole * kNormBlock, rest).view({1, rest}));
  return blocks;
}

// The largest magnitudes of each block [blocks], over all workers.
at::Tensor largest_of_all(const std::vector<at::Tensor>& blocks, Communicator& comm) {
  std::vector<at::Tensor> largest;
  for (const at::Tensor& part : blocks)
    largest.push_back(at::linalg_vector_norm(part, std::numeric_limits<double>::infinity(), 1));
  const at::Tensor own = at::cat(largest);
  const at::Tensor all = at::empty({comm.size(), own.numel()}, own.options());
  comm.all_gather(own, all)->wait();
  return at::amax(all, 0);
}

}  // namespace

void ExactAverager::start(at::Tensor values) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  const std::vector<at::Tensor> blocks = blocks_of(values);
  const at::Tensor power =  // of two, at most the largest; above infinity and NaN, infinity
      largest_of_all(blocks, comm_).clamp_min_(std::numeric_limits<float>::min());
  power.view(at::kInt).bitwise_and_(0x7f800000);
  const auto num_workers = static_cast<unsigned>(comm_.size());
  const at::Tensor shift = power.mul_(1.5 * std::bit_ceil(std::max(num_workers, 4U)));
  std::int64_t first = 0;
  for (const at::Tensor& part : blocks) {
    const at::Tensor of_part = shift.narrow(0, first, part.size(0)).unsqueeze(1);
    part.add_(of_part).sub_(of_part);
    first += part.size(0);
  }
  GroupAverager::start(std::move(values));
}

}  // namespace ladder
