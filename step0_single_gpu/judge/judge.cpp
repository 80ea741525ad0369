#include "step0_single_gpu/judge/judge.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "common/comm/mesh.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/planted_answer.hpp"
#include "common/testing/recording_communicator.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/build_model.hpp"
#include "common/train/differences.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step0_single_gpu/judge/explanation.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kFewBytes = 256;   // of scalars, which may be where they want
constexpr std::int64_t kMostScalars = 2;  // in one operation; more are gradients or parameters

// What step 0 has answered in this process: many answers are judged on the same cases.
std::map<std::pair<int, std::string>, FinishedRun>& known_answers() {
  static std::map<std::pair<int, std::string>, FinishedRun> answers;
  return answers;
}

// This process has it until it ends.
const TempFolder& own_folder() {
  static const TempFolder folder;
  return folder;
}

std::string digits_of(const std::vector<double>& values) {
  std::ostringstream text;
  text << std::hexfloat;
  for (const double value : values) text << value << ' ';
  return text.str();
}

}  // namespace

// Sees where the trainer's operations read and write.
class Judge::Watch final : public RecordingCommunicator {
 public:
  using RecordingCommunicator::RecordingCommunicator;

  void expect_sums_in(MemoryCategory category) { of_sums_ = category; }
  const std::string& fault() const { return fault_; }  // the first, or empty
  // Elements of parameters since the last call.
  std::int64_t take_broadcast_numel() { return std::exchange(broadcast_numel_, 0); }

  WorkPtr start(const Operation& operation) override {
    for (const at::Tensor& tensor : {operation.tensor, operation.shard}) {
      if (!operation.is_message() && fault_.empty() && tensor.defined()) look_at(operation, tensor);
    }
    return RecordingCommunicator::start(operation);
  }

 private:
  void look_at(const Operation& operation, const at::Tensor& tensor) {
    if (tensor.numel() <= kMostScalars) return;
    if (!tensor.is_floating_point() || tensor.scalar_type() == at::kDouble) return;  // sums, text
    if (operation.kind == CommOp::kBroadcast) broadcast_numel_ += tensor.numel();
    const bool is_librarys = of_sums_ != MemoryCategory::kGradients;
    const MemoryCategory wanted =
        operation.is_sum() || is_librarys ? of_sums_ : MemoryCategory::kParameters;
    const MemoryCategory found = memory_category_of(tensor).value_or(MemoryCategory::kOther);
    if (found == wanted) return;
    const bool is_in_no_scope =
        found == MemoryCategory::kActivations || found == MemoryCategory::kOther;
    fault_ = concat(to_string(operation.kind), " of ", tensor.numel(),
                    " elements works on memory of ", to_string(found), ", not on the ",
                    to_string(wanted), is_librarys ? "'s buffers" : " themselves",
                    is_librarys && operation.kind == CommOp::kBroadcast
                        ? ": are these flat copies, made in a MemoryScope of that category?"
                    : is_in_no_scope
                        ? ": is it a copy, or allocated outside of a MemoryScope of that category?"
                        : "");
  }

  MemoryCategory of_sums_ = MemoryCategory::kGradients;
  std::int64_t broadcast_numel_ = 0;
  std::string fault_;
};

Judge::Judge(JudgedTrainer judged, Communicator& comm)
    : Examination(comm), judged_(std::move(judged)) {
  install_memory_ledger();
}

bool Judge::all_cases_are_right() {
  num_right_ = 0;
  for (const Case& one : cases()) {
    judge(one);
    if (!Examination::faults().empty()) return false;
    ++num_right_;
  }
  Draw draw(comm_);
  judge(drawn_case(draw), &draw);
  return Examination::faults().empty();
}

std::vector<std::string> Judge::faults() const {
  std::vector<std::string> lines = Examination::faults();
  const auto diverges = [](const std::string& line) {
    return line.find("training has diverged") != std::string::npos;
  };
  if (std::any_of(lines.begin(), lines.end(), diverges))
    lines.push_back(
        "step 0 does not diverge here: is memory read before it is written, or an overflow "
        "hidden?");
  if (!lines.empty() && num_right_ >= 0) {
    const auto number = static_cast<std::size_t>(num_right_);
    lines.insert(lines.begin(), concat("training ", number + 1, " of ", cases().size() + 1, ", '",
                                       what_, "', is the first that goes wrong:"));
  }
  return lines;
}

void Judge::judge(const Case& one, const Draw* draw) {
  // All ranks read rank 0's files, and write none.
  static const CaseTexts texts(all_gather_text(own_folder().path().string(), comm_)[0]);
  TrainOptions options = options_of(one, texts);
  if (judged_.vary) judged_.vary(options, num_right_);
  if (judged_.trainer.sums_each_microbatch) options = with_sums_of_any_order(options);
  options = options_for(judged_.trainer, options);
  options.output.out = all_gather_text(new_folder(), comm_)[0];  // the files are there
  what_ = draw != nullptr ? draw->announce(shape_of(options)) : one.name;
  Trained trained;
  examine<Watch>(what_, [&](Watch& watch) {
    watch.set_network(Network::kSlow);
    if (!judged_.sends_in_place) watch.expect_sums_in(MemoryCategory::kCommunication);
    watch.pass_messages_on();  // those of a checkpoint, and of a pipeline
    trained = train(options, one.resumes, watch);
    if (!watch.fault().empty()) fault(watch.fault());
    const Recording& seen = watch.recording();
    const int num_left = std::max(seen.num_on_their_way(), seen.num_dropped);
    if (num_left > 0) {
      fault(concat(num_left, num_left == 1 ? " operation is" : " operations are",
                   " never waited for: each needs a wait(), even if test() has said true"));
    }
  });
  const std::size_t num_reports = one.resumes ? 2 : 1;
  const bool all_trained =
      all_reduce_sum(trained.reports.size() == num_reports ? 1.0 : 0.0, comm_) == comm_.size();
  if (!all_trained) return;
  examine(what_, [&](Communicator&) { expect_no_divergence(trained); });
  examine(what_, [&](Communicator&) {
    if (comm_.rank() == 0) compare(one, draw != nullptr, options, trained);
  });
}

