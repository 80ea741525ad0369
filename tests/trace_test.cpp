// --trace: what the lessons claim about time is read off the file that it writes.
//
// Whether something is in flight during a span does not depend on how fast this machine is: an
// operation begins and ends where the program starts it and asks for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cmake/trainers.hpp"
#include "common/core/check.hpp"
#include "common/core/stop_signal.hpp"
#include "common/testing/parse_options.hpp"
#include "common/testing/process_test.hpp"
#include "common/train/run_main.hpp"
#include "common/train/sends.hpp"
#include "common/train/theory.hpp"
#include "step0_single_gpu/train.hpp"
#include "step3_naive_dp/train.hpp"
#include "step4_bucketed_ddp/train.hpp"
#include "step7_zero3/train.hpp"
#include "step8_pipeline_ga/train.hpp"
#include "step9_diloco/train.hpp"
#include "tests/trace_reader.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const std::string kSmallModel = "--layers 3 --heads 2 --channels 32 --context 32 --quiet ";
const std::string kTwoRanks = "--transport threads --ranks 2 ";

class TraceTest : public ProcessTest {
 protected:
  // A run of the small model in this process, its ranks being threads. Returns the exit code.
  int run(const Trainer& trainer, const std::string& options, bool is_new = true) {
    std::vector<std::string> line =
        words(concat(trainer.step, " ", kSmallModel, "--out ", one_word(out_), " ", options));
    std::vector<char*> arguments;
    for (std::string& word : line) arguments.push_back(word.data());
    if (is_new) fs::remove_all(out_);
    ::testing::internal::CaptureStderr();
    const int code = run_main(static_cast<int>(arguments.size()), arguments.data(), trainer);
    errors_ = ::testing::internal::GetCapturedStderr();
    return code;
  }
  static std::string traced_to(const std::string& file) { return " --trace " + one_word(file); }
  // Trains with --trace.
  Trace traced(const Trainer& trainer, const std::string& options,
               const std::string& ranks = kTwoRanks, int exit_code = kExitDone) {
    fs::remove(file_);
    EXPECT_EQ(run(trainer, ranks + options + traced_to(file_)), exit_code) << errors_;
    const Trace trace = checked_trace();
    EXPECT_EQ(trace.about["step"], trainer.step);
    return trace;
  }
  // What must hold for any trace is checked.
  Trace checked_trace() const {
    const Trace trace = read_trace(file_);
    EXPECT_EQ(what_is_wrong_with(trace), "");
    expect_traffic_of_report(trace);
    return trace;
  }
  // The slices of operations say how many bytes each rank has sent in its steps, kind by kind.
  void expect_traffic_of_report(const Trace& trace) const {
    const Json traffic = report_of()["traffic"];
    for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
      const RankTrace& own = trace.ranks[rank];
      TraceSlices counted = own.spans_named("step");
      for (const TraceSlice& span : own.spans_named("share the log")) counted.push_back(span);
      std::map<std::string, std::int64_t> bytes;
      for (const TraceSlice& operation : own.operations) {
        const bool is_counted = std::any_of(counted.begin(), counted.end(), [&](const auto& span) {
          return span.begin_ns <= operation.begin_ns && operation.begin_ns < span.end_ns;
        });
        if (is_counted) bytes[operation.text("kind")] += operation.number("sent_bytes");
      }
      for (const auto& [kind, sent] : traffic[rank].items())
        EXPECT_EQ(bytes[kind], sent["bytes_sent"].get<std::int64_t>()) << rank << " " << kind;
    }
  }

  const std::string out_ = folder_.path("run"), file_ = folder_.path("traces/trace.json");
  std::string errors_;
};

int num_meeting(const TraceSlices& slices, const TraceSlice& other) {
  return static_cast<int>(std::count_if(slices.begin(), slices.end(),
                                        [&](const auto& slice) { return slice.meets(other); }));
}

