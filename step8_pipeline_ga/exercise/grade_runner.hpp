// For the grader, part 2: does backward do what a single process does, in the order of any plan?
// Each rank is a stage.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "common/testing/grade_part.hpp"
#include "step8_pipeline_ga/exercise/activation_watch.hpp"
#include "step8_pipeline_ga/exercise/grader.hpp"
#include "step8_pipeline_ga/exercise/stage_script.hpp"

namespace ladder::step8 {

class GradeRunner : public GradePart {
 public:
  GradeRunner(const MakeRunner& attempt, Communicator& comm)
      : GradePart("part 2", "pipeline_runner.cpp", comm), attempt_(attempt) {}

  // Microbatches of unequal shapes, in flushes; the last flush has what is left.
  void adds_the_right_gradients(Schedule schedule, int chunks_per_stage,
                                std::int64_t num_microbatches, std::int64_t flush_size) {
    begin(schedule, num_microbatches);
    examine_part<PlanCommunicator>(run_name(), [&](PlanCommunicator& comm) {
      GradedPipeline model(comm.size(), comm.size() * chunks_per_stage);
      const Microbatches batch = make_batch(num_microbatches, /*is_unequal=*/true);
      const Planner planner = planner_of(schedule, comm.size(), chunks_per_stage);
      const StageScript script(planner, comm.rank(), batch, flush_size);
      const auto gradients = model.gradients(batch, static_cast<double>(batch.num_targets()));
      ActivationWatch watch(script.computations(), [&](const std::string& what) { say(what); });
      model.on_begin = [&](int chunk) { place_ = {chunk, watch.begin_forward(chunk)}; };
      model.on_end = [&](int /*chunk*/, const at::Tensor& x, const at::Tensor& y,
                         const at::Tensor& z) {
        watch.keep_saved(place_, y);
        watch.keep_input(place_, x);
        z.register_hook([&watch, place = place_](const at::Tensor& /*gradient*/) {
          watch.begin_backward(place);
        });
      };
      std::int64_t num_weight_gradients = 0;
      std::size_t num_messages = 0;
      comm.follow(script.messages());
      comm.on_message = [&](const PlannedMessage& message, const at::Tensor& tensor) {
        const Place place = {message.action.chunk, message.action.microbatch};
        if (message.action.kind == ActionKind::kRecvGradient) watch.keep_received(place, tensor);
        if (message.action.kind == ActionKind::kSendGradient) {
          expect_gradient(concat("what B", place.second, " of chunk ", place.first,
                                 " leaves to be sent, the gradient of its input,"),
                          tensor, gradients.of_inputs.at(place));
        }
        expect_first(
            "the number of calls of on_weight_gradient before '" + to_string(message.action) + "'",
            num_weight_gradients, script.num_weight_gradients(num_messages++, gradients));
      };
      run(comm, model, planner, batch, flush_size,
          [&](const at::Tensor&) { ++num_weight_gradients; });
      watch.finish();
      const auto sums = script.sums(gradients);
      for (const NamedTensor& leaf : model.leaves_of(comm.rank()))
        expect_gradient("the gradient of '" + leaf.name + "'" + shared_by(leaf.name, model),
                        leaf.tensor.grad(), sums.at(leaf.name));
      expect_first("the number of calls of on_weight_gradient", num_weight_gradients,
                   script.num_weight_gradients(script.messages().size(), gradients));
    });
  }

  // In the steady state of 1F1B, each forward takes as much memory as the backward before it has
  // freed.
  void memory_does_not_grow() {
    const std::int64_t p = comm_.size(), num_microbatches = 2 * p + 4;
    begin(Schedule::k1f1b, num_microbatches);
    examine_part<PlanCommunicator>(run_name(), [&](PlanCommunicator& comm) {
      GradedPipeline model(comm.size(), comm.size());
      const Microbatches batch = make_batch(num_microbatches, /*is_unequal=*/false);
      const Planner planner = planner_of(Schedule::k1f1b, comm.size(), 1);
      const StageScript script(planner, comm.rank(), batch, num_microbatches);
      std::vector<std::int64_t> bytes;  // when each forward begins
      model.on_begin = [&](int /*chunk*/) { bytes.push_back(activation_bytes()); };
      comm.follow(script.messages());
      const std::int64_t before = activation_bytes();
      run(comm, model, planner, batch, num_microbatches, {});
      std::int64_t gradient_bytes = 0;
      for (const NamedTensor& leaf : model.leaves_of(comm.rank()))
        gradient_bytes += static_cast<std::int64_t>(leaf.tensor.nbytes());
      const auto steady = static_cast<std::size_t>(p + 1);
      expect(prefix() + concat("the number of bytes by which memory grows from F", steady, " to F",
                               steady + 1),
             bytes.at(steady + 1) - bytes.at(steady), std::int64_t{0});
      expect(prefix() + "the number of bytes that stay in memory after the flush",
             activation_bytes() - before, gradient_bytes);
    });
  }

