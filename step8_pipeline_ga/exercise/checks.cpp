// Judges 1F1B and the runner's backward, each without the other: plans are values, and the runner
// gets plans that are not the answer's. Then the trainer shows that the two train.
#include <algorithm>
#include <string>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "common/testing/draw.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/judge_main.hpp"
#include "common/train/report/console.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step8_pipeline_ga/exercise/runner_checks.hpp"
#include "step8_pipeline_ga/exercise/strict_slots.hpp"
#include "step8_pipeline_ga/schedule/schedule_check.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"
#include "step8_pipeline_ga/train.hpp"

namespace ladder {
namespace step8 {
namespace {

// Part 1: does this plan end, and, if `judges_order`, is it 1F1B? Needs no ranks: a plan is a value.
class PlanChecks : public Examination {
 public:
  PlanChecks(Communicator& comm, bool judges_order)
      : Examination(comm, "part 1", "pipeline_schedule.cpp"), judges_order_(judges_order) {}

  // Small enough to be written down.
  void computes_in_this_order() {
    expect_order(2, 3, {"F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"});
    expect_order(3, 4,
                 {"F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"});
    expect_order(4, 2, {"F0 F1 B0 B1", "F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"});
    expect_order(1, 2, {"F0 B0 F1 B1"});
  }

  // What all others cost: the time of GPipe, and p − r microbatches.
  void costs_what_it_should() {
    for (int p = 1; p <= 5; ++p)
      for (std::int64_t m = 1; m <= 9; ++m) expect_costs(Schedule::k1f1b, p, m);
    expect_costs(Schedule::k1f1b, 16, 24);
    expect_costs(Schedule::k1f1b, 3, 300);
    expect_costs(Schedule::k1f1b, 40, 60);
    if (!judges_order_) return;
    Draw draw(comm_);
    const auto p = static_cast<int>(draw.number(6, 30));
    const std::int64_t m = draw.number(30, 150);
    if (!is_over_) draw.announce(concat("1f1b with ", p, " stages and ", m, " microbatches"));
    expect_costs(Schedule::k1f1b, p, m);
  }

  // They are made from the same parts.
  void leaves_the_others_right() {
    expect_costs(Schedule::kGpipe, 3, 4);
    for (const std::int64_t m : {6, 7}) expect_costs(Schedule::kInterleaved, 3, m, 2);
    expect_costs(Schedule::kZeroBubble, 3, 6);
    if (is_over_) return;
    const std::string wrong = what_is_wrong_with(plan_forwards(3, 4, 2));
    if (!wrong.empty()) fault("forwards only: " + wrong);
  }

  void refuses_what_cannot_be_planned() {
    const auto refuses = [&](const std::string& what, Schedule schedule, int p, std::int64_t m,
                             int v) {
      expect_error("plan_pipeline() for " + what, {}, [&] { plan_pipeline(schedule, p, m, v); });
    };
    refuses("no stages", Schedule::k1f1b, 0, 4, 1);
    refuses("no microbatches", Schedule::k1f1b, 2, 0, 1);
    refuses("no chunks", Schedule::kInterleaved, 2, 4, 0);
    refuses("two chunks per stage of 1f1b", Schedule::k1f1b, 2, 4, 2);
    refuses("two chunks on a single stage", Schedule::kInterleaved, 1, 4, 2);
  }

 private:
  static constexpr PipelineCosts kTwice = {};  // a backward takes as long as two forwards

  void say(const std::string& what) {
    fault(concat(to_string(plan_schedule_), " with ", count_of(p_, "stage"), " and ",
                 count_of(m_, "microbatch"), ": ", what));
    is_over_ = true;
  }

  // Makes plan_. False: there is nothing more to look at.
  bool begin(Schedule schedule, int p, std::int64_t m, int v) {
    if (is_over_) return false;
    plan_schedule_ = schedule;
    p_ = p, m_ = m;
    try {
      plan_ = plan_pipeline(schedule, p, m, v);
    } catch (const CheckError& error) {
      if (std::string(error.what()).starts_with("not implemented")) throw;
      say(concat(error.what(),
                 ": head_start() and take_turns() decide the order, add_messages() keeps to it"));
      return false;
    }
    const std::string wrong = what_is_wrong_with(plan_);
    if (!wrong.empty()) say(wrong);
    if (!judges_order_) return false;
    const std::string other = wrong.empty() ? name_of_another() : "";
    if (!other.empty()) say("a right plan, but " + other);
    return !is_over_;
  }