// ---- any step ----------------------------------------------------------------------------------

TEST_F(TraceTest, EveryStepHasOne) {
  for (const Trainer& trainer : trainers()) {
    if (trainer.role == RankRole::kAlone) continue;
    SCOPED_TRACE(trainer.step);
    const std::string round = trainer.role == RankRole::kWorker ? " --sync-every 2" : "";
    const Trace trace =
        traced(trainer, "--steps 2 --num-microbatches 3 --eval-every 2 --eval-samples 8" + round);
    ASSERT_THAT(trace.ranks, SizeIs(2));
    for (const RankTrace& rank : trace.ranks) {
      EXPECT_THAT(rank.spans_named("step"), SizeIs(2));
      EXPECT_THAT(rank.spans_named("read data"), SizeIs(Ge(2u)));
      EXPECT_THAT(rank.spans_named("forward"), SizeIs(Ge(6u)));  // those of evaluations are like it
      EXPECT_THAT(rank.spans_named("backward"), SizeIs(6));
      EXPECT_THAT(rank.spans_named("optimizer step"), SizeIs(2));
      EXPECT_THAT(rank.spans_named("evaluate"), SizeIs(1));
      EXPECT_THAT(rank.spans_named("save"), SizeIs(1));
      // Within a backward it shows which layer autograd has come to.
      const TraceSlice backward = rank.spans_named("backward").at(0);
      const auto is_layer_of_it = [&](const TraceSlice& span) {
        return span.name.starts_with("block") && backward.is_around(span);
      };
      EXPECT_GE(std::count_if(rank.spans.begin(), rank.spans.end(), is_layer_of_it), 1);
      EXPECT_THAT(rank.waits, Not(IsEmpty()));
    }
  }
}

// ---- what cost cards say -----------------------------------------------------------------------

// An operation of a step, and where in the step it starts: "start", "forward of layer 2" …
struct Sent {
  std::string kind, where;
  std::int64_t bytes = 0;

  bool operator==(const Sent&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Sent& sent) {
    return out << sent.kind << " of " << sent.bytes << " bytes at " << sent.where << "\n";
  }
};

// As a step's cost card says it.
class PlannedStep {
 public:
  PlannedStep(const Trainer& trainer, const TrainOptions& options, int world_size, int rank)
      : sends_(trainer.sends(options, full_step(options), world_size, rank)), rank_(rank) {
    const int num_layers = static_cast<int>(options.model.layers) + 2;
    add(StepPhase::kStart, 0, "start", true);
    for (std::int64_t left = options.data.num_microbatches; left > 0; --left) {
      for (int layer = 0; layer < num_layers; ++layer)
        for (const auto phase : {StepPhase::kBeforeForward, StepPhase::kAfterForward})
          add(phase, layer, concat("forward of layer ", layer), left == 1);
      for (int layer = num_layers - 1; layer >= 0; --layer)
        for (const auto phase : {StepPhase::kBeforeBackward, StepPhase::kAfterBackward})
          add(phase, layer, concat("backward of layer ", layer), left == 1);
    }
    add(StepPhase::kGradients, 0, "gradients", true);
    add(StepPhase::kUpdated, 0, "updated", true);
    add(StepPhase::kEnd, 0, "end", true);
  }
  std::vector<Sent> all;

 private:
  void add(StepPhase phase, int layer, const std::string& where, bool is_last_microbatch) {
    for (Send send : sends_) {
      if (send.phase != phase || send.layer != layer) continue;
      const bool is_each_microbatch = std::exchange(send.times, 1) > 1;
      if (!is_each_microbatch && !is_last_microbatch) continue;
      const Traffic once = traffic_of({send}, rank_);
      all.push_back({to_string(send.operation), where, once[send.operation].bytes_sent});
    }
  }

  std::vector<Send> sends_;
  int rank_;
};