Judge::Trained Judge::train(const TrainOptions& wanted, bool resumes, Watch& watch) {
  Trained trained = {{}, wanted.output.out};
  TrainOptions options = wanted;
  if (judged_.trainer.starts_by_broadcast)
    options.seed += static_cast<std::uint64_t>(
        judged_.trainer.mesh(options, watch.size()).replica_of(watch.rank()));
  const auto run = [&] {
    const MemoryReading before = read_memory();
    trained.reports.push_back(judged_.trainer.train(options, watch));
    for (const std::string& line :
         differences_from_theory(judged_.trainer, options, trained.reports.back(), before,
                                 watch.size(), watch.rank())) {
      fault(line);
    }
    const std::int64_t num_broadcast = watch.take_broadcast_numel();
    const std::int64_t most =
        judged_.trainer.state_bytes(options, watch.size(), watch.rank()).parameters /
        options.model.precision.param_bytes();
    if (num_broadcast > most) {
      fault(concat("before the first step, ", num_broadcast,
                   " elements are broadcast; a replica has ", most, ", padding included"));
    }
    if (judged_.trainer.starts_by_broadcast && watch.size() > 1 &&
        judged_.trainer.mesh(options, watch.size()).ranks_per_replica() == 1) {
      const std::int64_t least = layout_of(options).num_parameters;
      if (num_broadcast < least)
        fault(concat("before the first step, ", num_broadcast,
                     " elements are broadcast; a replica has ", least));
    }
    const std::int64_t num_left = read_memory().total_live_bytes - before.total_live_bytes;
    if (num_left > 0) fault(concat(num_left, " bytes are still held after the run"));
  };
  run();
  if (resumes) {
    options.output.resume = trained.folder + "/checkpoints/step_000002";
    options.output.out = trained.folder + "/resumed";
    trained.folder = options.output.out;
    run();
  }
  return trained;
}

void Judge::expect_no_divergence(const Trained& trained) {
  const TrainReport& report = trained.reports.back();
  const std::string series = digits_of(report.losses) + digits_of(report.grad_norms) +
                             digits_of(report.param_norms) + report.param_hash;
  // Where ranks hold the model together, only rank 0 has a hash of it.
  if (!all_gather_text(series, comm_)[0].starts_with(series))
    fault("this rank's losses, norms or parameters are not those of rank 0");
}

void Judge::compare(const Case& one, bool is_drawn, const TrainOptions& options,
                    const Trained& trained) {
  const TrainReport& report = trained.reports.back();
  const int num_replicas = judged_.trainer.mesh(options, comm_.size()).num_replicas;
  const int answer = judged_.is_in_step_0 ? planted_answer() : 0;
  const auto [known, is_new] = known_answers().try_emplace({answer, what_});
  if (is_new) {
    known->second = ask_oracle(options, num_replicas, new_folder());
  }
  const FinishedRun& wanted = known->second;
  FinishedRun found = {"the ranks", report, trained.folder};
  if (one.resumes) {  // to be compared as if it had not been cut
    const TrainReport& first = trained.reports[0];
    const auto whole = [cut = report.first_step](const auto& begun, const auto& rest) {
      auto all = begun;
      all.resize(static_cast<std::size_t>(cut));
      all.insert(all.end(), rest.begin(), rest.end());
      return all;
    };
    found.report.first_step = 0;
    found.report.losses = whole(first.losses, report.losses);
    found.report.grad_norms = whole(first.grad_norms, report.grad_norms);
    found.report.param_norms = whole(first.param_norms, report.param_norms);
    found.report.denominators = whole(first.denominators, report.denominators);
  }
  for (const std::string& line : explain(found, wanted, options, comm_.size(), num_replicas))
    fault(line);
  // On one rank a microbatch is that of step 0. Whether activations hide a copy, whose own check says
  // more about it, depends on the shape: a drawn one would make the answer depend on chance.
  const std::int64_t most = report.memory.peak(MemoryCategory::kActivations),
                     right = wanted.report.memory.peak(MemoryCategory::kActivations);
  if (comm_.size() == 1 && !one.resumes && !is_drawn && most > right + kFewBytes) {
    fault(concat("most bytes of activations at any time: ", most, ", not ", right,
                 ", as in step 0: is something copied, or kept too long?"));
  }
  if (report.skipped_steps != wanted.report.skipped_steps) {
    fault(concat(report.skipped_steps, " steps are skipped, not ", wanted.report.skipped_steps));
  }
}

std::string Judge::new_folder() {
  static int number = 0;
  return own_folder().path(concat("run ", number++));
}

}  // namespace ladder
