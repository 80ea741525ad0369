#include "step3_naive_dp/exercise/grader.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>

#include "common/comm/contract/rank_values.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/recording_communicator.hpp"

namespace ladder::step3 {
namespace {

// A model of four trainable tensors, one of a single element, and of two frozen ones: one that
// never had a gradient, and one that was frozen later and still has it.
struct Subject {
  at::Tensor frozen_later = trainable({9});
  FlatModel flat{{{"embedding", {{"wte", trainable({5, 3})}, {"frozen", at::ones({7})}}},
                  {"head",
                   {{"scale", trainable({1})},
                    {"weight", trainable({64, 20})},
                    {"frozen_later", frozen_later},
                    {"bias", trainable({20})}}}}};
  FlatGradients grads{flat};

  Subject() { frozen_later.set_requires_grad(false); }

 private:
  static at::Tensor trainable(at::IntArrayRef shape) {
    return at::ones(shape).set_requires_grad(true);
  }
};
std::vector<NamedTensor> named_grads(const Subject& model) {
  return named_views(model.flat.layout(), model.grads.flat());
}
constexpr std::int64_t kLargestNumel = 64 * 20;

bool is_frozen(const NamedTensor& named) {
  return named.name.starts_with("frozen");
}

std::vector<NamedTensor> trainable(std::vector<NamedTensor> tensors) {
  std::erase_if(tensors, is_frozen);
  return tensors;
}

// What every rank can make for every other: values whose sum depends on the order from three ranks
// on.
at::Tensor values_like(const at::Tensor& tensor, int rank) {
  return values_of(rank, tensor.numel(), at::kFloat).view_as(tensor);
}

class Grade : public Examination {
 public:
  Grade(const NaiveDp& attempt, Communicator& comm) : Examination(comm), attempt_(attempt) {}

  void replicas_start_as_the_roots() {
    for (int root = 0; root < comm_.size(); ++root) {
      const std::string what = concat("broadcast_parameters() from rank ", root);
      examine<RecordingCommunicator>(what, [&](RecordingCommunicator& comm) {
        Subject model;
        for (const auto& [name, param] : model.flat.named_params())
          param.copy_(values_like(param, comm.rank()));
        model.grads.flat().fill_(7);
        const std::int64_t before = comm.traffic().bytes_sent();
        attempt_.broadcast_parameters(model.flat, comm, root);
        const std::int64_t num_sent = comm.traffic().bytes_sent() - before;
        expect_all_waited_for(comm);
        for (const auto& [name, param] : model.flat.named_params()) {
          expect(concat("after ", what, " '", name, "'"), param, values_like(param, root));
        }
        expect(concat("after ", what, " a gradient"), model.grads.flat(),
               at::full({model.grads.flat().numel()}, 7.0F));
        // With the padding or without, but from the root alone.
        const std::int64_t most =
            comm.rank() == root ? 4 * (comm.size() - 1) * model.flat.layout().numel : 0;
        if (num_sent > most)
          fault(concat(what, ": this rank sent ", num_sent, " bytes, not ", most, " at most"));
      });
    }
  }

  // Rank r's gradients are r + 1.
  void gradients_are_sums() {
    const float sum = float(comm_.size()) * float(comm_.size() + 1) / 2;
    examine<RecordingCommunicator>("the sum of the gradients", [&](RecordingCommunicator& comm) {
      Subject model;
      reduce(model, comm,
             [&](const NamedTensor& grad) { return at::full_like(grad.tensor, comm.rank() + 1); });
      for (const NamedTensor& grad : trainable(named_grads(model))) {
        expect(
            concat("the sum of the ranks' gradients 1 to ", comm.size(), " in '", grad.name, "'"),
            grad.tensor, at::full_like(grad.tensor, sum));
      }
    });
  }

  // To the bit: ((g0 + g1) + g2) + ….
  void fold_in_rank_order() {
    examine<RecordingCommunicator>("the order of the sum", [&](RecordingCommunicator& comm) {
      Subject model;
      reduce(model, comm,
             [&](const NamedTensor& grad) { return values_like(grad.tensor, comm.rank()); });
      for (const auto& [name, grad] : trainable(named_grads(model))) {
        expect(concat("the gradient of '", name, "', added up in the order of the ranks,"), grad,
               fold_of_all(comm.size(), grad.numel(), at::kFloat).view_as(grad));
      }
    });
  }

