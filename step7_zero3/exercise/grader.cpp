#include "step7_zero3/exercise/grader.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/core/memory_ledger.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step6_zero2/gradient_sharder.hpp"
#include "step7_zero3/exercise/parameter_watch.hpp"
#include "step7_zero3/exercise/wanted.hpp"
#include "step7_zero3/exercise/whole_model.hpp"

namespace ladder::step7 {
namespace {

constexpr std::uint64_t kSeed = 3;
constexpr std::int64_t kNumMicrobatches = 2;

std::int64_t parameter_bytes() {
  return read_memory().live(MemoryCategory::kParameters);
}

// An attempt, and the model in one piece that it must equal.
struct Pair {
  Pair(const WholeModel& the_whole, const MakeModel& attempt, int prefetch, Communicator& comm)
      : whole(the_whole),
        bytes_before(parameter_bytes()),
        gpt(attempt(gpt_builder(whole.options(), kSeed), prefetch, comm)),
        wanted{gpt.plan.layout, whole.options().tie_embeddings, prefetch} {}
  // Of parameters, beside this rank's shard.
  std::int64_t whole_bytes() const { return parameter_bytes() - bytes_before - shard_bytes(); }
  std::int64_t peak_bytes() const {
    return read_memory().peak(MemoryCategory::kParameters) - bytes_before - shard_bytes();
  }
  std::int64_t shard_bytes() const { return 4 * gpt.plan.numel; }

  const WholeModel& whole;
  std::int64_t bytes_before;
  ModelAttempt gpt;
  Wanted wanted;
};

class Grade : public Examination {
 public:
  Grade(const MakeModel& attempt, Communicator& comm) : Examination(comm), attempt_(attempt) {}

  // Two microbatches, forward and backward.
  void a_step(bool is_tied, int prefetch) {
    examine_model("a step", is_tied, prefetch, [&](RecordingCommunicator& comm) {
      const Pair pair(whole_model(is_tied), attempt_, prefetch, comm);
      const auto& [whole, bytes_before, gpt, wanted] = pair;
      expect("the number of collectives that the constructor calls", comm.calls().size(),
             std::size_t{0});
      expect_bytes("when it has been made", pair.whole_bytes(), 0);
      GradientSharder sharder(gpt.plan, gpt.leaves, comm);
      const Traffic traffic_before = comm.traffic();
      sharder.arm(kNumMicrobatches);
      for (std::int64_t j = 0; j < kNumMicrobatches; ++j) {
        comm.forget();
        reset_memory_peaks();
        const at::Tensor tokens = whole.tokens(comm.rank(), j);
        const at::Tensor logits = [&] {
          const ParameterWatch watch = watch_turns(pair, comm, Phase::kForward);
          return gpt.forward(tokens);
        }();
        expect("the logits", logits, whole.logits(tokens));
        expect_bytes("after a forward", pair.whole_bytes(), wanted.bytes_after_forward());
        {
          const ParameterWatch watch = watch_turns(pair, comm, Phase::kBackward);
          whole.loss(logits, tokens).backward();
        }
        expect_bytes("after a backward", pair.whole_bytes(), 0);
        expect_bytes("at the most", pair.peak_bytes(), wanted.peak_bytes());
        expect_gathers("a microbatch", pair, comm, wanted.gathered_units(/*has_backward=*/true));
      }
      sharder.wait();
      expect("the gradient shard", sharder.grad_shard(),
             whole.grad_shard(gpt.plan, kNumMicrobatches));
      Traffic sent = comm.traffic();
      sent -= traffic_before;
      Traffic theory = wanted.microbatch_traffic(comm.size(), comm.rank());
      theory *= kNumMicrobatches;
      expect(concat("the number of bytes that a step of ", kNumMicrobatches, " microbatches sends"),
             sent.bytes_sent(), theory.bytes_sent());
      if (sent != theory && sent.bytes_sent() == theory.bytes_sent())
        fault(model_ + "a step calls something else than all_gathers and reduce_scatters of units");
    });
  }