  // "" unless the plan is obviously another schedule's than the one that was asked for.
  std::string name_of_another() const {
    if (plan_.num_stages != p_ || plan_.num_microbatches != m_)
      return concat("for ", count_of(plan_.num_stages, "stage"), " and ",
                    count_of(plan_.num_microbatches, "microbatch"));
    if (plan_schedule_ != Schedule::k1f1b) return "";
    if (plan_.chunks_per_stage > 1)
      return concat("interleaved: ", plan_.chunks_per_stage, " chunks per stage instead of one");
    if (has(ActionKind::kWeightBackward))
      return "a zero-bubble one: it cuts backwards in two, I and W";
    if (m_ > 1 && std::all_of(plan_.stages.begin(), plan_.stages.end(), forwards_first))
      return concat("GPipe: no backward before the last forward, so stage ", p_ - 1, " remembers ",
                    m_, " microbatches, not 1");
    return "";
  }
  bool has(ActionKind kind) const {
    return std::any_of(plan_.stages.begin(), plan_.stages.end(),
                       [&](const std::vector<Action>& stage) {
                         return std::any_of(stage.begin(), stage.end(),
                                            [&](const Action& a) { return a.kind == kind; });
                       });
  }
  static bool forwards_first(const std::vector<Action>& stage) {
    const auto is_backward = [](const Action& a) { return a.kind == ActionKind::kBackward; };
    const auto is_forward = [](const Action& a) { return a.kind == ActionKind::kForward; };
    return std::none_of(std::find_if(stage.begin(), stage.end(), is_backward), stage.end(),
                        is_forward);
  }

  void expect_order(int p, std::int64_t m, const std::vector<std::string>& wanted) {
    if (!begin(Schedule::k1f1b, p, m, 1)) return;
    for (std::size_t stage = 0; stage < wanted.size(); ++stage) {
      const std::string found = computations(stage);
      if (found == wanted[stage]) continue;
      say(concat("stage ", stage, " computes ", found, ", not ", wanted[stage]));
      break;
    }
    expect_costs_of_plan();
  }
  std::string computations(std::size_t stage) const {
    std::string text;
    for (Action action : plan_.stages[stage]) {
      if (is_message(action.kind)) continue;
      action.chunk = 0;
      text += (text.empty() ? "" : " ") + to_string(action);
    }
    return text;
  }

  void expect_costs(Schedule schedule, int p, std::int64_t m, int v = 1) {
    if (begin(schedule, p, m, v)) expect_costs_of_plan();
  }
  void expect_costs_of_plan() {
    const TimelineSummary summary = summarize(simulate(plan_, kTwice));
    const Schedule schedule = plan_schedule_;
    const int v = plan_.chunks_per_stage;
    for (int stage = 0; stage < p_; ++stage) {
      const std::int64_t found = summary.live[static_cast<std::size_t>(stage)];
      const std::int64_t wanted = most_live_microbatches(schedule, p_, m_, v, stage);
      if (found == wanted) continue;
      say(concat("stage ", stage, " remembers ", count_of(found, v == 1 ? "microbatch" : "chunk"),
                 " at once, not ", schedule == Schedule::k1f1b ? "min(m, p - r) = " : "", wanted,
                 found > wanted ? ": its first backward comes too late"
                                : ": its first backward comes too early"));
      break;
    }
    const double wanted_s = formula_s(schedule, p_, m_, v, kTwice);
    if (summary.total_s != wanted_s)
      say(concat("it takes ", summary.total_s, " forwards' time, not ",
                 schedule == Schedule::k1f1b ? "(m + p - 1)(1 + 2) = " : "", wanted_s,
                 ": stages wait for one another"));
  }

