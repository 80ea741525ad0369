#include "step1_ddp_reference/exercise/grader.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/examination.hpp"
#include "step1_ddp_reference/exercise/linear_model.hpp"
#include "step1_ddp_reference/reference_buckets.hpp"

namespace ladder::step1 {
namespace {

// What most checks begin with.
struct Setup {
  Setup(const MakeDdp& make, Communicator& comm, std::size_t num_used = 3)
      : ddp(make(flat, comm)), loss_sum(ddp.wrap(model.loss_sum(num_used))) {}

  LinearModel model{1};
  FlatModel flat{model.units()};
  FlatGradients grads{flat};
  Ddp ddp;
  LossSum loss_sum;
};

std::string list(const std::vector<std::string>& calls, std::size_t first = 0) {
  std::string text;
  for (std::size_t i = first; i < calls.size(); ++i) text += (i > first ? ", " : "") + calls[i];
  return text.empty() ? "nothing" : text;
}

class Grade : public Examination {
 public:
  Grade(const MakeDdp& make, Communicator& comm) : Examination(comm), make_(make) {}

  void lives_and_dies_alone() {
    examine("constructor and destructor", [this](LockstepCommunicator& comm) {
      const auto held = [] { return read_memory().live(MemoryCategory::kCommunication); };
      const LinearModel model(1);
      FlatModel flat(model.units());
      const FlatGradients grads(flat);
      const std::int64_t before = held();
      {
        const Ddp ddp = make_(flat, comm);
        expect("the number of bytes that the buckets take", held() - before,
               4 * LinearModel::kNumTrainable);
      }
      expect("the number of bytes that the destructor leaves behind", held() - before,
             std::int64_t{0});
      expect("what constructor and destructor send", list(comm.calls()), std::string("nothing"));
      FlatModel frozen({{"unit", {{"w", at::full({3}, 1.0F)}}}});
      expect_error("a model without a trainable parameter: the constructor", {},
                   [&] { make_(frozen, comm); });
    });
  }

