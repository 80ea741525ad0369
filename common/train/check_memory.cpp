// What memory_need.cpp, which needs no tensor, must be told of the data.
#include "common/data/dataset.hpp"
#include "common/train/memory_need.hpp"

namespace ladder {

void check_memory(const TrainOptions& options, const Theory& theory, const Ranks& ranks,
                  double limit_bytes) {
  check_memory(options, theory, ranks, limit_bytes, [&] {
    DataOptions data = options.data;
    data.rows = batch_shape(options).rows;
    return static_cast<double>(Dataset::open_training(data).num_samples());
  });
}

}  // namespace ladder
