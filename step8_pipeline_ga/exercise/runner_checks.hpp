// For the judge, part 2: does backward do what a single process does, in the order of any plan?
// Each rank is a stage.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "common/testing/examination.hpp"
#include "step8_pipeline_ga/exercise/activation_watch.hpp"
#include "step8_pipeline_ga/exercise/stage_script.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"

namespace ladder::step8 {

class RunnerChecks : public Examination {
 public:
  explicit RunnerChecks(Communicator& comm) : Examination(comm, "part 2", "pipeline_runner.cpp") {}

  struct Run {
    Schedule schedule = Schedule::k1f1b;
    std::int64_t num_microbatches = 1;
    std::int64_t flush_size = 0;  // 0: all of them
    int chunks_per_stage = 1;
    bool is_heard = true;     // has an on_weight_gradient
    bool has_targets = true;  // or nothing but padding
    bool is_in_fp16 = false;
  };

  // Microbatches of unequal shapes, in flushes; the last flush has what is left.
  void adds_the_right_gradients(const Run& wanted) {
    begin(wanted);
    examine<PlanCommunicator>(run_name(), [&](PlanCommunicator& comm) {
      JudgedPipeline model(comm.size(), comm.size() * run_.chunks_per_stage, type());
      const Microbatches batch =
          make_batch(run_.num_microbatches, /*is_unequal=*/true, run_.has_targets);
      const Planner planner = planner_of(comm.size());
      const StageScript script(planner, comm.rank(), batch, run_.flush_size, type());
      const auto mean_over = static_cast<double>(std::max<std::int64_t>(batch.num_targets(), 1));
      const auto gradients = model.gradients(batch, mean_over);
      ActivationWatch watch(script.computations(), [&](const std::string& what) { fault(what); });
      watch.watch(model);
      const std::vector<NamedTensor> leaves = model.leaves_of(comm.rank());
      calls_ = {};
      const OnWeightGradient on_weight_gradient = [&](const at::Tensor& parameter) {
        expect_only_one_has_grown(parameter, leaves);
        ++calls_.by_name[name_of(parameter, leaves)];
        ++calls_.count;
      };
      std::size_t num_messages = 0;
      comm.follow(script.messages());
      comm.on_message = [&](const PlannedMessage& message, const at::Tensor& tensor) {
        const Pass place = {message.action.chunk, message.action.microbatch};
        if (message.action.kind == ActionKind::kRecvGradient)
          watch.keep("the received gradient", place, tensor);
        if (message.action.kind == ActionKind::kSendGradient)
          expect_gradient(concat("what B", place.second, " of chunk ", place.first,
                                 " leaves to be sent, the gradient of its input,"),
                          tensor, gradients.of_inputs.at(place));
        expect_calls("before '" + to_string(message.action) + "'", calls_.count,
                     script.num_weight_gradients(num_messages++, gradients));
      };
      const double loss =
          run(comm, model, planner, batch, run_.is_heard ? on_weight_gradient : OnWeightGradient());
      watch.finish();
      expect_sums(model, leaves, script, gradients);
      const bool is_last = comm.rank() + 1 == comm.size();
      expect("the loss that is returned", loss, is_last ? gradients.loss : 0.0);
    });
  }

  // In the steady state of 1F1B, each forward takes as much memory as the backward before it has
  // freed.
  void memory_does_not_grow() {
    const std::int64_t p = comm_.size(), num_microbatches = 2 * p + 4;
    begin({.num_microbatches = num_microbatches});
    examine<PlanCommunicator>(run_name(), [&](PlanCommunicator& comm) {
      JudgedPipeline model(comm.size(), comm.size());
      const Microbatches batch = make_batch(num_microbatches, /*is_unequal=*/false);
      const Planner planner = planner_of(comm.size());
      const StageScript script(planner, comm.rank(), batch, num_microbatches);
      std::vector<std::int64_t> bytes;  // when each forward begins
      model.on_begin = [&](int /*chunk*/) { bytes.push_back(activation_bytes()); };
      comm.follow(script.messages());
      const std::int64_t before = activation_bytes();
      run(comm, model, planner, batch, {});
      std::int64_t gradient_bytes = 0;
      for (const NamedTensor& leaf : model.leaves_of(comm.rank()))
        gradient_bytes += static_cast<std::int64_t>(leaf.tensor.nbytes());
      const auto steady = static_cast<std::size_t>(p + 1);
      expect(
          concat("the number of bytes by which memory grows from F", steady, " to F", steady + 1),
          bytes.at(steady + 1) - bytes.at(steady), std::int64_t{0});
      expect("the number of bytes that stay in memory after the flush", activation_bytes() - before,
             gradient_bytes);
    });
  }

