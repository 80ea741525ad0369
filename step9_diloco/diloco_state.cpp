#include "step9_diloco/diloco_state.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/joined.hpp"

namespace ladder {
namespace {

constexpr int kSaveTag = 9;

at::Tensor scratch(at::IntArrayRef shape) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  return at::empty(shape, at::kFloat);
}

// The tensors of one worker. All workers have some of the same names and shapes, all fp32.
StateTensors tensors_of(int worker, StateTensors state, Communicator& comm) {
  state.for_each = [worker, &comm, each = state.for_each](const TensorVisitor& visit) {
    const bool is_owner = comm.rank() == worker, is_writer = comm.rank() == 0;
    if (!is_owner && !is_writer) return;
    each([&](const std::string& name, const at::Tensor& values) {
      if (is_owner && is_writer) {
        visit(name, values);
      } else if (is_owner) {
        comm.send(values, /*peer=*/0, kSaveTag)->wait();
      } else {
        const at::Tensor received = scratch(values.sizes());
        comm.recv(received, worker, kSaveTag)->wait();
        visit(name, received);
      }
    });
  };
  return state;
}

// Equal on all workers, so worker 0 has all of it.
std::vector<NamedTensor> outer_tensors(const Diloco& diloco, const at::Tensor& average) {
  std::vector<NamedTensor> tensors = {{"pseudogradient", average}};
  for (const auto& [name, view] : named_views(diloco.layout(), diloco.velocity()))
    tensors.push_back({name + ".momentum", view});
  return tensors;
}

// Each worker decides for itself whether its gradients have overflowed. [3] fp32, which holds these
// numbers exactly; undefined without a loss scale.
at::Tensor saved_loss_scale(const LossScaler& scaler) {
  if (!scaler.is_on()) return {};
  const LossScaleState& state = scaler.state();
  const std::vector<double> values = {state.scale, static_cast<double>(state.good_steps),
                                      static_cast<double>(state.skipped_steps)};
  return at::tensor(values).to(at::kFloat);
}

LossScaleState restored_loss_scale(const at::Tensor& saved) {
  const float* values = saved.const_data_ptr<float>();
  return {.scale = values[0],
          .good_steps = static_cast<std::int64_t>(values[1]),
          .skipped_steps = static_cast<std::int64_t>(values[2])};
}

std::int64_t largest_of(const std::vector<Fragment>& fragments) {
  std::int64_t numel = 0;
  for (const Fragment& fragment : fragments) numel = std::max(numel, fragment.numel);
  return numel;
}

// The average in flight, in a tensor [the largest fragment] that has room for any.
at::Tensor saved_average(const Diloco& diloco) {
  const MemoryScope scope(MemoryCategory::kOther, "a checkpoint's average in flight");
  const at::Tensor saved = at::zeros({largest_of(diloco.fragments())}, at::kFloat);
  const at::Tensor average = diloco.round().pseudogradient;
  if (average.defined()) saved.slice(0, 0, average.numel()).copy_(average);
  return saved;
}

// Undoes saved_average(): `numel` elements of it as this round's pseudogradient, on the model's
// device.
at::Tensor restored_average(const at::Tensor& saved, std::int64_t numel, at::Device device) {
  if (numel == 0) return {};
  const MemoryScope scope(MemoryCategory::kGradients);
  return saved.slice(0, 0, numel)
      .to(device, saved.scalar_type(), /*non_blocking=*/false,
          /*copy=*/true);
}

// Gives it the size that it has in a checkpoint with these counts. Values in flight are those of
// one fragment, and cannot become those of another.
void fit_average(const at::Tensor& average, const Diloco& diloco,
                 const std::map<std::string, std::int64_t>& counts) {
  const auto saved = counts.find("fragments");
  const std::int64_t now = std::ssize(diloco.fragments());
  if (saved == counts.end() || saved->second == now) return;
  check_usage(counts.at("values_in_flight") == 0, "--fragments ", now,
              ": the checkpoint holds the average of one ", "of ", saved->second,
              " fragments, in flight; resume with --fragments ", saved->second,
              ", or from a checkpoint between two rounds");
  const MemoryScope scope(MemoryCategory::kOther, "a checkpoint's average in flight");
  average.resize_({largest_of(plan_fragments(diloco.layout(), saved->second))});
}

}  // namespace

at::Tensor Fragment::of(const at::Tensor& flat) const {
  return flat.narrow(0, start, numel);
}

TrainState diloco_state(Diloco& diloco, const ModelCopy& own, const ModelCopy& global,
                        Optimizer& inner, BatchStream& batches, Run& run, Communicator& comm) {
  const at::Tensor average = saved_average(diloco);
  const auto parts = parts_of(own.flat.layout());
  const auto whole = [parts](const std::vector<NamedTensor>& tensors) {
    return joined(whole_tensors(tensors), parts);
  };
  const StateTensors parameters = joined(stored_parameters(own.flat, inner), parts);
  std::vector<NamedTensor> inner_state = inner.named_state(own.flat.layout());
  TrainState state = state_of(whole(global.flat.named_params()), whole(inner_state), inner, batches,
                              /*summed=*/{});  // a worker's own have one order
  const at::Tensor loss_scale = saved_loss_scale(run.loss_scaler());
  if (loss_scale.defined()) inner_state.push_back({"loss_scale", loss_scale});
  state.extra_files.push_back(
      {.name = "outer.safetensors",
       .tensors = whole(outer_tensors(diloco, average)),
       .as_saved = [&diloco, average, whole](const std::map<std::string, std::int64_t>& counts) {
         fit_average(average, diloco, counts);
         return whole(outer_tensors(diloco, average));
       }});
  for (int worker = 0; worker < comm.size(); ++worker) {
    const std::string folder = "workers/" + std::to_string(worker);
    const bool is_own = worker == comm.rank();
    state.extra_files.push_back(
        {folder + "/model.safetensors", tensors_of(worker, parameters, comm), is_own});
    state.extra_files.push_back(
        {folder + "/optimizer.safetensors", tensors_of(worker, whole(inner_state), comm), is_own});
  }
  const Diloco::Round round = diloco.round();
  state.extra_counts = {
      {"fragments", std::ssize(diloco.fragments())},
      {"outer_steps", round.outer_steps},
      {"values_in_flight", round.pseudogradient.defined() ? round.pseudogradient.numel() : 0}};
  state.restore = [&diloco, &inner, &run, average, loss_scale,
                   restore = std::move(state.restore)](const LoadedCheckpoint& loaded) {
    restore(loaded);
    if (!loaded.has_read_extras) return;
    if (loss_scale.defined()) {
      const LossScaleState scale = restored_loss_scale(loss_scale);
      // The checkpoint counts worker 0's optimizer steps; this worker has skipped others.
      const std::int64_t skipped_by_0 = run.loss_scaler().state().skipped_steps;
      inner.set_num_steps(inner.num_steps() + skipped_by_0 - scale.skipped_steps);
      run.loss_scaler().restore(scale);
    }
    diloco.restore({loaded.extra_counts.at("outer_steps"),
                    restored_average(average, loaded.extra_counts.at("values_in_flight"),
                                     diloco.velocity().device())});
  };
  return state;
}

}  // namespace ladder