// Read off the spans that have begun when an operation starts.
std::string where_is(const TraceSlice& operation, const RankTrace& rank, const TraceSlice& step) {
  std::string where = "start";
  int num_layers_begun = 0, last_layer = 0;
  for (const TraceSlice& span : rank.spans) {
    if (!step.is_around(span) || span.begin_ns > operation.begin_ns) continue;
    if (span.name == "forward" || span.name == "backward") {
      where = span.end_ns > operation.begin_ns ? span.name : "gradients";
      num_layers_begun = 0;
    } else if (span.name == "optimizer step") {
      where = "updated";
    } else if ((span.name == "norm" || span.name == "sum of numbers") && where == "updated") {
      where = "end";
    } else if (span.name == "embedding" || span.name == "head" || span.name.starts_with("block")) {
      ++num_layers_begun;
      last_layer = span.name == "embedding" ? 0 : span.name == "head" ? 4 : span.name[5] - '0' + 1;
    }
  }
  // What is sent in forward is needed by the layer that comes next.
  if (where == "forward") where += concat(" of layer ", num_layers_begun);
  if (where == "backward") where += concat(" of layer ", last_layer);
  return where;
}

TEST_F(TraceTest, OperationsComeInTheOrderOfTheCostCard) {
  const std::string batch = "--num-microbatches 2 --layers 3 --heads 2 --channels 32 --context 32";
  for (const Trainer& trainer : trainers()) {
    if (trainer.role != RankRole::kReplica) continue;
    SCOPED_TRACE(trainer.step);
    std::string own = trainer.step == "step4_bucketed_ddp" ? " --bucket-mb 0.02" : "";
    if (trainer.step == "step7_zero3") own = " --prefetch 2";
    const Trace trace = traced(trainer, "--steps 2 " + batch + own);
    std::vector<const char*> line;
    const std::vector<std::string> given = words(batch + own);
    for (const std::string& word : given) line.push_back(word.c_str());
    const TrainOptions options = parse_words(trainer, line).options;
    for (int r = 0; r < 2; ++r) {
      const RankTrace& rank = trace.ranks[static_cast<std::size_t>(r)];
      const TraceSlice step = rank.spans_named("step").at(1);
      std::vector<Sent> found;
      for (const TraceSlice& operation : rank.operations) {
        if (step.begin_ns <= operation.begin_ns && operation.begin_ns < step.end_ns)
          found.push_back({operation.text("kind"), where_is(operation, rank, step),
                           operation.number("sent_bytes")});
      }
      EXPECT_THAT(found, ::testing::ElementsAreArray(PlannedStep(trainer, options, 2, r).all));
    }
  }
}

TEST_F(TraceTest, ChangesNoBitAndNoMemory) {
  const std::string options = "--steps 3 --num-microbatches 2";
  for (const Trainer& trainer : {step0::trainer(), step4::trainer(), step7::trainer()}) {
    SCOPED_TRACE(trainer.step);
    const std::string ranks = trainer.step == step0::trainer().step ? std::string() : kTwoRanks;
    traced(trainer, options + " --check-collectives 60", ranks);
    const Json with = report_of();
    EXPECT_EQ(run(trainer, ranks + options), kExitDone) << errors_;
    const Json without = report_of();
    for (const char* key : {"param_hash", "losses", "grad_norms", "param_norms", "traffic"})
      EXPECT_EQ(with[key], without[key]) << key;
    if (!ranks.empty()) continue;  // threads share their memory
    for (const auto& [key, bytes] : without["memory"][0].items())
      if (!key.starts_with("resident")) {
        EXPECT_EQ(with["memory"][0][key], bytes) << key;
      }
  }
}