  // As an evaluation runs it.
  void a_forward_without_gradients(bool is_tied, int prefetch) {
    examine_model(
        "a forward without gradients", is_tied, prefetch, [&](RecordingCommunicator& comm) {
          const at::NoGradGuard no_grad;
          const Pair pair(whole_model(is_tied), attempt_, prefetch, comm);
          const at::Tensor tokens = pair.whole.tokens(comm.rank(), 0);
          expect("the logits without gradients", forward(pair, tokens), pair.whole.logits(tokens));
          expect_bytes("after a forward without gradients, which no backward follows,",
                       pair.whole_bytes(), 0);
          expect_gathers("it", pair, comm, pair.wanted.gathered_units(/*has_backward=*/false));
        });
  }

  // An evaluation between a forward and its backward: it drops all units, also what the forward
  // kept.
  void a_forward_in_between(bool is_tied, int prefetch) {
    examine_model("an evaluation between a forward and its backward", is_tied, prefetch,
                  [&](RecordingCommunicator& comm) {
                    const Pair pair(whole_model(is_tied), attempt_, prefetch, comm);
                    const auto& [whole, bytes_before, gpt, wanted] = pair;
                    GradientSharder sharder(gpt.plan, gpt.leaves, comm);
                    const at::Tensor tokens = whole.tokens(comm.rank(), 0);
                    sharder.arm(1);
                    const at::Tensor logits = forward(pair, tokens);
                    comm.forget();
                    evaluate(pair);
                    expect_gathers("an evaluation between a forward and its backward", pair, comm,
                                   wanted.gathered_units(/*has_backward=*/false));
                    comm.forget();
                    backward(pair, logits, tokens);
                    sharder.wait();
                    std::vector<std::int64_t> gathered = units_of(pair, comm);
                    std::sort(gathered.begin(), gathered.end());
                    expect(
                        "what backward gathers, in no order, when an evaluation has come between,",
                        wanted.names(gathered), wanted.names(wanted.units_read_in_backward()));
                    expect("the gradient shard when an evaluation has come between",
                           sharder.grad_shard(), whole.grad_shard(gpt.plan, 1));
                  });
  }

  // Its output needs no gradient: it takes no hook, and nobody says that backward is over.
  void a_frozen_embedding() {
    examine_model("a frozen embedding", /*is_tied=*/false, 1, [&](RecordingCommunicator& comm) {
      const WholeModel whole(shape(/*is_tied=*/false), kSeed);
      const Pair pair(whole, attempt_, 1, comm);
      const ModelAttempt& gpt = pair.gpt;
      for (const std::size_t t : {std::size_t{0}, std::size_t{1}}) {
        gpt.leaves[t].tensor.set_requires_grad(false);
        whole.leaves()[t].tensor.set_requires_grad(false);
      }
      const at::Tensor tokens = whole.tokens(comm.rank(), 0);
      backward(pair, forward(pair, tokens), tokens);
      expect("the gradient with a frozen embedding", take_gradient(gpt.leaves, gpt.plan.layout),
             whole.gradient(gpt.plan.layout, comm.rank(), 0));
      evaluate(pair);
      expect_bytes("after the next forward", pair.whole_bytes(), 0);
    });
  }

  void a_negative_prefetch() {
    examine_model("a negative prefetch", /*is_tied=*/true, -1, [&](RecordingCommunicator& comm) {
      expect_error("ShardedModel with prefetch -1", {"prefetch is -1"},
                   [&] { attempt_(gpt_builder(shape(/*is_tied=*/true), kSeed), -1, comm); });
    });
  }

 private:
  const WholeModel& whole_model(bool is_tied) const { return is_tied ? tied_ : untied_; }
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
  void examine_model(const char* what, bool is_tied, int prefetch, Part part) {
    if (!faults().empty()) return;
    model_ = concat(is_tied ? "tied" : "untied", ", prefetch ", prefetch, ": ");
    examine<RecordingCommunicator>(model_ + what, [&](RecordingCommunicator& comm) {
      comm.record_only(CommOp::kAllGather);
      part(comm);
    });
  }

  template <class Value>
  void expect(const std::string& what, const Value& found, const Value& wanted) {
    Examination::expect(model_ + what, found, wanted);
  }
  void expect_bytes(const std::string& when, std::int64_t found, std::int64_t wanted) {
    expect(concat("the number of bytes of parameters beside the shard ", when), found, wanted);
  }

