#include "step5_zero1/parameter_gather.hpp"

#include <algorithm>
#include <utility>

#include "step5_zero1/sharded_optimizer.hpp"

namespace ladder {

ParameterGather::ParameterGather(FlatModel& flat, Model& model, Communicator& comm)
    : flat_(flat), comm_(comm) {
  for (std::size_t unit = 0; unit < model.layers.size(); ++unit) {
    auto& forward = model.layers[unit].forward;
    forward = [this, unit, compute = std::move(forward)](const at::Tensor& input) {
      wait_for(unit);
      return compute(input);
    };
  }
}

void ParameterGather::start() {
  gathers_ = start_parameter_gathers(flat_, comm_);
  num_done_ = 0;
}

void ParameterGather::complete() {
  start();
  wait_for(gathers_.size() - 1);
}

void ParameterGather::wait_for(std::size_t unit) {
  const std::size_t needed = std::min(unit + 1, gathers_.size());
  for (; num_done_ < needed; ++num_done_) gathers_[num_done_]->wait();
  for (std::size_t later = num_done_; later < gathers_.size(); ++later) gathers_[later]->test();
}

}  // namespace ladder
