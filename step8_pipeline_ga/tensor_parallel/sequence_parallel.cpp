#include "step8_pipeline_ga/tensor_parallel/sequence_parallel.hpp"

#include <ATen/ops/empty.h>

#include <memory>

#include "step8_pipeline_ga/tensor_parallel/tensor_options.hpp"

namespace ladder {

Parts with_rows_cut(Parts parts, const Mesh& mesh, const TrainOptions& options) {
  if (!options.get<TensorOptions>().is_sequence_parallel) return parts;
  Communicator& ranks = mesh.tensor_parallel;
  parts.gather_rows = [&ranks](const at::Tensor& rows) {
    const at::Tensor all = at::empty({rows.size(0) * ranks.size(), rows.size(1)}, rows.options());
    ranks.all_gather(rows, all)->wait();
    return all;
  };
  parts.start_sum_of_rows = [&ranks](const at::Tensor& all, const at::Tensor& own) -> Parts::Wait {
    return [sum = std::shared_ptr(ranks.reduce_scatter(all, own))] { sum->wait(); };
  };
  return parts;
}

}  // namespace ladder
