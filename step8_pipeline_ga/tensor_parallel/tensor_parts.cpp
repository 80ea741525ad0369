#include "step8_pipeline_ga/tensor_parallel/tensor_parts.hpp"

#include <ATen/ops/zeros.h>

#include <memory>

namespace ladder {

Parts parts_on(const Mesh& mesh, const TrainOptions& options) {
  const auto total = static_cast<int>(options.model.product_parts);
  const int num_ranks = mesh.num_tensor_ranks(), own = total / num_ranks;
  if (num_ranks == 1) return all_parts(total);
  Communicator& ranks = mesh.tensor_parallel;
  return {.total = total,
          .first = mesh.tp_rank() * own,
          .own = own,
          .start_sum = [&ranks](const at::Tensor& values) -> Parts::Wait {
            return [sum = std::shared_ptr(ranks.all_reduce(values))] { sum->wait(); };
          }};
}

double counted_once(double value, const Mesh& mesh) {
  return mesh.tp_rank() == 0 ? value : 0;
}

at::Tensor WholeLogits::forward(const at::Tensor& tokens) {
  // Each fills in its own logits; zeros change nothing.
  const at::Tensor own = pipeline_.forward(tokens);
  if (!parts_.start_sum) return own;
  const at::Tensor all = at::zeros({own.size(0), own.size(1), parts_.vocab_size}, own.options());
  all.narrow(2, parts_.begin(parts_.first), own.size(2)).copy_(own);
  parts_.sum(all);
  return all;
}

}  // namespace ladder