// A run that fails before its first step leaves no empty file behind, which would be refused the
// next time.
TEST_F(TraceTest, SaysBeforeTrainingThatAFileCannotBe) {
  const std::string old = folder_.write("old.json", "{}"), inside = old + "/trace.json";
  EXPECT_EQ(run(step0::trainer(), traced_to(old)), kExitUsage);
  EXPECT_THAT(errors_, AllOf(HasSubstr("--trace " + old), HasSubstr("already exists")));
  EXPECT_EQ(read_text_file(old), "{}");
  EXPECT_EQ(run(step0::trainer(), traced_to(inside)), kExitError);
  EXPECT_THAT(errors_, AllOf(HasSubstr("--trace " + inside), HasSubstr("cannot be created")));
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_EQ(run(step0::trainer(), "--data missing.txt --steps 3" + traced_to(file_)), kExitError);
  EXPECT_FALSE(fs::exists(file_));
  const std::string empty = folder_.write("empty.json", "");  // as a run leaves it that was killed
  EXPECT_EQ(run(step0::trainer(), traced_to(empty)), kExitDone);
  EXPECT_GT(fs::file_size(empty), 0U);
}

TEST_F(TraceTest, IsWrittenWhenARunDiverges) {
  for (const Trainer& trainer : {step4::trainer(), step9::trainer()}) {
    const std::string diverging = "--lr 1e30 --steps 20 --optimizer sgd --clip-norm 0";
    fs::remove(file_);
    EXPECT_EQ(run(trainer, kTwoRanks + diverging + traced_to(file_)), kExitError);
    const Trace trace = read_trace(file_);
    EXPECT_EQ(what_is_wrong_with(trace), "");
    for (const RankTrace& rank : trace.ranks) EXPECT_THAT(rank.spans_named("step"), SizeIs(Ge(1u)));
  }
}

// Nothing can be collective then: each rank writes what it knows.
TEST_F(TraceTest, IsWrittenWhenOneRankFails) {
  Trainer trainer = step4::trainer();
  trainer.train = [](const TrainOptions& options, Communicator& comm) {
    const TrainReport report = step4::trainer().train(options, comm);
    check(comm.rank() != 1, "sample 17 cannot be read");
    comm.barrier();
    return report;
  };
  EXPECT_EQ(run(trainer, kTwoRanks + "--steps 3" + traced_to(file_)), kExitError);
  for (const int rank : {0, 1}) {
    const Trace trace = read_trace(rank == 0 ? file_ : file_ + ".rank1");
    EXPECT_THAT(trace.ranks[static_cast<std::size_t>(rank)].spans_named("step"), SizeIs(3));
  }
}

// The results are there, and a run without a step left to take does not replace them.
TEST_F(TraceTest, ThatCannotBeWrittenCostsNoResult) {
  for (const char* resumed : {"", "--resume auto"}) {
    const std::string full = folder_.path("full.json");
    Trainer trainer = step4::trainer();
    trainer.train = [](const TrainOptions& options, Communicator& comm) {
      const TrainReport report = step4::trainer().train(options, comm);
      if (comm.rank() == 0) {
        fs::remove(options.output.trace);
        fs::create_symlink("/dev/full", options.output.trace);
      }
      return report;
    };
    fs::remove(full);
    EXPECT_EQ(run(trainer, concat(kTwoRanks, "--steps 3 ", resumed, traced_to(full)),
                  /*is_new=*/*resumed == '\0'),
              kExitError);
    EXPECT_THAT(errors_, AllOf(HasSubstr("--trace " + full), HasSubstr("cannot be written")));
    EXPECT_THAT(report_of()["losses"], SizeIs(3));
  }
  fs::remove(out_ + "/report.json");  // as if killed before it was written
  EXPECT_EQ(run(step4::trainer(), kTwoRanks + "--steps 3 --resume auto", /*is_new=*/false),
            kExitDone);
  EXPECT_FALSE(fs::exists(out_ + "/report.json"));
}

