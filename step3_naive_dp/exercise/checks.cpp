// Judges naive data parallelism: the trainer shows what is summed, held and sent; these checks show
// what it never has: another root, frozen parameters, and one that a rank does not use.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>

#include "common/core/memory_ledger.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step3_naive_dp/naive_dp.hpp"
#include "step3_naive_dp/train.hpp"

namespace ladder {
namespace step3 {
namespace {

// Three trainable tensors, and two frozen ones: one that never had a gradient, and one that was
// frozen later and still has it.
struct SmallModel {
  SmallModel() { frozen_later.set_requires_grad(false); }

  static at::Tensor leaf(at::IntArrayRef shape) { return at::ones(shape).set_requires_grad(true); }
  static constexpr std::int64_t kLargestNumel = 64 * 20;

  at::Tensor weight = leaf({64, 20}), scale = leaf({}), unused = leaf({7}),
             frozen_later = leaf({9});
  FlatModel flat{{{"a", {{"weight", weight}, {"frozen", at::ones({5})}, {"scale", scale}}},
                  {"b", {{"frozen_later", frozen_later}, {"unused", unused}}}}};
  FlatGradients grads{flat};
};

class Checks : public Examination {
 public:
  using Examination::Examination;

  void broadcasts_from(int root) {
    const std::string what = concat("broadcast_parameters() from rank ", root);
    examine(what, [&](LockstepCommunicator& comm) {
      SmallModel model;
      model.flat.params().fill_(comm.rank());
      const std::int64_t before = comm.traffic().bytes_sent();
      broadcast_parameters(model.flat, comm, root);
      const std::int64_t num_sent = comm.traffic().bytes_sent() - before;
      for (const auto& [name, param] : model.flat.named_params())
        expect(concat("after ", what, " '", name, "'"), param, at::full_like(param, root));
      // The root may send the padding as well.
      const std::int64_t most =
          comm.rank() == root ? 4 * (comm.size() - 1) * model.flat.layout().numel : 0;
      if (num_sent > most)
        fault(concat(what, ": this rank sends ", num_sent, " bytes, not ", most, " at most"));
    });
  }

  // Even and odd ranks have a group each, the last rank first: rank and size are the group's, and
  // the other group sums something else.
  void works_in_groups() {
    examine("two groups, in the opposite order of ranks", [&](Communicator&) {
      const int parity = comm_.rank() % 2;
      const auto group = comm_.split(parity, -comm_.rank());
      SmallModel model;
      model.flat.params().fill_(comm_.rank());
      broadcast_parameters(model.flat, *group);
      double root = comm_.rank(), sum = 0;
      for (int rank = parity; rank < comm_.size(); rank += 2) {
        root = rank;  // the last of its group
        sum += rank + 1;
      }
      for (const auto& [name, param] : model.flat.named_params()) {
        expect(concat("after broadcast_parameters() in a group, '", name, "'"), param,
               at::full_like(param, root));
      }
      ((model.weight.sum() + model.scale + model.unused.sum()) * (comm_.rank() + 1.0)).backward();
      all_reduce_gradients(model.grads, *group);
      for (const at::Tensor& tensor : {model.weight, model.scale, model.unused}) {
        expect("after all_reduce_gradients() in a group, a gradient", tensor.grad(),
               at::full_like(tensor, sum));
      }
    });
  }

  // Rank r's gradients are r + 1, but rank 0's backward does not come by 'unused'.
  void sums_what_is_trained(RecordingCommunicator& comm) {
    comm.set_network(Network::kSlow);
    SmallModel model;
    const auto own = static_cast<float>(comm.rank() + 1);
    const auto all = static_cast<float>(comm.size() * (comm.size() + 1)) / 2;
    const at::Tensor kept = named_views(model.flat.layout(), model.grads.flat())[3].tensor;
    kept.fill_(100 + own);
    at::Tensor loss = model.weight.sum() + model.scale;
    if (comm.rank() > 0) loss = loss + model.unused.sum();
    (loss * own).backward();
    expect_takes_at_most("all_reduce_gradients()", 4 * SmallModel::kLargestNumel,
                         "the largest tensor needs no more",
                         [&] { all_reduce_gradients(model.grads, comm); });
    expect("the gradient of 'weight'", model.weight.grad(), at::full({64, 20}, all));
    expect("the gradient of 'unused', which rank 0 does not use,", model.unused.grad(),
           at::full({7}, all - 1));
    expect("'frozen_later' is left alone: its gradient", kept, at::full({9}, 100 + own));
    expect("the number of calls for three trainable tensors", comm.calls().size(), std::size_t{3});
    expect("the number of operations in flight at once, each of which holds its scratch,",
           comm.recording().most_on_their_way, 1);
  }
};

}  // namespace
}  // namespace step3

std::vector<std::string> judge_linked(Communicator& comm) {
  Judge judge({.trainer = step3::trainer()}, comm);
  if (!judge.all_cases_are_right()) return judge.faults();
  step3::Checks checks(comm);
  for (int root = 0; root < comm.size(); ++root) checks.broadcasts_from(root);
  checks.examine("all_reduce_gradients()", &step3::Checks::sums_what_is_trained);
  checks.works_in_groups();
  return checks.faults();
}

}  // namespace ladder
