#include "common/core/compute_threads.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/zeros.h>

namespace ladder {

void set_compute_threads(int num_threads) {
  at::set_num_threads(num_threads);
  [[maybe_unused]] static const bool has_chosen = at::cos(at::zeros({64})).defined();
}

}  // namespace ladder
