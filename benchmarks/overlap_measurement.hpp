// How much of its communication a data-parallel step hides behind its backward.
//
// Measures, for each way to sum the gradients over the ranks, one after the other in every round:
//
//   T_compute   forward and backward; nothing is sent
//   T_comm      the collectives alone, started and waited for in the same order
//   T_step      forward, backward and collectives, as the step of the course runs them
//
//   exposed = T_step − T_compute             the remaining cost of communication
//   overlap = (T_compute + T_comm − T_step) / min(T_compute, T_comm)      1: all that can be hidden
//
// A time is that of the slowest rank; a figure is the median over rounds. Fetching the batch,
// clipping and the optimizer are left out, because no step overlaps them with communication.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/data/batch.hpp"
#include "common/model/build_layers.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/options/options.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"

namespace ladder {

// One rank's model, and a batch of random tokens.
class Replica {
 public:
  Replica(const ModelOptions& shape, std::int64_t rows, const Communicator& comm,
          at::Device device = at::kCPU);

  TrainOptions options;  // of the model, and where it is
  FlatModel flat;
  Model model;
  FlatGradients grads;

  const Microbatches& batch() const { return batch_; }
  void forward_and_backward(const LossSum& loss_sum_fn);  // adds to grads

 private:
  Microbatches batch_;
  double num_targets_;
};

// A way to sum gradients over ranks. While it lives, its hooks are set on the replica. The replica
// and the communicator must outlive it. Collective: all ranks make the same calls in the
// same order.
struct GradientSum {
  std::function<void()> step;       // forward, backward and collectives
  std::function<void()> sum_alone;  // only the collectives
};

struct Method {
  std::string name;
  std::function<GradientSum(Replica&, Communicator&)> install;
};
Method reference_method();                                // step 1
Method naive_method();                                    // step 3
Method bucketed_method(std::int64_t capacity_bytes);      // step 4
Method unoverlapped_method(std::int64_t capacity_bytes);  // step 4's buckets, all started too late
Method zero1_method();                                    // step 5
Method zero2_method();                                    // step 6
Method zero3_method(int prefetch);                        // step 7
Method diloco_method(bool is_polled);                     // step 9, with a delay of one step

struct OverlapTimes {
  double forward_s = 0;
  double compute_s = 0;
  double comm_s = 0;
  double step_s = 0;

  double exposed_s() const { return step_s - compute_s; }
  double overlap() const;
};

struct OverlapFigures : OverlapTimes {  // the medians
  std::string name;
  std::int64_t num_operations = 0;   // collectives in one step
  std::vector<OverlapTimes> rounds;  // to compare methods in pairs
};

// Installs, warms up and measures each method in every round. Collective; every rank gets the same
// figures, in the order of the methods.
std::vector<OverlapFigures> measure_overlap(Replica& replica, Communicator& comm,
                                            const std::vector<Method>& methods, int num_rounds);

double median(std::vector<double> values);  // of at least one value

}  // namespace ladder
