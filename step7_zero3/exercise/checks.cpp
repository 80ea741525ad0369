// Judges units without a model, and then a sharded model: the trainer shows what is computed, held
// and sent; these checks show what is whole and what is on its way whenever a layer's turn comes.
// They come first, because a trainer that reads memory that is gone would crash without a word.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "common/comm/forwarding_communicator.hpp"
#include "common/comm/simulated/simulated_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/model/model.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/recording_communicator.hpp"
#include "common/train/build_model.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step5_zero1/shard_group.hpp"
#include "step7_zero3/cost_card.hpp"
#include "step7_zero3/sharded_model.hpp"
#include "step7_zero3/sharded_units.hpp"
#include "step7_zero3/train.hpp"

namespace ladder {
namespace step7 {
namespace {

enum class Phase { kForward, kBackward };

constexpr int kNumLayers = 5;
constexpr std::size_t kLast = kNumLayers - 1;  // the head; layer 0 is the embedding

// A model of five layers that says when each of them needs its unit. Units have different lengths.
// If `is_tied`, the last layer also reads unit 0; if `has_middle_reader`, layer 2 reads unit 1.
ModelBuilder small_model(bool is_tied, std::function<void(Phase, std::size_t layer)> on_turn,
                         bool has_middle_reader = false) {
  return [=](const OnUnit& on_unit, at::Device device) {
    Model model;
    for (std::size_t layer = 0; layer <= kLast; ++layer) {
      const auto numel = static_cast<std::int64_t>(10'000 * (layer + 1));
      const at::Tensor weight = at::ones({numel}, device).set_requires_grad(true);
      const std::string name = concat("unit", layer);
      const auto forward = [=](const at::Tensor& input) {
        on_turn(Phase::kForward, layer);
        const at::Tensor product = input * weight.mean();
        if (product.requires_grad())
          product.register_hook(
              [=](const at::Tensor& /*gradient*/) { on_turn(Phase::kBackward, layer); });
        return product * 1;  // the gradient arrives here before the layer's backward begins
      };
      model.layers.push_back({{name, {{name + ".weight", weight}}}, forward});
      if (on_unit) on_unit(model.layers.back().unit);
    }
    if (is_tied) model.layers[kLast].reads = 0;
    if (has_middle_reader) model.layers[2].reads = 1;
    return model;
  };
}

bool has_memory(const NamedTensor& leaf) {
  return leaf.tensor.storage().data() != nullptr;
}

// What is whole or on its way, of units of one tensor each.
std::string whole_of(const std::vector<NamedTensor>& leaves) {
  std::string units = "(";
  for (std::size_t unit = 0; unit < leaves.size(); ++unit) {
    const bool is_whole = has_memory(leaves[unit]);
    const bool has_size = leaves[unit].tensor.storage().nbytes() > 0;
    if (is_whole || has_size) units += concat(" unit", unit);
    if (is_whole != has_size) units += is_whole ? ", without a size," : ", a size without memory,";
  }
  return units + " )";
}

// Part 1, without part 2.
class UnitChecks : public Examination {
 public:
  explicit UnitChecks(Communicator& comm)
      : Examination(comm, "part 1", "sharded_units.cpp"),
        units_(small_model(/*is_tied=*/false, [](Phase, std::size_t) {})({}, at::kCPU).units()),
        plan_(plan_shards(plan_flat_layout(units_, shard_multiple(comm.size())), comm.size(),
                          comm.rank())) {}

  void come_and_go(RecordingCommunicator& comm) {
    comm.set_network(Network::kSlow);
    const std::int64_t bytes_before = read_memory().live(MemoryCategory::kParameters);
    ShardedUnits sharded(plan_, comm);
    for (const Unit& unit : units_) sharded.add(unit);
    const at::Tensor saved = sharded.leaves()[1].tensor.detach();  // as autograd saves it
    const auto check_state = [&](const std::string& after, const std::string& wanted,
                                 std::int64_t numel) {
      const std::string found =
          concat(whole_of(sharded.leaves()), ", ", comm.recording().num_started, " gathers, ",
                 comm.recording().num_on_their_way(), " on their way");
      check(found == wanted, "after ", after, " the state is ", found, ", not ", wanted);
      expect(concat("after ", after, " the number of bytes of parameters"),
             read_memory().live(MemoryCategory::kParameters) - bytes_before,
             4 * (plan_.numel + numel));
    };
    const std::int64_t numel = plan_.layout.units[1].numel;
    check_state("add() of all", "( ), 0 gathers, 0 on their way", 0);
    sharded.param_shard().fill_(3);
    for (int time = 0; time < 2; ++time) sharded.start_unshard(1);
    check_state("start_unshard(1), twice,", "( unit1 ), 1 gathers, 1 on their way", numel);
    for (int time = 0; time < 2; ++time) sharded.unshard(1);
    check_state("unshard(1), twice,", "( unit1 ), 1 gathers, 0 on their way", numel);
    sharded.start_unshard(1);
    check_state("start_unshard(1) of what is whole", "( unit1 ), 1 gathers, 0 on their way", numel);
    expect("after unshard(1) 'unit1.weight', of which each rank's slice is 3,", saved,
           at::full_like(saved, 3));
    sharded.reshard(1);
    sharded.start_unshard(1);
    sharded.reshard(1);
    check_state("reshard(1) of a unit on its way", "( ), 2 gathers, 0 on their way", 0);
    sharded.reshard(1);
    check_state("reshard(1), twice,", "( ), 2 gathers, 0 on their way", 0);
    // Rank 0 has nothing but zeros, which the others want to know.
    sharded.param_shard().fill_(comm.rank());
    sharded.unshard(2);
    const at::Tensor wanted =
        at::arange(comm.size()).repeat_interleave(plan_.slices[2].numel).to(at::kFloat);
    const at::Tensor& whole = sharded.leaves()[2].tensor;
    expect("after unshard(2) 'unit2.weight', of which rank r's slice is r,", whole.detach(),
           wanted.narrow(0, 0, whole.numel()));
    sharded.reshard_all();
    check_state("reshard_all()", "( ), 3 gathers, 0 on their way", 0);
  }

  void refuses_strangers(LockstepCommunicator& comm) {
    ShardedUnits sharded(plan_, comm);
    const auto add = [&](const char* unit, at::ScalarType type) {
      sharded.add({unit, {{"unit0.weight", at::ones({10'000}, type)}}});
    };
    expect_error("add() of unit1 before unit0", {"unit1"}, [&] { add("unit1", at::kFloat); });
    expect_error("add() of doubles", {"unit0.weight"}, [&] { add("unit0", at::kDouble); });
  }

 private:
  const std::vector<Unit> units_;
  const ShardPlan plan_;
};

// A small model, sharded, whose turns are seen. The network is slow: a gather is on its way until
// somebody waits for it.
class Turns {
 public:
  Turns(const std::string& what, bool is_tied, int prefetch, RecordingCommunicator& comm,
        Examination& examination)
      : what_(what),
        is_tied_(is_tied),
        prefetch_(static_cast<std::size_t>(prefetch)),
        comm_(comm),
        examination_(examination),
        bytes_before_(read_memory().live(MemoryCategory::kParameters)),
        model_(small_model(is_tied, [this](Phase phase, std::size_t layer) { turn(phase, layer); }),
               prefetch, comm) {
    expect("the number of collectives that the constructor calls", comm.calls().size(),
           std::size_t{0});
    comm.set_network(Network::kSlow);
  }

  void freeze_embedding() { model_.leaves()[0].tensor.set_requires_grad(false); }

  at::Tensor forward() {
    const int num_before = num_started();
    const std::int64_t others_before = read_memory().live(MemoryCategory::kActivations);
    reset_memory_peaks();
    const at::Tensor loss = model_.forward(at::ones({1}));
    const std::int64_t others = read_memory().peak(MemoryCategory::kActivations) - others_before;
    expect("the most bytes of other tensors in a forward", std::max(others, kFewBytes), kFewBytes);
    expect("the number of gathers in a forward", num_started() - num_before, kNumLayers);
    expect_order_of_gathers("forward", num_before, std::less<>());
    expect("the number of layers that a forward computes", std::exchange(num_computed_, 0),
           kNumLayers);
    return loss;
  }

  void evaluate() {
    const at::NoGradGuard no_grad;
    forward();
    expect("what is whole after an evaluation", whole(), std::string("( )"));
    expect_peak("an evaluation");
  }

  // is_late: another forward has come since that of this loss, and dropped what it kept.
  void backward(const at::Tensor& loss, bool is_late = false) {
    const int num_before = num_started();
    loss.backward();
    expect(is_late ? "the number of gathers in a backward before which another forward came"
                   : "the number of gathers in a backward",
           num_started() - num_before, is_late ? kNumLayers - (is_tied_ ? 0 : 1) : kNumLayers - 2);
    expect("the number of layers that backward computes again", num_computed_, 0);
    expect_order_of_gathers("backward", num_before, std::greater<>());
    expect_peak("forward and backward");
  }

 private:
  static constexpr std::int64_t kFewBytes = 1024;  // of activations: scalars

  int num_started() const { return comm_.recording().num_started; }

  // A unit is the longer, the later its layer is. Unit 0 may have two readers.
  template <class InOrder>
  void expect_order_of_gathers(const std::string& pass, int num_before, InOrder in_order) {
    const std::vector<StartedOperation>& gathers = comm_.recording().started;
    std::int64_t last = 0;
    for (auto i = static_cast<std::size_t>(num_before); i < gathers.size(); ++i) {
      const std::int64_t numel = gathers[i].numel;
      if (is_tied_ && numel == model_.plan().layout.units[0].numel) continue;
      if (numel == last)
        return examination_.fault(concat(what_, ": ", pass, " gathers a unit of ", numel,
                                         " elements twice, one gather after the other"));
      if (last > 0 && !in_order(last, numel))
        return examination_.fault(
            concat(what_, ": ", pass, " gathers a unit of ", numel, " elements after one of ", last,
                   ": forward goes from the first to the last, backward back"));
      last = numel;
    }
  }

  void turn(Phase phase, std::size_t layer) {
    const bool is_forward = phase == Phase::kForward;
    if (is_forward) ++num_computed_;
    const std::size_t farthest = layer > prefetch_ ? layer - prefetch_ : 1;  // never unit 0
    const std::size_t first = is_forward ? layer : farthest;
    const std::size_t end = is_forward ? std::min(layer + prefetch_, kLast) : layer;
    std::string wanted = "(";
    for (std::size_t unit = 0; unit <= kLast; ++unit) {
      const bool is_kept = is_tied_ && unit == 0 && (is_forward ? layer > 0 : layer == kLast);
      if (is_kept || (first <= unit && unit <= end)) wanted += concat(" unit", unit);
    }
    wanted += " )";
    const std::string when =
        concat("when the ", is_forward ? "forward" : "backward", " of layer ", layer, " begins, ");
    expect(when + "what is whole or on its way", whole(), wanted);
    const auto num_ahead = static_cast<int>(end > first ? end - first : 0);
    expect(when + "the number of gathers on their way", comm_.recording().num_on_their_way(),
           num_ahead);
    const std::vector<NamedTensor>& leaves = model_.leaves();
    check(has_memory(leaves[layer]) || (!is_forward && layer == 0), when, "its memory is gone");
    check(!is_tied_ || layer < kLast || has_memory(leaves[0]), when,
          "the memory of unit 0 is gone, which it reads");
  }

  std::string whole() const { return whole_of(model_.leaves()); }
  void expect_peak(const std::string& what) {
    const ShardPlan& plan = model_.plan();
    expect("the most bytes of parameters in " + what,
           read_memory().peak(MemoryCategory::kParameters) - bytes_before_,
           4 * (plan.numel + peak_whole_numel(plan.layout, static_cast<int>(prefetch_), is_tied_)));
  }
  template <class Value>
  void expect(const std::string& what, const Value& found, const Value& wanted) {
    examination_.expect(what_ + ": " + what, found, wanted);
  }

  std::string what_;
  bool is_tied_;
  std::size_t prefetch_;
  RecordingCommunicator& comm_;
  Examination& examination_;
  std::int64_t bytes_before_;
  int num_computed_ = 0;  // layers, in forward
  ShardedModel model_;
};

// Any layer may read another one's unit, not only the last one the first one's.
void check_middle_reader(Examination& examination) {
  const std::string what = "layer 2 reads unit 1, prefetch 0";
  examination.examine(what, [&](Communicator& comm) {
    const ShardedModel* built = nullptr;
    const auto on_turn = [&](Phase phase, std::size_t layer) {
      const std::string when = concat("when the ", phase == Phase::kForward ? "for" : "back",
                                      "ward of layer ", layer, " begins, ");
      const std::vector<NamedTensor>& leaves = built->leaves();
      check(has_memory(leaves[layer]) || layer == 0, when, "its memory is gone");
      check(layer != 2 || has_memory(leaves[1]), when,
            "the memory of unit 1 is gone, which it reads");
    };
    ShardedModel model(small_model(/*is_tied=*/false, on_turn, /*has_middle_reader=*/true),
                       /*prefetch=*/0, comm);
    built = &model;
    for (int step = 0; step < 2; ++step) {
      const at::Tensor loss = model.forward(at::ones({1}));
      {
        const at::NoGradGuard no_grad;
        model.forward(at::ones({1}));  // drops what was kept
      }
      loss.backward();
    }
  });
}

// With the embedding tied or not, for these numbers of units that are gathered ahead.
void check_turns(Examination& examination, bool is_tied, const std::vector<int>& prefetches) {
  const auto examine = [&](const std::string& name, int prefetch,
                           const std::function<void(Turns&)>& part) {
    if (!examination.faults().empty()) return;
    const std::string what =
        concat(is_tied ? "tied" : "untied", ", prefetch ", prefetch, ", ", name);
    examination.examine<RecordingCommunicator>(what, [&](RecordingCommunicator& comm) {
      Turns turns(what, is_tied, prefetch, comm, examination);
      part(turns);
    });
  };
  for (const int prefetch : prefetches) {
    examine("a step", prefetch, [](Turns& turns) {
      turns.backward(turns.forward());
      turns.evaluate();
      turns.forward();  // its backward never comes
      turns.backward(turns.forward());
    });
    examine("an evaluation between a forward and its backward", prefetch, [](Turns& turns) {
      const at::Tensor loss = turns.forward();
      turns.evaluate();
      turns.backward(loss, /*is_late=*/true);
    });
    examine("a forward between a forward and its backward", prefetch, [](Turns& turns) {
      const at::Tensor loss = turns.forward();
      turns.backward(turns.forward());
      turns.backward(loss, /*is_late=*/true);
    });
    examine("a frozen embedding", prefetch, [](Turns& turns) {
      turns.freeze_embedding();
      for (int step = 0; step < 2; ++step) turns.backward(turns.forward());
      turns.evaluate();
    });
  }
}

void check_others(Examination& examination) {
  if (examination.faults().empty()) check_middle_reader(examination);
  examination.examine("a negative prefetch", [&](Communicator& comm) {
    const ModelBuilder build = small_model(/*is_tied=*/false, [](Phase, std::size_t) {});
    examination.expect_error("ShardedModel with prefetch -1", {"-1"},
                             [&] { const ShardedModel model(build, -1, comm); });
  });
}

std::vector<std::string> faults_of_units(Communicator& comm) {
  UnitChecks units(comm);
  units.examine("units", &UnitChecks::come_and_go);
  units.examine("add()", &UnitChecks::refuses_strangers);
  if (!units.faults().empty()) return units.faults();
  const std::unique_ptr<Communicator> half = comm.split(comm.rank() % 2, -comm.rank());
  UnitChecks of_half(*half);
  of_half.examine("units in a group of every second rank, in reverse order",
                  &UnitChecks::come_and_go);
  return faults_of_groups(of_half.faults(), comm);
}

std::vector<std::string> faults_of_turns(Communicator& comm, const std::vector<int>& prefetches) {
  Examination examination(comm);
  check_turns(examination, /*is_tied=*/false, prefetches);
  return examination.faults();
}

std::vector<std::string> faults_of_trainings(Communicator& comm) {
  Judge judge(
      {.trainer = trainer(),
       .vary = [](TrainOptions& options,
                  int number) { options.set<PrefetchOptions>().num_units = (number + 1) % 3; }},
      comm);
  check_turns(judge, /*is_tied=*/true, {0, 1, 2, 7});
  check_others(judge);
  if (judge.faults().empty()) judge.all_cases_are_right();
  return judge.faults();
}

// Part 3, on rank 1 of four that are simulated, so that every rank of the judge sees the same: what
// it holds is summed as if all four held it. Operations are recorded, and done when the check wants.
struct Script {
  std::vector<std::string> started;
  std::vector<const void*> unread;  // slices of reduce_scatters that nobody has waited for
  std::set<std::int64_t> late;      // operations on so many elements end when waited for
  bool is_in_order = false;
  bool has_read_too_early = false;

  std::string text() const {
    std::string all;
    for (const std::string& each : started) all += (all.empty() ? "" : ", ") + each;
    return all;
  }
};

class ScriptedWork final : public Work {
 public:
  ScriptedWork(WorkPtr inner, Script& script, const Operation& operation)
      : inner_(std::move(inner)), script_(script), operation_(operation) {}
  bool test() override { return !script_.late.contains(operation_.tensor.numel()); }
  void wait() override {
    script_.late.erase(operation_.tensor.numel());
    if (operation_.has_shard()) std::erase(script_.unread, operation_.shard.const_data_ptr());
    inner_->wait();
  }

 private:
  WorkPtr inner_;
  Script& script_;
  Operation operation_;
};

class ScriptedGroup final : public ForwardingCommunicator {
 public:
  ScriptedGroup(std::unique_ptr<Communicator> inner, Script& script)
      : ForwardingCommunicator(std::move(inner)), script_(script) {}

  WorkPtr start(const Operation& operation) override {
    const void* const data = operation.tensor.const_data_ptr();
    if (!script_.is_in_order && std::ranges::count(script_.unread, data) > 0)
      script_.has_read_too_early = true;
    if (operation.kind == CommOp::kReduceScatter)
      script_.unread.push_back(operation.shard.const_data_ptr());
    script_.started.push_back(concat(to_string(operation.kind), " of ", operation.tensor.numel()));
    return std::make_unique<ScriptedWork>(inner_.start(operation), script_, operation);
  }
  std::unique_ptr<Communicator> split_by(const ColorOfRank& color_of) override {
    return std::make_unique<ScriptedGroup>(inner_.split_by(color_of), script_);
  }
  bool runs_in_order(const at::Tensor& /*tensor*/) const override { return script_.is_in_order; }

 private:
  Script& script_;
};

class ShardGroupChecks : public Examination {
 public:
  explicit ShardGroupChecks(Communicator& comm) : Examination(comm, "part 3", "shard_group.cpp") {}

  void three_sums() {
    begin();
    script_.late = {80, 120, 200};
    for (const std::int64_t numel : {80, 120, 200}) start(numel);
    const std::string within = "reduce_scatter of 80, reduce_scatter of 120, reduce_scatter of 200";
    expect_started("three sums on their way", within);
    script_.late.erase(120);
    expect("test() of the second sum, whose turn has not come", works_[1]->test(), false);
    expect_started("the first phase of the second sum is done", within);
    script_.late.erase(80);
    script_.late.insert(40);  // the all-reduce of the first sum's slice
    works_[2]->test();
    const std::string two = within + ", all_reduce of 40, all_reduce of 60";
    expect_started("the first phases of two sums are done", two);
    check(!works_[0]->test(),
          "test() of a sum whose second phase is on its way says that it is done");
    check(works_[1]->test(),
          "test() of a sum whose second phase is done says that it is on its way");
    check(!script_.has_read_too_early,
          "the second phase reads what the first phase has brought without waiting for it");
    wait_for_all("");
    expect_started("all three sums are waited for", two + ", all_reduce of 100");
  }

  void goes_on_while_others_wait() {
    begin();
    script_.late = {80};
    start(80);
    const at::Tensor full = at::ones({8});
    const WorkPtr gather = group_->all_gather(full.narrow(0, 4, 4), full);
    script_.late.clear();
    gather->wait();
    expect_started("while a gather is waited for",
                   "reduce_scatter of 80, all_gather of 8, all_reduce of 40");
    wait_for_all("");
  }

  void in_order() {
    begin();
    script_.is_in_order = true;
    script_.late = {80, 120};
    for (const std::int64_t numel : {80, 120}) start(numel);
    expect_started(
        "operations in order",
        "reduce_scatter of 80, all_reduce of 40, reduce_scatter of 120, all_reduce of 60");
    wait_for_all("");
  }

  void one_rank_for_each_copy() {
    begin(/*num_ranks=*/1);
    start(80);
    wait_for_all("one rank for each copy: ");
  }

  // On the ranks of the judge: what is summed, and what is sent.
  void real_sums(LockstepCommunicator& comm) {
    comm.pass_messages_on();
    for (int num_ranks = 1; num_ranks < comm.size(); ++num_ranks) {
      if (comm.size() % num_ranks != 0) continue;
      ShardGroup group(comm, num_ranks);
      const Traffic before = comm.traffic();
      Traffic theory;
      std::vector<at::Tensor> slices;
      std::vector<WorkPtr> works;
      for (int sum = 0; sum < 6; ++sum) {
        const std::int64_t each = 1000 * (sum % 3 + 1);
        const at::Tensor unit =
            at::full({each * num_ranks}, (sum + 1) * (comm.rank() + 1), at::kFloat);
        slices.push_back(unit.narrow(0, group.rank() * each, each));
        works.push_back(group.reduce_scatter(unit, slices.back()));
        theory += reduce_scatter_traffic(unit.numel(), 4, num_ranks, group.rank());
        theory += all_reduce_traffic(each, 4, comm.size() / num_ranks, group.copy());
      }
      for (const WorkPtr& work : works) work->wait();
      const std::string when =
          concat(num_ranks, num_ranks == 1 ? " rank" : " ranks", " for each copy: ");
      for (std::size_t sum = 0; sum < slices.size(); ++sum) {
        const double wanted = static_cast<double>(sum + 1) * comm.size() * (comm.size() + 1) / 2;
        expect(when + "a slice after its sum", slices[sum], at::full_like(slices[sum], wanted));
      }
      Traffic sent = comm.traffic();
      sent -= before;
      check(sent == theory, when, "six sums send ", sent.bytes_sent(), " bytes in ",
            num_messages(sent), " messages, not ", theory.bytes_sent(), " in ",
            num_messages(theory));
    }
  }

 private:
  static constexpr int kRank = 1, kNumRanks = 4;

  static std::int64_t num_messages(const Traffic& traffic) {
    return traffic[CommOp::kReduceScatter].messages + traffic[CommOp::kAllReduce].messages;
  }

  void begin(int num_ranks = 2) {
    script_ = {};
    works_.clear();
    units_.clear();
    group_ = std::make_unique<ShardGroup>(world_, num_ranks);
  }

  // Of as many elements, each of which is 3.
  void start(std::int64_t numel) {
    units_.push_back(at::full({numel}, 3.0));
    const std::int64_t each = numel / group_->size();
    works_.push_back(group_->reduce_scatter(units_.back(),
                                            units_.back().narrow(0, group_->rank() * each, each)));
  }

  void wait_for_all(const std::string& when) {
    for (std::size_t i = works_.size(); i-- > 0;) works_[i]->wait();
    for (const at::Tensor& unit : units_) {
      const std::int64_t each = unit.numel() / group_->size();
      const at::Tensor slice = unit.narrow(0, group_->rank() * each, each);
      expect(when + "a slice after its sum", slice[0].item<double>(), 3.0 * kNumRanks);
    }
  }

  void expect_started(const std::string& when, const std::string& wanted) {
    expect(concat(when, when.starts_with("while") ? ", " : ": ", "what has been started"),
           script_.text(), wanted);
  }

  Script script_;
  ScriptedGroup world_{std::make_unique<SimulatedCommunicator>(kRank, kNumRanks), script_};
  std::vector<at::Tensor> units_;
  std::unique_ptr<ShardGroup> group_;
  std::vector<WorkPtr> works_;
};

std::vector<std::string> faults_of_shard_groups(Communicator& comm) {
  ShardGroupChecks checks(comm);
  checks.examine("sums on their way", &ShardGroupChecks::three_sums);
  checks.examine("a gather meanwhile", &ShardGroupChecks::goes_on_while_others_wait);
  checks.examine("a stream", &ShardGroupChecks::in_order);
  checks.examine("whole copies", &ShardGroupChecks::one_rank_for_each_copy);
  checks.examine("real sums", &ShardGroupChecks::real_sums);
  return checks.faults();
}

// Of a model that is deeper than those of the checks.
Target peak_of_whole_units(Communicator& comm) {
  constexpr int kPrefetch = 1;
  TrainOptions options;
  options.model.layers = 12;
  ShardedModel model(model_builder(options), kPrefetch, comm);
  const std::int64_t before = read_memory().live(MemoryCategory::kParameters);
  reset_memory_peaks();
  model.forward(at::zeros({1, 8}, at::kLong)).sum().backward();
  const FlatLayout& layout = model.plan().layout;
  const auto bytes = [](std::int64_t numel) { return static_cast<double>(4 * numel); };
  return {
      .found = static_cast<double>(read_memory().peak(MemoryCategory::kParameters) - before),
      .solution = bytes(peak_whole_numel(layout, kPrefetch, options.model.tie_embeddings)),
      .naive = bytes(layout.numel),
      .what = " bytes of whole units at most, in a step with 12 blocks and --prefetch 1",
      .naive_is = "all units stay whole",
      .hint = "is a unit dropped as soon as its layer is done, and before the next is gathered?"};
}

}  // namespace
}  // namespace step7

std::vector<std::string> judge_linked(Communicator& comm) {
  install_memory_ledger();
  return faults_in_levels(
      {{"the memory of units", [&] { return step7::faults_of_units(comm); }},
       {"no prefetch, untied", [&] { return step7::faults_of_turns(comm, {0}); }},
       {"prefetch",
        [&] {
          return step7::faults_of_turns(comm, {1, 2, 7});
        }},
       {"a tied embedding, and trainings", [&] { return step7::faults_of_trainings(comm); }},
       {"hybrid sharding", [&] { return step7::faults_of_shard_groups(comm); }}});
}

std::vector<Target> measure_linked(Communicator& comm) {
  install_memory_ledger();
  return {step7::peak_of_whole_units(comm)};
}

}  // namespace ladder