  // Rank 0's backward never came by 'scale' and 'bias': its gradients there are zeros.
  void unused_parameters_add_zeros() {
    const float sum = float(comm_.size()) * float(comm_.size() + 1) / 2 - 1;
    examine<RecordingCommunicator>(
        "parameters that rank 0 does not use", [&](RecordingCommunicator& comm) {
          Subject model;
          const auto is_unused = [](const std::string& name) {
            return name == "scale" || name == "bias";
          };
          reduce(model, comm, [&](const NamedTensor& grad) {
            const bool is_zero = comm.rank() == 0 && is_unused(grad.name);
            return at::full_like(grad.tensor, is_zero ? 0 : comm.rank() + 1);
          });
          for (const auto& [name, grad] : trainable(named_grads(model))) {
            if (!is_unused(name)) continue;
            expect(concat("the gradient of '", name, "', which rank 0 does not use,"), grad,
                   at::full_like(grad, sum));
          }
        });
  }

 private:
  using Values = std::function<at::Tensor(const NamedTensor&)>;

  // all_reduce_gradients() on these gradients, and what must hold whatever they are: first what was
  // called, which explains the values.
  void reduce(Subject& model, RecordingCommunicator& comm, const Values& gradient) {
    for (const NamedTensor& grad : named_grads(model)) {
      is_frozen(grad) ? grad.tensor.fill_(100 + comm.rank()) : grad.tensor.copy_(gradient(grad));
    }
    const std::int64_t before = read_memory().total_live_bytes;
    reset_memory_peaks();
    attempt_.all_reduce_gradients(model.grads, comm);
    const std::int64_t scratch = read_memory().peak_bytes - before;

    expect_one_all_reduce_per_tensor(model, comm.calls());
    expect_all_waited_for(comm);
    if (comm.recording().most_on_their_way > 1)
      fault(concat(comm.recording().most_on_their_way,
                   " operations are in flight at once, not 1: each of them holds its scratch"));
    for (const auto& [name, param] : model.flat.named_params()) {
      expect(concat("all_reduce_gradients() leaves the parameters alone: '", name, "'"), param,
             at::ones_like(param));
    }
    for (const NamedTensor& grad : named_grads(model)) {
      if (!is_frozen(grad)) continue;
      expect(concat("'", grad.name, "' is frozen and left alone: its gradient"), grad.tensor,
             at::full_like(grad.tensor, 100 + comm.rank()));
    }
    if (scratch > 4 * kLargestNumel)
      fault(concat("all_reduce_gradients() takes ", scratch, " bytes of scratch, not ",
                   4 * kLargestNumel, " (the largest tensor) at most"));
  }

  void expect_all_waited_for(const RecordingCommunicator& comm) {
    const int num_left = comm.recording().num_on_their_way();
    if (num_left > 0) fault(concat(num_left, " operations are never waited for"));
  }

  void expect_one_all_reduce_per_tensor(const Subject& model, std::vector<std::string> found) {
    std::vector<std::string> wanted;
    for (const auto& [name, grad] : trainable(named_grads(model))) {
      wanted.push_back(
          concat("all_reduce of ", grad.numel(), grad.numel() == 1 ? " element" : " elements"));
    }
    std::sort(found.begin(), found.end());
    std::sort(wanted.begin(), wanted.end());
    if (found == wanted) return;
    const auto list = [](const std::vector<std::string>& calls) {
      std::string text;
      for (const std::string& call : calls) text += concat(text.empty() ? "" : ", ", call);
      return text.empty() ? "nothing" : text;
    };
    fault(concat("all_reduce_gradients() asks for ", list(found),
                 "; wanted in any order: ", list(wanted)));
  }

  const NaiveDp& attempt_;
};

}  // namespace

std::vector<std::string> grade(const NaiveDp& attempt, Communicator& comm) {
  install_memory_ledger();
  Grade grade(attempt, comm);
  grade.replicas_start_as_the_roots();
  grade.gradients_are_sums();
  grade.fold_in_rank_order();
  grade.unused_parameters_add_zeros();
  return grade.faults();
}

}  // namespace ladder::step3
