#include "benchmarks/overlap_measurement.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "common/core/cuda_device.hpp"
#include "common/core/timer.hpp"
#include "common/train/build_model.hpp"

namespace ladder {
namespace {

Microbatches random_batch(const ModelOptions& shape, std::int64_t rows) {
  const at::Tensor window = at::randint(shape.vocab_size, {rows, shape.context + 1}, at::kLong);
  return Microbatches({{window.narrow(1, 0, shape.context).contiguous(),
                        window.narrow(1, 1, shape.context).contiguous(), rows * shape.context}});
}

std::int64_t num_calls(const Communicator& comm) {
  std::int64_t calls = 0;
  for (const OpTraffic& op : comm.traffic().ops) calls += op.calls;
  return calls;
}

double slowest(double seconds, Communicator& comm) {
  const at::Tensor all = at::zeros({comm.size()}, at::kDouble);
  comm.all_gather(at::full({1}, seconds, at::kDouble), all)->wait();
  return all.max().item<double>();
}

// The time of the slowest rank, starting from zero gradients, until its GPU has nothing left to do.
template <class Act>
double time(Replica& replica, Communicator& comm, const Act& act) {
  replica.grads.zero();
  wait_for(replica.options.device);
  comm.barrier();
  const Timer timer;
  act();
  wait_for(replica.options.device);
  return slowest(timer.seconds(), comm);
}

OverlapTimes measure_round(Replica& replica, Communicator& comm, const GradientSum& sum) {
  const LossSum loss_sum = loss_of(replica.model, kNextToken);
  at::Tensor loss;  // with what forward keeps for backward
  OverlapTimes times;
  times.forward_s = time(replica, comm, [&] { loss = loss_sum(replica.batch()[0]); });
  loss.reset();
  times.compute_s = time(replica, comm, [&] { replica.forward_and_backward(loss_sum); });
  times.comm_s = time(replica, comm, sum.sum_alone);
  times.step_s = time(replica, comm, sum.step);
  return times;
}

}  // namespace

Replica::Replica(const ModelOptions& shape, std::int64_t rows, const Communicator& comm,
                 at::Device device)
    : options{.model = shape, .device = device},
      flat(layout_of(options)),
      model(build_model(options, flat)),
      grads(flat),
      batch_(random_batch(shape, rows)),
      num_targets_(static_cast<double>(rows * shape.context * comm.size())) {}

void Replica::forward_and_backward(const LossSum& loss_sum_fn) {
  accumulate_gradients(loss_sum_fn, batch_, num_targets_);
}

double OverlapTimes::overlap() const {
  return (compute_s + comm_s - step_s) / std::min(compute_s, comm_s);
}

std::vector<OverlapFigures> measure_overlap(Replica& replica, Communicator& comm,
                                            const std::vector<Method>& methods, int num_rounds) {
  std::vector<OverlapFigures> figures(methods.size());
  for (int round = 0; round < num_rounds; ++round) {
    if (comm.rank() == 0) std::cerr << "round " << round + 1 << " of " << num_rounds << '\n';
    for (std::size_t i = 0; i < methods.size(); ++i) {
      const GradientSum sum = methods[i].install(replica, comm);
      const std::int64_t num_before = num_calls(comm);
      sum.step();  // warms up the method just installed
      figures[i].num_operations = num_calls(comm) - num_before;
      figures[i].rounds.push_back(measure_round(replica, comm, sum));
    }
  }
  for (std::size_t i = 0; i < methods.size(); ++i) {
    figures[i].name = methods[i].name;
    for (double OverlapTimes::*const time : {&OverlapTimes::forward_s, &OverlapTimes::compute_s,
                                             &OverlapTimes::comm_s, &OverlapTimes::step_s}) {
      std::vector<double> of_rounds;
      for (const OverlapTimes& round : figures[i].rounds) of_rounds.push_back(round.*time);
      figures[i].*time = median(std::move(of_rounds));
    }
  }
  return figures;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace ladder