  void replicas_start_as_rank_zeros() {
    examine("broadcast_parameters()", [this](Communicator& comm) {
      const LinearModel model(static_cast<float>(1 + comm.rank()));
      FlatModel flat(model.units());
      const FlatGradients grads(flat);
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
    const std::string steps = concat("steps of ", num_microbatches, " microbatches");
    examine(steps, [&](LockstepCommunicator& comm) {
      Setup setup(make_, comm);
      const std::string wanted = plan(setup.flat);
      for (std::int64_t step = 0; step < 2; ++step) {
        setup.grads.zero();
        const std::size_t before = comm.calls().size();
        setup.ddp.arm(num_microbatches);
        expect_evaluation(setup);
        for (std::int64_t j = 0; j < num_microbatches; ++j) {
          if (j > 0) {
            expect(concat("what has been sent after microbatch ", j - 1, " of ", num_microbatches),
                   list(comm.calls(), before), std::string("nothing"));
          }
          setup.loss_sum(LinearModel::microbatch(seed(step, j, comm.rank()))).backward();
        }
        expect(concat("in ", steps, ", what has been sent when the last backward returns"),
               list(comm.calls(), before), wanted);
        setup.ddp.wait();
        expect(concat("in ", steps, ", what has been sent when wait() returns"),
               list(comm.calls(), before), wanted);
        expect_gradients(setup, step, num_microbatches);
        expect_evaluation(setup);
      }
    });
  }

  void unarmed_backwards_send_nothing() {
    examine("a backward outside of a step", [this](LockstepCommunicator& comm) {
      Setup setup(make_, comm);
      const std::int64_t own = seed(0, 0, comm.rank());
      const std::size_t before = comm.calls().size();
      setup.loss_sum(LinearModel::microbatch(own)).backward();
      expect("what a backward outside of a step sends", list(comm.calls(), before),
             std::string("nothing"));
      for (std::size_t i = 0; i < 3; ++i) {
        const auto& [name, leaf] = setup.model.leaves()[i];
        expect(concat("after a backward outside of a step the gradient of '", name, "'"),
               leaf.grad(), LinearModel::gradient(own, i));
      }
    });
  }

  // A gradient that never comes is an error that names the parameter. Here on all ranks alike. In
  // the second case the first microbatch has left something in .grad.
  void missing_gradients_are_named() {
    examine("a parameter without a gradient", [this](Communicator& comm) {
      const Setup setup(make_, comm, /*num_used=*/2);
      setup.ddp.arm(1);
      setup.loss_sum(LinearModel::microbatch(0)).backward();
      expect_error("'large' got no gradient: wait()", {rank_name(), "large"}, setup.ddp.wait);
    });
    examine(
        "a parameter with a gradient in the first microbatch alone", [this](Communicator& comm) {
          const Setup setup(make_, comm);
          const LossSum loss_sum = setup.ddp.wrap([&, num_used = 4](const Microbatch& m) mutable {
            return setup.model.loss_sum(static_cast<std::size_t>(--num_used))(m);
          });
          setup.ddp.arm(2);
          for (int j = 0; j < 2; ++j) loss_sum(LinearModel::microbatch(j)).backward();
          expect_error("'large' got no gradient in the last of two microbatches: wait()",
                       {rank_name(), "large"}, setup.ddp.wait);
        });
  }

  void microbatches_are_counted() {
    examine("a missing microbatch", [this](Communicator& comm) {
      const Setup setup(make_, comm);
      setup.ddp.arm(2);
      setup.loss_sum(LinearModel::microbatch(0)).backward();
      expect_error("only 1 microbatch of 2 ran: wait()", {rank_name(), "2"}, setup.ddp.wait);
    });
    examine("a microbatch too many", [this](Communicator& comm) {
      const Setup setup(make_, comm);
      setup.ddp.arm(1);
      setup.loss_sum(LinearModel::microbatch(0)).backward();
      expect_error("a second microbatch after arm(1): its forward", {rank_name(), "1"},
                   [&] { setup.loss_sum(LinearModel::microbatch(1)); });
    });
  }

  void steps_are_armed_once() {
    for (const std::int64_t num_microbatches : {0, -1}) {
      const std::string what = concat("arm(", num_microbatches, ")");
      examine(what, [&](Communicator& comm) {
        const Setup setup(make_, comm);
        expect_error(what, {rank_name()}, [&] { setup.ddp.arm(num_microbatches); });
      });
    }
    examine("arm() twice", [this](Communicator& comm) {
      const Setup setup(make_, comm);
      setup.ddp.arm(1);
      expect_error("arm() before the wait() of the previous step", {rank_name()},
                   [&] { setup.ddp.arm(1); });
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

  void expect_evaluation(const Setup& setup) {
    const at::NoGradGuard no_grad;
    expect("the loss of an evaluation", setup.loss_sum(LinearModel::microbatch(7)),
           setup.model.loss_sum()(LinearModel::microbatch(7)));
  }

  void expect_gradients(const Setup& setup, std::int64_t step, std::int64_t num_microbatches) {
    for (std::size_t i = 0; i < setup.model.leaves().size(); ++i) {
      const auto& [name, leaf] = setup.model.leaves()[i];
      const std::string what = concat("the gradient of '", name, "' in step ", step, " with ",
                                      num_microbatches, " microbatches");
      if (!leaf.grad().is_alias_of(setup.grads.flat()))
        fault(what + " is no longer the view of the flat buffer that it was");
      expect(what, leaf.grad(), fold(i, step, num_microbatches));
    }
  }

  static std::string plan(const FlatModel& flat) {
    std::vector<std::string> calls;
    for (const std::int64_t numel : plan_reference_buckets({{"all", flat.leaves()}}))
      calls.push_back(concat("all_reduce of ", numel, " elements"));
    return list(calls);
  }

  const MakeDdp& make_;
};

}  // namespace

std::vector<std::string> grade(const MakeDdp& make, Communicator& comm) {
  install_memory_ledger();
  Grade grade(make, comm);
  grade.lives_and_dies_alone();
  grade.replicas_start_as_rank_zeros();
  grade.gradients_are_sums_over_ranks(1);
  grade.gradients_are_sums_over_ranks(3);
  grade.unarmed_backwards_send_nothing();
  grade.missing_gradients_are_named();
  grade.microbatches_are_counted();
  grade.steps_are_armed_once();
  return grade.faults();
}

}  // namespace ladder::step1
