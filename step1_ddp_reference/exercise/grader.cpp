#include "step1_ddp_reference/exercise/grader.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "common/core/check.hpp"
#include "common/testing/examination.hpp"
#include "step1_ddp_reference/reference_buckets.hpp"

namespace ladder::step1 {
namespace {

// A model whose gradients are known beforehand: the loss of a microbatch is Σ w · x, and x is the
// gradient. x is drawn with a seed that stands in the microbatch, so that every rank can tell what
// every other rank's gradient must be. One tensor is used twice, one is frozen, and 'large' fills a
// bucket of its own.
class LinearModel {
 public:
  explicit LinearModel(float start) {
    for (const auto& [name, numel] : {std::pair("tied", 15), {"small", 7}, {"large", 300000}}) {
      leaves_.push_back({name, at::full({numel}, start).set_requires_grad(true)});
    }
    frozen_ = {"frozen", at::full({4}, start)};
  }

  std::vector<Unit> units() const {
    return {{"first", {leaves_[0], frozen_}}, {"second", {leaves_[1], leaves_[2]}}};
  }

  static Microbatch microbatch(std::int64_t seed) { return {at::full({1, 1}, seed), {}, 1}; }

  // `num_used` tensors take part, the last ones do not.
  LossSum loss_sum(std::size_t num_used = 3) const {
    return [this, num_used](const Microbatch& m) {
      at::Tensor loss = (frozen_.tensor * 2.0).sum();
      for (std::size_t i = 0; i < num_used; ++i) {
        const at::Tensor x = draw(m.tokens.item<std::int64_t>(), i);
        loss = loss + (leaves_[i].tensor * x).sum();
        if (i == 0) loss = loss + (leaves_[0].tensor * (x * 3.0)).sum();
      }
      return loss;
    };
  }

  static at::Tensor gradient(std::int64_t seed, std::size_t i) {
    const at::Tensor x = draw(seed, i);
    return i == 0 ? x * 3.0 + x : x;
  }

  const std::vector<NamedTensor>& leaves() const { return leaves_; }

 private:
  static at::Tensor draw(std::int64_t seed, std::size_t i) {
    constexpr std::int64_t kNumels[] = {15, 7, 300000};
    const auto stream = static_cast<std::uint64_t>(seed) * 3 + i;
    return at::randn({kNumels[i]}, at::detail::createCPUGenerator(stream), at::kFloat);
  }

  std::vector<NamedTensor> leaves_;
  NamedTensor frozen_;
};

class Grade : public Examination {
 public:
  Grade(const MakeDdp& make, Communicator& comm) : Examination(comm), make_(make) {}

  void replicas_start_as_rank_zeros() {
    examine("broadcast_parameters()", [this](Communicator& comm) {
      const LinearModel model(static_cast<float>(1 + comm.rank()));
      FlatModel flat(model.units());
      const Ddp ddp = make_(flat, comm);
      ddp.broadcast_parameters();
      for (const auto& [name, param] : flat.named_params()) {
        expect(concat("after broadcast_parameters() '", name, "'"), param,
               at::full(param.sizes(), 1.0));
      }
    });
  }

  // Two steps, with an evaluation inside each and one after it.
  void gradients_are_sums_over_ranks(std::int64_t num_microbatches) {
    examine(concat("steps of ", num_microbatches, " microbatches"), [&](Communicator& comm) {
      const LinearModel model(1);
      FlatModel flat(model.units());
      const Ddp ddp = make_(flat, comm);
      const LossSum loss_sum = ddp.wrap(model.loss_sum());
      for (std::int64_t step = 0; step < 2; ++step) {
        flat.zero_grad();
        const Traffic before = comm.traffic();
        ddp.arm(num_microbatches);
        expect_evaluation(loss_sum, model);
        for (std::int64_t j = 0; j < num_microbatches; ++j) {
          if (j > 0)
            expect_all_reduces(concat("after microbatch ", j - 1, " of ", num_microbatches), comm,
                               before, 0);
          loss_sum(LinearModel::microbatch(seed(step, j, comm.rank()))).backward();
        }
        ddp.wait();
        expect_all_reduces(concat("in a step of ", num_microbatches, " microbatches"), comm, before,
                           num_buckets(flat));
        expect_gradients(model, flat, step, num_microbatches);
        expect_evaluation(loss_sum, model);
      }
    });
  }