  void refuses_wrong_arguments() {
    begin({});
    examine<PlanCommunicator>("-1 targets, and a wrong plan", [&](PlanCommunicator& comm) {
      const JudgedPipeline model(comm.size(), comm.size());
      PipelinePlan plan = planner_of(comm.size())(2);
      const auto run = [&](double num_targets) {
        PipelineRunner(model.chunks_of(comm.rank()), JudgedPipeline::kChannels, comm, [&](auto) {
          return plan;
        }).accumulate_gradients(kNextToken, make_batch(2, /*is_unequal=*/true), num_targets, 2);
      };
      const std::string what = "accumulate_gradients() ";
      expect_error(what + "for -1 targets", {}, [&] { run(-1); });
      std::swap(plan.stages[0].front(), plan.stages[0].back());
      expect_error(what + "by a wrong plan", {what_is_wrong_with(plan)}, [&] { run(1); });
    });
  }

  void evaluates_without_a_trace() {
    begin({});
    examine<PlanCommunicator>("an evaluation", [&](PlanCommunicator& comm) {
      const JudgedPipeline model(comm.size(), comm.size());
      const Microbatches batch = make_batch(3, /*is_unequal=*/true);
      const Planner planner = [&](std::int64_t m) { return plan_forwards(comm.size(), m); };
      const StageScript script(planner, comm.rank(), batch, batch.size());
      const StageScript of_one(planner, comm.rank(), make_batch(1, /*is_unequal=*/true), 1);
      comm.follow(script.messages());
      const std::int64_t before = activation_bytes();
      std::int64_t bytes_kept = 0;
      at::Tensor next;  // the logits of the token that follows
      const std::vector<double> sums =
          with_runner(comm, model, planner, [&](PipelineRunner& runner) {
            std::vector<double> found = runner.loss_sums(kNextToken, batch);
            bytes_kept = activation_bytes() - before;
            comm.check_is_over();
            comm.follow(of_one.messages());
            next = runner.forward(batch[0].tokens);
            return found;
          });
      const bool is_last = comm.rank() + 1 == comm.size();
      for (std::int64_t j = 0; j < batch.size(); ++j) {
        const at::Tensor sum = kNextToken.loss_sum(model.logits(batch[j].tokens), batch[j]);
        expect(concat("the loss of microbatch ", j), sums.at(static_cast<std::size_t>(j)),
               is_last ? sum.item<double>() : 0.0);
      }
      expect("what forward(tokens) returns", next,
             model.logits(batch[0].tokens).slice(/*dim=*/1, -1));
      expect("the number of bytes that stay in memory", bytes_kept, std::int64_t{0});
    });
  }

 private:
  static std::int64_t activation_bytes() {
    return read_memory().live(MemoryCategory::kActivations);
  }
  Planner planner_of(int num_stages) const {
    return [=, run = run_](std::int64_t m) {
      return GreedyPlan::plan(run.schedule, num_stages, m, run.chunks_per_stage);
    };
  }
  at::ScalarType type() const { return run_.is_in_fp16 ? at::kHalf : at::kFloat; }
  static Microbatches make_batch(std::int64_t num_microbatches, bool is_unequal,
                                 bool has_targets = true) {
    std::vector<Microbatch> list;
    for (std::int64_t j = 0; j < num_microbatches; ++j) {
      list.push_back(JudgedPipeline::microbatch(j, is_unequal));
      if (has_targets) continue;
      list.back().targets.fill_(kIgnoredTarget);
      list.back().num_targets = 0;
    }
    return Microbatches(std::move(list));
  }

  double run(PlanCommunicator& comm, const JudgedPipeline& model, const Planner& planner,
             const Microbatches& batch, const OnWeightGradient& on_weight_gradient) {
    return with_runner(comm, model, planner, [&](PipelineRunner& runner) {
      return runner.accumulate_gradients(kNextToken, batch,
                                         static_cast<double>(batch.num_targets()), run_.flush_size,
                                         on_weight_gradient);
    });
  }
  // Returns what act() returns.
  template <class Act>
  std::invoke_result_t<Act, PipelineRunner&> with_runner(PlanCommunicator& comm,
                                                         const JudgedPipeline& model,
                                                         const Planner& planner, Act act) {
    try {
      PipelineRunner runner(model.chunks_of(comm.rank()), JudgedPipeline::kChannels, comm, planner,
                            type());
      auto result = act(runner);
      comm.check_is_over();
      return result;
    } catch (...) {
      comm.play_the_rest();
      throw;
    }
  }

