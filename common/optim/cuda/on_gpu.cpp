#include "common/optim/on_gpu.hpp"

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/optim/cuda/update_kernels.hpp"
#include "common/optim/norm.hpp"

namespace ladder {
namespace {

// Through pinned memory, which the GPU writes by itself: a copy to other memory is two copies.
std::vector<double> to_host(const at::Tensor& sums) {
  const at::Tensor host =
      at::empty(sums.sizes(), at::TensorOptions(at::kDouble).pinned_memory(sums.is_cuda()));
  host.copy_(sums, /*non_blocking=*/true);
  wait_for(sums.device());
  const auto* data = host.const_data_ptr<double>();
  return {data, data + host.numel()};
}

}  // namespace

void adamw_on_gpu(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                  at::TensorList exp_avg_sqs, at::TensorList rounded, const AdamWStep& step) {
  if (params.empty()) return;
  const bool is_rounded = !rounded.empty();
  std::vector<kernels::AdamWTensor> tensors;
  for (std::size_t i = 0; i < params.size(); ++i) {
    tensors.push_back({params[i].mutable_data_ptr<float>(), grads[i].const_data_ptr(),
                       exp_avgs[i].mutable_data_ptr<float>(),
                       exp_avg_sqs[i].mutable_data_ptr<float>(),
                       is_rounded ? rounded[i].mutable_data_ptr() : nullptr, params[i].numel()});
  }
  kernels::adamw(tensors, grads.front().scalar_type(),
                 is_rounded ? rounded.front().scalar_type() : at::kFloat, factors_of(step),
                 at::cuda::getCurrentCUDAStream());
}

std::vector<double> block_sums_on_gpu(const std::vector<at::Tensor>& pieces) {
  std::int64_t total = 0;
  for (const at::Tensor& piece : pieces) total += num_norm_blocks(piece.numel());
  if (total == 0) return {};
  const MemoryScope scope(MemoryCategory::kOther, "block sums");
  const at::Tensor sums = at::empty({total}, pieces.front().options().dtype(at::kDouble));
  std::int64_t first = 0;
  for (const at::Tensor& piece : pieces) {
    check(piece.is_contiguous(), "block_sums() takes contiguous pieces");
    kernels::block_sums(piece.const_data_ptr(), piece.scalar_type(),
                        sums.mutable_data_ptr<double>() + first, piece.numel(),
                        at::cuda::getCurrentCUDAStream());
    first += num_norm_blocks(piece.numel());
  }
  return to_host(sums);
}

void round_to_quanta_on_gpu(const at::Tensor& values, const float* quanta, std::int64_t offset,
                            float share) {
  kernels::round_to_quanta(values.mutable_data_ptr(), values.scalar_type(), values.numel(), quanta,
                           offset, share, at::cuda::getCurrentCUDAStream());
}

}  // namespace ladder