  // A gradient that never comes is an error that names the parameter. Here on all ranks alike.
  void missing_gradients_are_named() {
    examine("a parameter without a gradient", [this](Communicator& comm) {
      const LinearModel model(1);
      FlatModel flat(model.units());
      const Ddp ddp = make_(flat, comm);
      const LossSum loss_sum = ddp.wrap(model.loss_sum(/*num_used=*/2));
      ddp.arm(1);
      loss_sum(LinearModel::microbatch(0)).backward();
      expect_error("'large' got no gradient: wait()", {rank_name(), "large"}, ddp.wait);
    });
  }

  void microbatches_are_counted() {
    examine("a missing microbatch", [this](Communicator& comm) {
      const LinearModel model(1);
      FlatModel flat(model.units());
      const Ddp ddp = make_(flat, comm);
      const LossSum loss_sum = ddp.wrap(model.loss_sum());
      ddp.arm(2);
      loss_sum(LinearModel::microbatch(0)).backward();
      expect_error("only 1 microbatch of 2 ran: wait()", {rank_name(), "2"}, ddp.wait);
    });
  }

 private:
  std::string rank_name() const { return concat("rank ", comm_.rank()); }

  std::int64_t seed(std::int64_t step, std::int64_t microbatch, int rank) const {
    return (step * 16 + microbatch) * comm_.size() + rank;
  }

  // Within a rank microbatch by microbatch, then the ranks in order.
  at::Tensor fold(std::size_t leaf, std::int64_t step, std::int64_t num_microbatches) const {
    at::Tensor sum;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      at::Tensor own = LinearModel::gradient(seed(step, 0, rank), leaf);
      for (std::int64_t j = 1; j < num_microbatches; ++j)
        own += LinearModel::gradient(seed(step, j, rank), leaf);
      sum = rank == 0 ? own : sum + own;
    }
    return sum;
  }

  void expect_evaluation(const LossSum& loss_sum, const LinearModel& model) {
    const at::NoGradGuard no_grad;
    expect("the loss of an evaluation", loss_sum(LinearModel::microbatch(7)),
           model.loss_sum()(LinearModel::microbatch(7)));
  }

  void expect_gradients(const LinearModel& model, const FlatModel& flat, std::int64_t step,
                        std::int64_t num_microbatches) {
    for (std::size_t i = 0; i < model.leaves().size(); ++i) {
      const auto& [name, leaf] = model.leaves()[i];
      const std::string what = concat("the gradient of '", name, "' in step ", step, " with ",
                                      num_microbatches, " microbatches");
      expect(what, leaf.grad(), fold(i, step, num_microbatches));
      if (!leaf.grad().is_alias_of(flat.grads()))
        fault(what + " is no longer the view of the flat buffer that it was");
    }
  }

  void expect_all_reduces(const std::string& when, const Communicator& comm, const Traffic& before,
                          std::int64_t wanted) {
    Traffic sent = comm.traffic();
    sent -= before;
    expect("the number of all_reduces " + when, sent[CommOp::kAllReduce].calls, wanted);
  }

  static std::int64_t num_buckets(const FlatModel& flat) {
    return static_cast<std::int64_t>(plan_reference_buckets({{"all", flat.leaves()}}).size());
  }

  const MakeDdp& make_;
};

}  // namespace

std::vector<std::string> grade(const MakeDdp& make, Communicator& comm) {
  Grade grade(make, comm);
  grade.replicas_start_as_rank_zeros();
  grade.gradients_are_sums_over_ranks(1);
  grade.gradients_are_sums_over_ranks(3);
  grade.missing_gradients_are_named();
  grade.microbatches_are_counted();
  return grade.faults();
}

}  // namespace ladder::step1
