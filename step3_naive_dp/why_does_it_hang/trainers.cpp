#include "step3_naive_dp/why_does_it_hang/trainers.hpp"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <limits>

#include "common/core/check.hpp"
#include "step3_naive_dp/naive_dp.hpp"

namespace ladder::hang {

void trainer_1(Replica& replica, Communicator& comm) {
  broadcast_parameters(replica.flat, comm);
  while (replica.next_step()) {
    const Microbatches batch = replica.next_batch();
    const double num_targets = all_reduce_sum(replica.count(batch), comm);
    const double loss = replica.accumulate(batch, num_targets);
    all_reduce_gradients(replica.grads, comm);
    const double norm = replica.update();
    if (comm.rank() == 0) replica.show("loss", all_reduce_sum(loss, comm));
    replica.record(all_reduce_sum(StepSums{loss}, comm), norm, num_targets);
  }
}

void trainer_2(Replica& replica, Communicator& comm) {
  broadcast_parameters(replica.flat, comm, /*root=*/comm.rank());
  while (replica.next_step()) {
    const Microbatches batch = replica.next_batch();
    const double num_targets = all_reduce_sum(replica.count(batch), comm);
    const double loss = replica.accumulate(batch, num_targets);
    all_reduce_gradients(replica.grads, comm);
    const double norm = replica.update();
    replica.record(all_reduce_sum(StepSums{loss}, comm), norm, num_targets);
  }
}

void trainer_3(Replica& replica, Communicator& comm) {
  broadcast_parameters(replica.flat, comm);
  const auto is_before = [](const NamedTensor& a, const NamedTensor& b) {
    return a.tensor.grad().norm().item<double>() > b.tensor.grad().norm().item<double>();
  };
  while (replica.next_step()) {
    const Microbatches batch = replica.next_batch();
    const double num_targets = all_reduce_sum(replica.count(batch), comm);
    const double loss = replica.accumulate(batch, num_targets);
    std::vector<NamedTensor> leaves = replica.grads.leaves();
    std::stable_sort(leaves.begin(), leaves.end(), is_before);
    for (const NamedTensor& leaf : leaves) comm.all_reduce(leaf.tensor.grad())->wait();
    const double norm = replica.update();
    replica.record(all_reduce_sum(StepSums{loss}, comm), norm, num_targets);
  }
}

void trainer_4(Replica& replica, Communicator& comm) {
  broadcast_parameters(replica.flat, comm);
  double before = std::numeric_limits<double>::infinity();
  while (replica.next_step()) {
    const Microbatches batch = replica.next_batch();
    const double num_targets = all_reduce_sum(replica.count(batch), comm);
    const double loss = replica.accumulate(batch, num_targets);
    all_reduce_gradients(replica.grads, comm);
    const double norm = replica.update();
    const StepSums sums = all_reduce_sum(StepSums{loss}, comm);
    replica.record(sums, norm, num_targets);
    if (loss > before) break;
    before = loss;
  }
}

void trainer_5(Replica& replica, Communicator& comm) {
  broadcast_parameters(replica.flat, comm);
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  const at::Tensor other = at::empty_like(replica.flat.params());
  while (replica.next_step()) {
    const Microbatches batch = replica.next_batch();
    const double num_targets = all_reduce_sum(replica.count(batch), comm);
    const double loss = replica.accumulate(batch, num_targets);
    all_reduce_gradients(replica.grads, comm);
    const double norm = replica.update();
    if (comm.size() > 1) {
      comm.send(replica.flat.params(), next, /*tag=*/0)->wait();
      comm.recv(other, previous, /*tag=*/0)->wait();
      check(other.equal(replica.flat.params()), "rank ", previous, " has other parameters");
    }
    replica.record(all_reduce_sum(StepSums{loss}, comm), norm, num_targets);
  }
}

void trainer_6(Replica& replica, Communicator& comm) {
  const std::unique_ptr<Communicator> of_losses = comm.split(0, comm.rank());
  broadcast_parameters(replica.flat, comm);
  while (replica.next_step()) {
    const Microbatches batch = replica.next_batch();
    const double num_targets = all_reduce_sum(replica.count(batch), comm);
    const double loss = replica.accumulate(batch, num_targets);
    if (comm.rank() == 0) replica.show("loss", all_reduce_sum(loss, *of_losses));
    all_reduce_gradients(replica.grads, comm);
    const double norm = replica.update();
    if (comm.rank() != 0) all_reduce_sum(loss, *of_losses);
    replica.record(all_reduce_sum(StepSums{loss}, comm), norm, num_targets);
  }
}

void trainer_7(Replica& replica, Communicator& comm) {
  broadcast_parameters(replica.flat, comm);
  while (replica.next_step()) {
    const Microbatches batch = replica.next_batch();
    const double num_targets = all_reduce_sum(replica.count(batch), comm);
    const double loss = replica.accumulate(batch, num_targets);
    all_reduce_gradients(replica.grads, comm);
    const double norm = replica.update();
    replica.record(all_reduce_sum(StepSums{loss}, comm), norm, num_targets);
    if (!replica.run.should_evaluate()) continue;
    const Microbatches validation = replica.batches.validation();
    double sum = 0;
    for (std::int64_t i = comm.rank(); i < validation.size(); i += comm.size())
      sum += all_reduce_sum(replica.evaluate(validation[i]), comm);
    replica.run.record_validation(sum / replica.count(validation));
  }
}

}  // namespace ladder::hang