  // While it lives: is what is read there?
  template <class OnRead>
  ParameterWatch watch_reads(const Pair& pair, Phase phase, OnRead on_read) {
    return {pair.gpt.leaves, pair.gpt.plan.layout,
            [this, &wanted = pair.wanted, phase, turns = Turns(pair.wanted, phase),
             on_read](const ParameterWatch::Read& read) mutable {
              const auto unit = static_cast<std::int64_t>(read.unit);
              const std::int64_t turn = turns.of_read(unit);
              if (read.is_gone) {
                fault(concat(model_, "the ", to_string(phase), " of ", wanted.name(turn),
                             " reads memory that is gone",
                             turn == unit ? "" : ": the tied weight, in the embedding's unit"));
              }
              on_read(turn);
            }};
  }
  ParameterWatch watch_reads(const Pair& pair, Phase phase) {
    return watch_reads(pair, phase, [](std::int64_t /*turn*/) {});
  }
  // And at the first read of each turn: what has been gathered, and what is whole by then?
  ParameterWatch watch_turns(const Pair& pair, const RecordingCommunicator& comm, Phase phase) {
    std::set<std::int64_t> seen;
    return watch_reads(pair, phase, [this, &pair, &comm, phase, seen](std::int64_t turn) mutable {
      if (!seen.insert(turn).second) return;
      const std::string when =
          concat("when the ", to_string(phase), " of ", pair.wanted.name(turn), " begins");
      expect("the number of gathers that have been started " + when,
             static_cast<std::int64_t>(comm.recording().started.size()),
             pair.wanted.num_started(phase, turn));
      expect("the number of gathers that have been waited for " + when,
             std::int64_t{comm.recording().num_waited_for}, pair.wanted.num_arrived(phase, turn));
      // Where there is less, a read will say it.
      const std::int64_t wanted_bytes = pair.wanted.whole_bytes(phase, turn);
      expect_bytes(when, std::max(pair.whole_bytes(), wanted_bytes), wanted_bytes);
    });
  }
  at::Tensor forward(const Pair& pair, const at::Tensor& tokens) {
    const ParameterWatch watch = watch_reads(pair, Phase::kForward);
    return pair.gpt.forward(tokens);
  }
  void backward(const Pair& pair, const at::Tensor& logits, const at::Tensor& tokens) {
    const ParameterWatch watch = watch_reads(pair, Phase::kBackward);
    pair.whole.loss(logits, tokens).backward();
  }
  void evaluate(const Pair& pair) {
    const at::NoGradGuard no_grad;
    forward(pair, pair.whole.tokens(comm_.rank(), 1));
  }

  static std::vector<std::int64_t> units_of(const Pair& pair, const RecordingCommunicator& comm) {
    const UnitOfStorage units = units_of_storages(pair.gpt.leaves, pair.gpt.plan.layout);
    std::vector<std::int64_t> gathered;
    for (const StartedOperation& gather : comm.recording().started) {
      const auto unit = units.find(gather.storage);
      gathered.push_back(unit == units.end() ? -1 : static_cast<std::int64_t>(unit->second));
    }
    return gathered;
  }
  void expect_gathers(const std::string& what, const Pair& pair, const RecordingCommunicator& comm,
                      const std::vector<std::int64_t>& units) {
    expect("what " + what + " gathers, in this order,", pair.wanted.names(units_of(pair, comm)),
           pair.wanted.names(units));
  }

  const MakeModel& attempt_;
  const WholeModel untied_ = WholeModel(shape(/*is_tied=*/false), kSeed);
  const WholeModel tied_ = WholeModel(shape(/*is_tied=*/true), kSeed);
  std::string model_;
};

}  // namespace

std::vector<std::string> grade(const MakeModel& attempt, Communicator& comm) {
  install_memory_ledger();
  Grade grade(attempt, comm);
  for (const bool is_tied : {false, true}) grade.a_step(is_tied, /*prefetch=*/0);
  for (const bool is_tied : {false, true}) {
    grade.a_forward_without_gradients(is_tied, /*prefetch=*/1);
    grade.a_forward_in_between(is_tied, /*prefetch=*/1);
  }
  grade.a_step(/*is_tied=*/false, /*prefetch=*/1);
  grade.a_step(/*is_tied=*/true, /*prefetch=*/2);
  grade.a_frozen_embedding();
  grade.a_negative_prefetch();
  return grade.faults();
}

}  // namespace ladder::step7