 private:
  static std::int64_t activation_bytes() {
    return read_memory().live(MemoryCategory::kActivations);
  }
  static Planner planner_of(Schedule schedule, int num_stages, int chunks_per_stage) {
    return [=](std::int64_t m) {
      return RightSchedule().plan(schedule, num_stages, m, chunks_per_stage);
    };
  }
  static Microbatches make_batch(std::int64_t num_microbatches, bool is_unequal) {
    std::vector<Microbatch> list;
    for (std::int64_t j = 0; j < num_microbatches; ++j)
      list.push_back(GradedPipeline::microbatch(j, is_unequal));
    return Microbatches(std::move(list));
  }

  void run(PlanCommunicator& comm, const GradedPipeline& model, const Planner& planner,
           const Microbatches& batch, std::int64_t flush_size,
           const OnWeightGradient& on_weight_gradient) {
    try {
      const AccumulateGradients accumulate =
          attempt_(model.chunks_of(comm.rank()), GradedPipeline::kChannels, comm, planner);
      accumulate(kNextToken, batch, static_cast<double>(batch.num_targets()), flush_size,
                 on_weight_gradient);
      comm.check_is_over();
    } catch (...) {
      comm.play_the_rest();
      throw;
    }
  }

  void begin(Schedule schedule, std::int64_t num_microbatches) {
    schedule_ = schedule;
    num_microbatches_ = num_microbatches;
    has_wrong_gradient_ = has_wrong_count_ = false;
  }
  std::string run_name() const {
    return concat(to_string(schedule_), " with ", num_microbatches_, " microbatches");
  }
  std::string prefix() const { return concat(name_, ", ", run_name(), ": "); }
  void say(const std::string& what) { fault(prefix() + what); }

  void expect_first(const std::string& what, std::int64_t found, std::int64_t wanted) {
    if (found == wanted || std::exchange(has_wrong_count_, true)) return;
    expect(prefix() + what, found, wanted);
  }
  // The first one that is wrong; those after it follow from it.
  void expect_gradient(const std::string& what, const at::Tensor& found, const at::Tensor& wanted) {
    if (has_wrong_gradient_ || (found.defined() && found.equal(wanted))) return;
    has_wrong_gradient_ = true;
    const double factor =
        found.defined() && found.sizes() == wanted.sizes() ? factor_between(found, wanted) : 0;
    if (factor == 0) return expect(prefix() + what, found, wanted);
    say(concat(what, " is ", factor, " times what it should be: ",
               factor > 1
                   ? "is it added more than once?"
                   : "the loss is divided by the step's targets already, and nothing else scales"));
  }
  // f, if found = f · wanted up to rounding, and f is not 1; otherwise 0.
  static double factor_between(const at::Tensor& found, const at::Tensor& wanted) {
    const at::Tensor a = found.to(at::kDouble), b = wanted.to(at::kDouble);
    const double factor = ((a * b).sum() / (b * b).sum()).item<double>();
    const bool is_multiple =
        (a - b * factor).norm().item<double>() <= 1e-5 * a.norm().item<double>();
    return is_multiple && std::abs(factor - 1) > 1e-3 ? factor : 0;
  }
  static std::string shared_by(const std::string& name, const GradedPipeline& model) {
    if (!name.ends_with(".gain") || model.num_chunks() == model.num_stages()) return "";
    return ", which several chunks of the stage read,";
  }

  const MakeRunner& attempt_;
  Schedule schedule_ = Schedule::k1f1b;
  std::int64_t num_microbatches_ = 0;
  bool has_wrong_gradient_ = false, has_wrong_count_ = false;
  Place place_;  // of the forward that is running
};

}  // namespace ladder::step8
