#include "step7_zero3/exercise/grader.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/comm/traffic_theory.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/examination.hpp"
#include "step6_zero2/gradient_sharder.hpp"
#include "step6_zero2/sharder_cost.hpp"
#include "step7_zero3/exercise/parameter_watch.hpp"
#include "step7_zero3/exercise/recording_communicator.hpp"
#include "step7_zero3/exercise/whole_gpt.hpp"
#include "step7_zero3/peak.hpp"

namespace ladder::step7 {
namespace {

constexpr std::uint64_t kSeed = 3;
constexpr std::int64_t kNumMicrobatches = 2;

enum class Phase { kForward, kBackward };
const char* to_string(Phase phase) {
  return phase == Phase::kForward ? "forward" : "backward";
}

std::int64_t parameter_bytes() {
  return read_memory().live(MemoryCategory::kParameters);
}

// What the units' order, the prefetch and the kept units make of one microbatch. Units are gathered
// in the order in which they are computed with, whatever the prefetch is: forward from 0 to last,
// backward from last - 1 to 1.
struct Wanted {
  const FlatLayout& layout;
  bool is_tied;
  std::int64_t prefetch;
  std::int64_t last = static_cast<std::int64_t>(layout.units.size()) - 1;

  const std::string& name(std::int64_t unit) const {
    return layout.units[static_cast<std::size_t>(unit)].name;
  }
  std::int64_t bytes(std::int64_t unit) const {
    return 4 * layout.units[static_cast<std::size_t>(unit)].numel;
  }

  std::vector<std::int64_t> gathered_units(bool has_backward) const {
    std::vector<std::int64_t> units;
    for (std::int64_t u = 0; u <= last; ++u) units.push_back(u);
    for (std::int64_t u = last - 1; has_backward && u >= 1; --u) units.push_back(u);
    return units;
  }
  // When a unit's turn has come.
  std::int64_t num_arrived(Phase phase, std::int64_t unit) const {
    return phase == Phase::kForward ? unit + 1 : last + 1 + (last - unit);
  }
  std::int64_t num_started(Phase phase, std::int64_t unit) const {
    if (phase == Phase::kForward) return std::min(unit + prefetch, last) + 1;
    return last + 1 + (last - std::max<std::int64_t>(unit - prefetch, 1));
  }
  std::int64_t bytes_after_forward() const { return bytes(last) + (is_tied ? bytes(0) : 0); }
  std::int64_t peak_bytes() const {
    return 4 * peak_whole_numel(layout, static_cast<int>(prefetch), is_tied);
  }

  Traffic step_traffic(int world_size, int rank) const {
    Traffic traffic = sharder_traffic(layout, world_size, rank);
    for (const std::int64_t unit : gathered_units(/*has_backward=*/true))
      traffic += all_gather_traffic(bytes(unit) / 4, 4, world_size, rank);
    return traffic *= kNumMicrobatches;
  }
};

class Grade : public Examination {
 public:
  Grade(const MakeGpt& attempt, Communicator& comm) : Examination(comm), attempt_(attempt) {}

  // Two microbatches, forward and backward.
  void a_step(bool is_tied, int prefetch) {
    examine_gpt("a step", is_tied, prefetch, [&](RecordingCommunicator& comm) {
      const WholeGpt whole(shape(is_tied), kSeed);
      const std::int64_t before = parameter_bytes();
      const GptAttempt gpt = attempt_(shape(is_tied), kSeed, prefetch, comm);
      const Wanted wanted = {gpt.plan.layout, is_tied, prefetch};
      const std::int64_t shard_bytes = before + 4 * gpt.plan.numel;
      expect_bytes("when it has been made", parameter_bytes() - shard_bytes, 0);
      GradientSharder sharder(gpt.plan, gpt.leaves, comm);
      const Traffic traffic_before = comm.traffic();
      sharder.arm(kNumMicrobatches);
      for (std::int64_t j = 0; j < kNumMicrobatches; ++j) {
        comm.forget();
        reset_memory_peaks();
        Phase phase = Phase::kForward;
        const ParameterWatch watch = watch_reads(gpt, wanted, comm, phase);
        const at::Tensor tokens = whole.tokens(comm.rank(), j);
        const at::Tensor logits = gpt.forward(tokens);
        expect("the logits", logits, [&] {
          const at::NoGradGuard no_grad;
          return whole.model().forward(tokens);
        }());
        expect_bytes("after a forward", parameter_bytes() - shard_bytes,
                     wanted.bytes_after_forward());
        phase = Phase::kBackward;
        whole.loss(logits, tokens).backward();
        expect_bytes("after a backward", parameter_bytes() - shard_bytes, 0);
        expect_bytes("at the most", read_memory().peak(MemoryCategory::kParameters) - shard_bytes,
                     wanted.peak_bytes());
        expect_gathers(gpt, wanted, comm.recording(), /*has_backward=*/true);
      }
      sharder.wait();
      expect("the gradient shard", sharder.grad_shard(),
             whole.grad_shard(gpt.plan, kNumMicrobatches));
      Traffic sent = comm.traffic();
      sent -= traffic_before;
      const Traffic theory = wanted.step_traffic(comm.size(), comm.rank());
      expect(concat("the number of bytes that a step of ", kNumMicrobatches, " microbatches sends"),
             sent.bytes_sent(), theory.bytes_sent());
      if (sent != theory && sent.bytes_sent() == theory.bytes_sent())
        fault(model_ + "a step calls something else than all_gathers and reduce_scatters of units");
    });
  }