TEST_F(TraceTest, IsWrittenWhenASignalStopsTheRun) {
  Trainer trainer = step4::trainer();
  trainer.train = [](const TrainOptions& options, Communicator& comm) {
    StopSignal::raise();
    return step4::trainer().train(options, comm);
  };
  const Trace trace = traced(trainer, "--steps 10", kTwoRanks, kExitStopped);
  for (const RankTrace& rank : trace.ranks) EXPECT_THAT(rank.spans_named("step"), SizeIs(1));
}

#ifdef LADDER_MPIEXEC
// Two processes, whose ranks have a clock in common, a memory each, and messages that take their
// time.
class TraceOfProcesses : public TraceTest {
 protected:
  Trace traced(const std::string& step, const std::string& options) {
    fs::remove_all(out_);
    fs::remove(file_);
    ProcessTest::run(concat(mpirun(2), trainer(step), kSmallModel, "--steps 2 ", options,
                            " --out run", traced_to(file_)));
    return checked_trace();
  }
};

TEST_F(TraceOfProcesses, FitsTogether) {
  const Trace trace = traced("step8_pipeline_ga", "--num-microbatches 4");
  EXPECT_THAT(trace.ranks[0].operations_for("send activation"), SizeIs(2 * 4));
  EXPECT_THAT(trace.ranks[0].operations_for("receive gradient"), SizeIs(2 * 4));
  EXPECT_THAT(trace.ranks[1].operations_for("receive activation"), SizeIs(2 * 4));
  EXPECT_THAT(trace.ranks[1].operations_for("send gradient"), SizeIs(2 * 4));
  EXPECT_THAT(trace.recvs, SizeIs(Ge(2u * 2 * 4)));  // and those of the save
  EXPECT_EQ(trace.about["clock_error_us"], Json({0.0, 0.0}));
}

// What theory says comes and goes: a shard, and more only while it is needed.
TEST_F(TraceOfProcesses, ShowsMemoryComeAndGo) {
  int num_seen = 0;
  for (const Trainer& step : trainers()) {
    if (step.role != RankRole::kReplica) continue;
    const TrainOptions options = parse_words(step, {"--layers", "3"}).options;
    const Json comes = to_json(step.transient_bytes(options, 2, /*rank=*/0));
    if (comes == to_json(StateBytes())) continue;
    SCOPED_TRACE(step.step);
    const Trace trace = traced(step.step, "");
    for (const auto& [category, bytes] : comes.items()) {
      if (bytes == 0) continue;
      ++num_seen;
      for (std::size_t rank = 0; rank < 2; ++rank) {
        const RankTrace& own = trace.ranks[rank];
        const TraceSlices steps = own.spans_named("step");
        std::set<std::int64_t> held;
        for (const TraceMemory& memory : own.memory.at(category))
          if (steps.front().begin_ns < memory.at_ns && memory.at_ns <= steps.back().end_ns)
            held.insert(memory.bytes);
        const Json theory = report_of()["memory_theory"][rank];
        EXPECT_EQ(*held.begin(), theory[category].get<std::int64_t>());
        EXPECT_EQ(*held.rbegin(), theory[concat(category, "_peak")].get<std::int64_t>());
      }
    }
  }
  EXPECT_GE(num_seen, 3);  // the gradients of ZeRO-2, and of ZeRO-3 the parameters, too
}

// The first of two stages keeps what backward needs: of all four microbatches, or of two.
TEST_F(TraceOfProcesses, ShowsHowManyMicrobatchesAreLive) {
  std::map<std::string, std::int64_t> most, of_one;
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    const Trace trace =
        traced("step8_pipeline_ga", "--num-microbatches 4 --pipeline-schedule " + schedule);
    const TraceSlice second = trace.ranks[0].spans_named("forward").at(1);
    std::int64_t before = 0;
    for (const auto& [at_ns, bytes] : trace.ranks[0].memory.at("activations")) {
      if (at_ns <= second.begin_ns) before = bytes;
      if (at_ns <= second.end_ns) of_one[schedule] = bytes - before;
      most[schedule] = std::max(most[schedule], bytes);
    }
  }
  const auto of_two_more = static_cast<double>(most["gpipe"] - most["1f1b"]);
  EXPECT_NEAR(of_two_more / static_cast<double>(of_one["1f1b"]), 2, 0.1);  // and a message each
}
#endif

