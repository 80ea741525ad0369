#include "common/model/cross_entropy_on_gpu.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/custom_function.h>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/cuda/cross_entropy_kernels.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

static_assert(sizeof(SoftmaxSum) == 2 * sizeof(float));  // a row of a tensor [rows, 2]

kernels::LogitRows logit_rows(const at::Tensor& logits, const at::Tensor& targets,
                              std::int64_t ignored_target) {
  return {.logits = logits.const_data_ptr(),
          .type = logits.scalar_type(),
          .num_rows = logits.size(0),
          .num_classes = logits.size(1),
          .row_stride = logits.stride(0),
          .targets = targets.const_data_ptr<std::int64_t>(),
          .ignored_target = ignored_target};
}

// logits [N, V], each row contiguous, targets [N], contiguous -> [] fp32.
struct CrossEntropySum : torch::autograd::Function<CrossEntropySum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets, std::int64_t ignored_target) {
    const at::TensorOptions fp32 = logits.options().dtype(at::kFloat);
    const at::Tensor losses = at::empty({logits.size(0)}, fp32);
    const at::Tensor sums = at::empty({logits.size(0), 2}, fp32);
    kernels::cross_entropy(logit_rows(logits, targets, ignored_target),
                           losses.mutable_data_ptr<float>(),
                           reinterpret_cast<SoftmaxSum*>(sums.mutable_data_ptr<float>()),
                           at::cuda::getCurrentCUDAStream());
    context->save_for_backward({logits, targets, sums});
    context->saved_data["ignored_target"] = ignored_target;
    return losses.sum();
  }

  // The gradients are new memory: the logits may be needed again. Their rows are as far apart.
  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &targets = saved[1], &sums = saved[2];
    const at::Tensor gradients =
        at::empty_strided(logits.sizes(), logits.strides(), logits.options());
    kernels::cross_entropy_backward(
        logit_rows(logits, targets, context->saved_data["ignored_target"].toInt()),
        reinterpret_cast<const SoftmaxSum*>(sums.const_data_ptr<float>()),
        outputs[0].const_data_ptr<float>(), gradients.mutable_data_ptr(),
        at::cuda::getCurrentCUDAStream());
    return {gradients, {}, {}};
  }
};

// [num_rows, V], each row without gaps; between rows there may be some.
at::Tensor in_rows(const at::Tensor& logits, std::int64_t num_rows) {
  const at::Tensor rows = logits.reshape({num_rows, logits.size(-1)});
  return rows.stride(1) == 1 && rows.stride(0) >= rows.size(1) ? rows : rows.contiguous();
}

}  // namespace

at::Tensor cross_entropy_sum_on_gpu(const at::Tensor& logits, const at::Tensor& targets,
                                    std::int64_t ignored_target) {
  const at::ScalarType type = logits.scalar_type();
  check(type == at::kFloat || is_16_bit(type),
        "the cross-entropy on a GPU takes logits in fp32, bf16 or fp16, not ", type);
  check(targets.scalar_type() == at::kLong, "targets are int64, not ", targets.scalar_type());
  check(logits.is_cuda() && targets.device() == logits.device(), "logits on ", logits.device(),
        " and targets on ", targets.device(), " should be on the same GPU");
  check(logits.dim() > 0 && logits.sizes().slice(0, logits.sizes().size() - 1) == targets.sizes(),
        "logits ", logits.sizes(), " have no row for each of the targets ", targets.sizes());
  return CrossEntropySum::apply(in_rows(logits, targets.numel()), targets.flatten().contiguous(),
                                ignored_target);
}

}  // namespace ladder