  const bool judges_order_;
  Schedule plan_schedule_ = Schedule::k1f1b;
  PipelinePlan plan_;
  int p_ = 1;
  std::int64_t m_ = 1;
  bool is_over_ = false;
};

std::vector<std::string> faults_of_plan(Communicator& comm, bool judges_order) {
  PlanChecks checks(comm, judges_order);
  checks.examine("the plans", &PlanChecks::computes_in_this_order);
  checks.examine("the plans", &PlanChecks::costs_what_it_should);
  checks.examine("the plans", &PlanChecks::leaves_the_others_right);
  if (judges_order) checks.examine("wrong counts", &PlanChecks::refuses_what_cannot_be_planned);
  return checks.faults();
}

std::vector<std::string> faults_of_runner(Communicator& comm) {
  install_memory_ledger();
  RunnerChecks checks(comm);
  const std::int64_t p = comm.size();
  checks.adds_the_right_gradients({.schedule = Schedule::kGpipe, .num_microbatches = 4});
  checks.adds_the_right_gradients({.num_microbatches = 5, .flush_size = 3});
  checks.memory_does_not_grow();
  checks.adds_the_right_gradients({.num_microbatches = 130});
  checks.adds_the_right_gradients({.num_microbatches = 3, .has_targets = false});
  if (p > 1) {
    checks.adds_the_right_gradients(
        {.schedule = Schedule::kInterleaved, .num_microbatches = 2 * p, .chunks_per_stage = 2});
  }
  checks.adds_the_right_gradients({.num_microbatches = 4, .flush_size = 3, .is_in_fp16 = true});
  checks.refuses_wrong_arguments();
  checks.evaluates_without_a_trace();  // with a plan of part 1
  return checks.faults();
}

std::vector<std::string> faults_of_wgrads(Communicator& comm) {
  RunnerChecks checks(comm);
  RunnerChecks::Run zero_bubble = {.schedule = Schedule::kZeroBubble,
                                   .num_microbatches = comm.size() + 2};
  checks.adds_the_right_gradients(zero_bubble);
  zero_bubble.is_heard = false;
  checks.adds_the_right_gradients(zero_bubble);
  return checks.faults();
}

// All ranks are one pipeline; each training has another schedule.
void vary(TrainOptions& options, int number, int num_ranks) {
  constexpr Schedule kSchedules[] = {Schedule::kGpipe, Schedule::k1f1b, Schedule::kZeroBubble,
                                     Schedule::kInterleaved};
  const Schedule schedule =
      number % 4 == 3 && num_ranks == 1 ? Schedule::k1f1b : kSchedules[number % 4];
  const int num_chunks = schedule == Schedule::kInterleaved ? 2 : 1;
  options.set<PipelineOptions>() = {
      .num_stages = num_ranks, .schedule = schedule, .chunks_per_stage = num_chunks};
  // On several stages, the gradient of a tied embedding is summed in another order.
  if (num_ranks > 1) options.model.tie_embeddings = false;
  options.model.layers = num_ranks * num_chunks;
  options.data.num_microbatches = num_ranks * (1 + number % 2);
}

std::vector<std::string> faults_of_trainings(Communicator& comm) {
  Judge judge(
      {.trainer = trainer(),
       .vary = [&](TrainOptions& options, int number) { vary(options, number, comm.size()); }},
      comm);
  judge.all_cases_are_right();
  return judge.faults();
}

Target idle_slots() {
  constexpr int kStages = 4, kMicrobatches = 8;
  const double ideal = ideal_s(Schedule::k1f1b, kMicrobatches, 1, {});
  const PipelinePlan plan = plan_pipeline(Schedule::k1f1b, kStages, kMicrobatches);
  return {.found = strict_slots(plan) - ideal,
          .solution = formula_s(Schedule::k1f1b, kStages, kMicrobatches, 1, {}) - ideal,
          .naive = (kStages - 1) * ideal,
          .what =
              " idle slots per stage in 1F1B of 4 stages and 8 microbatches, if every send "
              "waits for its receive",
          .naive_is = "one microbatch at a time",
          .hint = "does a stage wait for a message where it could compute first?"};
}

}  // namespace
}  // namespace step8

std::vector<std::string> judge_linked(Communicator& comm) {
  return faults_in_levels({{"a plan that ends", [&] { return step8::faults_of_plan(comm, false); }},
                           {"1F1B", [&] { return step8::faults_of_plan(comm, true); }},
                           {"the runner's backward", [&] { return step8::faults_of_runner(comm); }},
                           {"wgrads", [&] { return step8::faults_of_wgrads(comm); }},
                           {"trainings", [&] { return step8::faults_of_trainings(comm); }}});
}

std::vector<Target> measure_linked(Communicator& /*comm*/) {
  return {step8::idle_slots()};
}

}  // namespace ladder