// ---- what the lessons claim --------------------------------------------------------------------

// A link on which gradients take longer than backward.
const std::string kSlowLink = "--steps 2 --link 200:0.1";

TEST_F(TraceTest, Step3SendsNoGradientDuringBackward) {
  const Trace trace = traced(step3::trainer(), kSlowLink);
  for (const RankTrace& rank : trace.ranks) {
    TraceSlices sums = rank.operations_for("h.");  // one for each parameter of a block
    EXPECT_THAT(sums, SizeIs(2 * 3 * 12));
    for (const TraceSlice& backward : rank.spans_named("backward"))
      EXPECT_EQ(num_meeting(sums, backward), 0);
  }
}

TEST_F(TraceTest, Step4SendsMostBucketsDuringBackward) {
  const Trace trace = traced(step4::trainer(), kSlowLink + " --bucket-mb 0.02");
  for (const RankTrace& rank : trace.ranks) {
    const TraceSlices buckets = rank.operations_for("bucket");
    const auto num_buckets = std::ssize(buckets) / 2;
    ASSERT_GE(num_buckets, 5);
    for (const TraceSlice& backward : rank.spans_named("backward"))
      EXPECT_GE(num_meeting(buckets, backward), num_buckets - 1);
  }
}

// While layer l computes, is the gather of unit l + 1 in flight? The first step has them all.
std::vector<int> gathers_during_forwards(const Trace& trace) {
  std::vector<int> counts;
  for (const RankTrace& rank : trace.ranks) {
    for (const TraceSlice& layer : rank.spans) {
      if (!layer.args.contains("unit") || layer.name == "unshard" || layer.name == "head") continue;
      counts.push_back(
          num_meeting(rank.operations_for(concat("unshard ", layer.number("unit") + 1)), layer));
    }
  }
  return counts;
}

TEST_F(TraceTest, Step7GathersTheNextUnitMeanwhileIfItPrefetches) {
  for (const int prefetch : {0, 1}) {
    const Trace trace = traced(step7::trainer(), concat(kSlowLink, " --prefetch ", prefetch));
    EXPECT_THAT(gathers_during_forwards(trace), AllOf(SizeIs(2 * 2 * 4), Each(prefetch)));
  }
}

// Two rounds of four inner steps: a rank sends when a round ends, and at no other time.
TEST_F(TraceTest, Step9IsSilentWithinARound) {
  const Trace trace = traced(step9::trainer(), "--steps 8 --sync-every 4 --link 200:0.1");
  for (const RankTrace& rank : trace.ranks) {
    const TraceSlices steps = rank.spans_named("step");
    ASSERT_THAT(steps, SizeIs(8));
    EXPECT_THAT(rank.operations_for("start average"), SizeIs(2));
    for (const TraceSlice& operation : rank.operations) {
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const bool is_end_of_round = (i + 1) % 4 == 0;
        EXPECT_TRUE(is_end_of_round || !operation.meets(steps[i]))
            << operation.name << " in step " << i + 1;
      }
    }
  }
}

// With a delay, the average travels while the next round has begun.
TEST_F(TraceTest, Step9WithADelaySendsWhileItTrains) {
  const Trace trace =
      traced(step9::trainer(), "--steps 8 --sync-every 4 --sync-delay 1 --link 200:0.1");
  for (const RankTrace& rank : trace.ranks) {
    const TraceSlices averages = rank.operations_for("start average");
    ASSERT_THAT(averages, Not(IsEmpty()));
    const TraceSlices backwards = rank.spans_named("backward");
    EXPECT_GE(num_meeting(backwards, averages[0]), 1);
  }
}

}  // namespace
}  // namespace ladder