  // As an evaluation runs it.
  void a_forward_without_gradients(bool is_tied, int prefetch) {
    examine_gpt("a forward", is_tied, prefetch, [&](RecordingCommunicator& comm) {
      const at::NoGradGuard no_grad;
      const WholeGpt whole(shape(is_tied), kSeed);
      const std::int64_t before = parameter_bytes();
      const GptAttempt gpt = attempt_(shape(is_tied), kSeed, prefetch, comm);
      const Wanted wanted = {gpt.plan.layout, is_tied, prefetch};
      Phase phase = Phase::kForward;
      const ParameterWatch watch = watch_reads(gpt, wanted, comm, phase);
      const at::Tensor tokens = whole.tokens(comm.rank(), 0);
      expect("the logits without gradients", gpt.forward(tokens), whole.model().forward(tokens));
      expect_bytes("after a forward without gradients, which no backward follows,",
                   parameter_bytes() - before - 4 * gpt.plan.numel, 0);
      expect_gathers(gpt, wanted, comm.recording(), /*has_backward=*/false);
    });
  }

 private:
  // An odd width, and units of several lengths: who gathers another one than the others is seen to.
  static GptOptions shape(bool is_tied) {
    return {.vocab_size = 450,
            .context = 100,
            .layers = 3,
            .heads = 2,
            .channels = 20,
            .tie_embeddings = is_tied};
  }

  template <class Part>
  void examine_gpt(const char* what, bool is_tied, int prefetch, Part part) {
    if (!faults().empty()) return;
    model_ = concat(is_tied ? "tied" : "untied", ", prefetch ", prefetch, ": ");
    examine<RecordingCommunicator>(model_ + what, part);
  }

  template <class Value>
  void expect(const std::string& what, const Value& found, const Value& wanted) {
    Examination::expect(model_ + what, found, wanted);
  }
  void expect_bytes(const std::string& when, std::int64_t found, std::int64_t wanted) {
    expect(concat("the number of bytes of parameters beside the shard ", when), found, wanted);
  }

  // The first time that a unit's parameters are read: what has been gathered by then?
  ParameterWatch watch_reads(const GptAttempt& gpt, const Wanted& wanted,
                             const RecordingCommunicator& comm, const Phase& phase) {
    std::set<std::pair<Phase, std::size_t>> seen;
    return {
        gpt.leaves, gpt.plan.layout,
        [this, &wanted, &comm, &phase, seen](const ParameterWatch::Read& read) mutable {
          const auto unit = static_cast<std::int64_t>(read.unit);
          const std::string turn = concat(to_string(phase), " of ", wanted.name(unit));
          if (read.is_gone) fault(concat(model_, "the ", turn, " reads memory that is gone"));
          const bool is_of_head = unit == 0 && phase == Phase::kBackward;  // a tied weight
          if (is_of_head || !seen.insert({phase, read.unit}).second) return;
          expect(concat("the number of gathers that have been started when the ", turn, " begins"),
                 static_cast<std::int64_t>(comm.recording().gathered.size()),
                 wanted.num_started(phase, unit));
          expect(
              concat("the number of gathers that have been waited for when the ", turn, " begins"),
              std::int64_t{comm.recording().num_waited_for}, wanted.num_arrived(phase, unit));
        }};
  }

  void expect_gathers(const GptAttempt& gpt, const Wanted& wanted, const Recording& recording,
                      bool has_backward) {
    const UnitOfStorage units = units_of_storages(gpt.leaves, gpt.plan.layout);
    std::string found, planned;
    for (const c10::StorageImpl* const storage : recording.gathered) {
      const auto unit = units.find(storage);
      found += unit == units.end() ? "(what is no unit) "
                                   : wanted.name(static_cast<std::int64_t>(unit->second)) + " ";
    }
    for (const std::int64_t unit : wanted.gathered_units(has_backward))
      planned += wanted.name(unit) + " ";
    expect("what a microbatch gathers, in this order,", "( " + found + ")", "( " + planned + ")");
  }

  const MakeGpt& attempt_;
  std::string model_;
};

}  // namespace

std::vector<std::string> grade(const MakeGpt& attempt, Communicator& comm) {
  install_memory_ledger();
  Grade grade(attempt, comm);
  for (const int prefetch : {0, 1, 2}) {
    for (const bool is_tied : {false, true}) grade.a_step(is_tied, prefetch);
  }
  for (const bool is_tied : {false, true}) grade.a_forward_without_gradients(is_tied, 1);
  return grade.faults();
}

}  // namespace ladder::step7