  void begin(const Run& run) {
    run_ = run;
    if (run_.flush_size == 0) run_.flush_size = run_.num_microbatches;
    has_wrong_gradient_ = has_wrong_count_ = false;
  }
  std::string run_name() const {
    return concat(to_string(run_.schedule), " with ", run_.num_microbatches, " microbatches",
                  run_.is_in_fp16 ? " in fp16" : "",
                  run_.is_heard ? "" : ", without an on_weight_gradient",
                  run_.has_targets ? "" : " that are all padding");
  }

  void expect_sums(const JudgedPipeline& model, const std::vector<NamedTensor>& leaves,
                   const StageScript& script, const JudgedPipeline::Gradients& gradients) {
    const auto sums = script.sums(gradients);
    for (const NamedTensor& leaf : leaves)
      expect_gradient("the gradient of '" + leaf.name + "'" + shared_by(leaf.name, model),
                      leaf.tensor.grad(), sums.at(leaf.name));
    expect_calls("in all", calls_.count,
                 script.num_weight_gradients(script.messages().size(), gradients));
    for (const auto& [name, count] : calls_.by_name)
      expect_calls("with '" + name + "'", count, script.num_wgrads_of(name));
  }

  // "As soon as a separate wgrad has added to its gradient": no other one is waiting.
  void expect_only_one_has_grown(const at::Tensor& parameter,
                                 const std::vector<NamedTensor>& leaves) {
    for (const auto& [name, tensor] : leaves) {
      if (!JudgedPipeline::is_of_linear_layer(name) || !tensor.grad().defined()) continue;
      const bool is_it = tensor.is_same(parameter);
      at::Tensor& before = calls_.announced[name];
      const bool has_grown = !before.defined() || !before.equal(tensor.grad());
      before = tensor.grad().clone();
      if (has_grown != is_it && !std::exchange(has_wrong_count_, true))
        fault(concat("when on_weight_gradient is called, the gradient of '", name, "' ",
                     is_it ? "has not been added to" : "has been, too"));
    }
  }

  void expect_first(const std::string& what, std::int64_t found, std::int64_t wanted) {
    if (found == wanted || std::exchange(has_wrong_count_, true)) return;
    expect(what, found, wanted);
  }
  void expect_calls(const std::string& which, std::int64_t found, std::int64_t wanted) {
    if (!run_.is_heard) return;
    expect_first("the number of calls of on_weight_gradient " + which, found, wanted);
  }
  // The first one that is wrong; those after it follow from it.
  void expect_gradient(const std::string& what, const at::Tensor& found, const at::Tensor& wanted) {
    if (has_wrong_gradient_ || (found.defined() && found.equal(wanted))) return;
    has_wrong_gradient_ = true;
    const double factor =
        found.defined() && found.sizes() == wanted.sizes() ? factor_between(found, wanted) : 0;
    if (factor == 0) return expect(what, found, wanted);
    fault(concat(what, " is ", factor, " times what it should be: ",
                 factor > 1 ? "is it added more than once?"
                            : "the loss is divided by the step's targets already"));
  }
  // f, if found = f · wanted up to rounding, and f is not 1; otherwise 0.
  static double factor_between(const at::Tensor& found, const at::Tensor& wanted) {
    const at::Tensor a = found.to(at::kDouble), b = wanted.to(at::kDouble);
    const double factor = ((a * b).sum() / (b * b).sum()).item<double>();
    const bool is_multiple =
        (a - b * factor).norm().item<double>() <= 1e-5 * a.norm().item<double>();
    return is_multiple && std::abs(factor - 1) > 1e-3 ? factor : 0;
  }
  static std::string name_of(const at::Tensor& parameter, const std::vector<NamedTensor>& leaves) {
    for (const NamedTensor& leaf : leaves) {
      if (leaf.tensor.is_same(parameter)) return leaf.name;
    }
    return "a tensor that is no parameter of the stage";
  }
  static std::string shared_by(const std::string& name, const JudgedPipeline& model) {
    if (!name.ends_with(".gain") || model.num_chunks() == model.num_stages()) return "";
    return ", which several chunks of the stage read,";
  }

  struct Calls {  // of on_weight_gradient
    std::int64_t count = 0;
    std::map<std::string, std::int64_t> by_name;
    std::map<std::string, at::Tensor> announced;  // gradients, at the last call
  };

  Run run_;
  Calls calls_;
  bool has_wrong_gradient_ = false, has_wrong_count_ = false;
};

}  // namespace ladder::step8
