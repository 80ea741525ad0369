// Judges the seven trainers. The ranks are threads, so those of a trainer that is still broken end
// without harm to the next one; --check-collectives finds what makes them wait.
//
// A mended trainer trains like step 3's loop, to the bit, and makes no more calls than its purpose
// takes. That does not show what all ranks do wrong alike, what is mended by leaving it out, nor
// what only people see. So each rank starts with parameters of its own, its calls and what it shows
// are looked at, trainer 5 meets a replica that drifts, and it is counted what trainer 7 evaluates.
#include <ATen/TensorOperators.h>
#include <ATen/ops/nextafter.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "common/comm/checking/checking_communicator.hpp"
#include "common/comm/forwarding_communicator.hpp"
#include "common/comm/threads/run_as_threads.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/comm/world.hpp"
#include "common/core/check.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/draw.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/plain_words.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/testing/time_limit.hpp"
#include "common/train/build_model.hpp"
#include "common/train/differences.hpp"
#include "common/train/report/console.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/evaluate.hpp"
#include "step0_single_gpu/judge/cases.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step3_naive_dp/naive_dp.hpp"
#include "step3_naive_dp/why_does_it_hang/replica.hpp"
#include "step3_naive_dp/why_does_it_hang/train.hpp"
#include "step3_naive_dp/why_does_it_hang/trainers.hpp"

namespace ladder {
namespace hang {
namespace {

// What a rank has done.
struct Conduct {
  TrainReport report;
  Traffic traffic;  // from the broadcast to the end of the last step, whatever follows its record()
  std::vector<Replica::Shown> shown;
  std::int64_t num_evaluated = 0;
  int root = 0;        // of a broadcast
  int num_groups = 0;  // that it has split off; what follows is of the group of all ranks
  std::vector<std::int64_t> gradients;  // the numels of their sums, in the order of the calls
  std::vector<double> scalars;          // what it adds to other sums
  std::vector<at::Tensor> sent;         // copies
  int num_on_their_way = 0;
  bool has_overlap = false;  // of sums of gradients
};

// In this step, one of the parameters that this rank sends has its last bit changed.
struct Drift {
  int rank = -1;
  std::size_t step = 0;
};

// A LockstepCommunicator would wait for the other ranks before each call, and so hide what trainers
// that are still broken wait for.
class Watch final : public ForwardingCommunicator {
 public:
  Watch(Communicator& inner, Conduct& conduct, const Drift& drift)
      : ForwardingCommunicator(inner), conduct_(conduct), drift_(drift) {}

  WorkPtr start(const Operation& operation) override {
    Operation passed = operation;
    if (operation.kind == CommOp::kBroadcast && operation.peer != 0) conduct_.root = operation.peer;
    if (operation.kind == CommOp::kAllReduce) look_at_sum(operation.tensor);
    if (operation.kind == CommOp::kSend) {
      conduct_.sent.push_back(operation.tensor.clone());
      if (drift_.rank == rank() && drift_.step == conduct_.sent.size())
        passed.tensor = drifted(operation.tensor);
    }
    return std::make_unique<WatchedWork>(inner_.start(passed), conduct_.num_on_their_way);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    ++conduct_.num_groups;
    return inner_.split(color, key);
  }

 private:
  class WatchedWork final : public Work {
   public:
    WatchedWork(WorkPtr inner, int& num_on_their_way)
        : inner_(std::move(inner)), num_on_their_way_(num_on_their_way) {
      ++num_on_their_way_;
    }
    bool test() override { return inner_->test(); }
    void wait() override {
      inner_->wait();
      if (!std::exchange(has_waited_, true)) --num_on_their_way_;
    }

   private:
    WorkPtr inner_;
    int& num_on_their_way_;
    bool has_waited_ = false;
  };

  void look_at_sum(const at::Tensor& tensor) {
    if (tensor.scalar_type() == at::kDouble && tensor.numel() > 0) {
      conduct_.scalars.push_back(tensor.flatten()[0].item<double>());
      return;
    }
    conduct_.gradients.push_back(tensor.numel());
    conduct_.has_overlap = conduct_.has_overlap || conduct_.num_on_their_way > 0;
  }

  // Three ranks drift in the first, the middle or the last element.
  at::Tensor drifted(const at::Tensor& tensor) const {
    at::Tensor copy = tensor.clone();
    const at::Tensor one = copy.flatten().narrow(0, (tensor.numel() - 1) * rank() / 2, 1);
    one.copy_(at::nextafter(one, one + 1));
    return copy;
  }

  Conduct& conduct_;
  Drift drift_;
};

constexpr double kPatienceSeconds = 1;
constexpr double kUnchecked = 0;  // of what does not hang
constexpr int kMostRanks = 4;
constexpr int kNumEvaluated = 4;  // microbatches, each time: they do not divide by 3

// What a trainer is judged on.
struct Task {
  int num_ranks;
  std::int64_t num_steps;
  double lr;
  std::string data;
};

TrainOptions options_of(int trainer, const Task& task) {
  TrainOptions options;
  options.num_steps = task.num_steps;
  options.model = {.context = 16, .layers = 1, .heads = 2, .channels = 16};
  options.data.source = options.data.validation_source = task.data;
  options.data.microbatch_size = 1;
  options.data.validation_samples = kNumEvaluated;
  options.output.eval_every = 2;  // only trainer 7 does so
  options.optimizer.kind = OptimizerKind::kSgd;
  options.lr = {.schedule = LrSchedule::kConstant, .lr = task.lr};
  options.output.is_quiet = true;
  options.set<HangOptions>().trainer = trainer;
  return options_for(hang::trainer(), options);
}

Train train_of(int trainer) {
  return kTrainers.at(static_cast<std::size_t>(trainer - 1));
}

// Step 3's loop. Each rank evaluates everything on its own, so that it makes no more calls.
void train_plainly(Replica& replica, Communicator& comm) {
  broadcast_parameters(replica.flat, comm);
  while (replica.next_step()) {
    const Microbatches batch = replica.next_batch();
    const double num_targets = all_reduce_sum(replica.count(batch), comm);
    const double loss = replica.accumulate(batch, num_targets);
    all_reduce_gradients(replica.grads, comm);
    const double norm = replica.update();
    replica.record(all_reduce_sum(StepSums{loss}, comm), norm, num_targets);
    if (!replica.run.should_evaluate()) continue;
    const Microbatches validation = replica.batches.validation();
    replica.run.record_validation(evaluate(loss_of(replica.model, kNextToken), validation));
  }
}

// What all ranks do. Each starts with parameters of its own. Throws what the first rank throws.
std::vector<Conduct> train_on(int num_ranks, const TrainOptions& options, Train train,
                              double patience_s, const Drift& drift = {}) {
  std::vector<Conduct> conducts(static_cast<std::size_t>(num_ranks));
  run_as_threads(num_ranks, [&](Communicator& comm) {
    Conduct& conduct = conducts[static_cast<std::size_t>(comm.rank())];
    TrainOptions own = options;
    own.seed += static_cast<std::uint64_t>(comm.rank());
    const std::unique_ptr<Communicator> group = comm.split(0, comm.rank());
    World world(std::make_unique<Watch>(*group, conduct, drift), Transport::kThreads);
    check_collectives(world, patience_s, [&] {
      Replica replica(own, world.comm());
      const Traffic before = world.comm().traffic();
      throw_in_plain_words([&] { train(replica, world.comm()); });
      conduct.traffic = world.comm().traffic();
      conduct.traffic -= before;
      conduct.report = replica.finish();
      conduct.shown = replica.shown;
      conduct.num_evaluated = replica.num_evaluated;
      return 0;
    });
  });
  return conducts;
}

// What step 3's loop does. It is the same for all trainers, and asked for often.
const std::vector<Conduct>& plain(const Task& task) {
  static std::map<std::string, std::vector<Conduct>> known;
  std::vector<Conduct>& conducts =
      known[concat(task.num_ranks, " ", task.num_steps, " ", task.lr, " ", task.data)];
  if (conducts.empty())
    conducts = train_on(task.num_ranks, options_of(1, task), train_plainly, kUnchecked);
  return conducts;
}

std::int64_t steps_until_the_loss_rises(const std::vector<double>& losses) {
  const auto rise = std::adjacent_find(losses.begin(), losses.end(), std::less<>());
  return rise == losses.end() ? std::ssize(losses) : rise - losses.begin() + 2;
}

// One of them, as one rank has gone through it.
struct Trial {
  int trainer;
  const Task& task;
  int rank;
  const Conduct& found;
  const Conduct& wanted;
};

std::string wrong_training(const Trial& trial) {
  TrainReport found = trial.found.report, wanted = trial.wanted.report;
  found.val_losses = wanted.val_losses = {};  // wrong_validation() looks at them
  if (found.losses.size() != wanted.losses.size())
    return concat("it takes ", found.losses.size(), " steps, not ", wanted.losses.size());
  if (trial.found.root != 0)
    return concat("parameters are broadcast from rank ", trial.found.root, ", not from rank 0");
  const auto [series, hash, tensors] = compare_runs({"", found}, {"", wanted});
  if (series.empty() && hash.empty()) return "";
  return concat("rank ", trial.rank,
                " does not train like step 3: ", series.empty() ? hash[0] : series[0]);
}

// One sum may serve several ends, such as that of the loss: fewer all-reduces than theory has are
// right, if all that they are for is there. Those of trainer 7 are not counted on 1 and 2 ranks, where
// the broken trainer would be told so before it has shown what it does on 3.
std::string wrong_calls(const Trial& trial) {
  if (trial.found.num_on_their_way > 0)
    return concat(trial.found.num_on_their_way, " operations are never waited for");
  if (trial.trainer == 7 && trial.task.num_ranks < 3) return "";
  Traffic traffic = traffic_theory(trainer(), options_of(trial.trainer, trial.task),
                                   steps_of(trial.found.report), trial.task.num_ranks, trial.rank);
  if (trial.trainer == 7) {  // after each evaluation one sum, of a double per microbatch at most
    Traffic sums =
        all_reduce_traffic(kNumEvaluated, sizeof(double), trial.task.num_ranks, trial.rank);
    traffic += sums *= std::ssize(trial.wanted.report.val_losses);
  }
  for (int i = 0; i < kNumCommOps; ++i) {
    const auto op = static_cast<CommOp>(i);
    // Before the first step, parameters may be broadcast in parts.
    const OpTraffic found =
        (op == CommOp::kBroadcast ? trial.found.report.traffic : trial.found.traffic)[op];
    const OpTraffic theory = traffic[op];
    const bool may_be_less = op == CommOp::kAllReduce;
    if (found == theory ||
        (may_be_less && found.calls <= theory.calls && found.bytes_sent <= theory.bytes_sent))
      continue;
    return concat("rank ", trial.rank, " makes ", found.calls, " calls of ", to_string(op),
                  " that send ", found.bytes_sent, " bytes; what the trainer is for takes ",
                  theory.calls, " and ", theory.bytes_sent);
  }
  return "";
}

// Trainer 6 has a group, for the loss that it shows. Whatever else it sums belongs to all ranks; the
// loss need not be summed there, too.
std::string wrong_groups(const Trial& trial) {
  const int num_groups = trial.trainer == 6 ? 1 : 0;
  if (trial.found.num_groups != num_groups)
    return concat("the number of groups that it splits off is ", trial.found.num_groups, ", not ",
                  num_groups);
  if (trial.found.gradients.size() != trial.wanted.gradients.size())
    return "gradients are not summed in the group of all ranks, one tensor after the other";
  if (trial.trainer != 6) return "";
  std::vector<double> found = trial.found.scalars, wanted = trial.wanted.scalars;
  std::sort(found.begin(), found.end());
  std::sort(wanted.begin(), wanted.end());
  const std::size_t num_steps = trial.found.report.losses.size();
  if (found.size() < num_steps ||
      !std::includes(wanted.begin(), wanted.end(), found.begin(), found.end()))
    return "the group of its own is for the loss that is shown; all else belongs to all ranks";
  const std::int64_t num_of_all = std::ssize(found) + std::ssize(trial.found.gradients);
  if (trial.found.traffic[CommOp::kAllReduce].calls - num_of_all <
      std::ssize(trial.found.report.losses))
    return "the loss that is shown is not summed in the group of its own";
  return "";
}

// Trainer 3: the largest tensor first, and one after the other. Not on one rank, where the broken
// trainer would be told so before it has shown what it does on two.
std::string wrong_order(const Trial& trial) {
  if (trial.trainer != 3 || trial.task.num_ranks == 1) return "";
  const std::vector<std::int64_t>& numels = trial.found.gradients;
  const std::size_t num_tensors = numels.size() / trial.found.report.losses.size();
  for (std::size_t i = 1; i < numels.size(); ++i) {
    if (i % num_tensors == 0 || numels[i] <= numels[i - 1]) continue;
    return concat("in step ", i / num_tensors + 1, ", ", numels[i], " elements are summed after ",
                  numels[i - 1], ": the largest tensor is first");
  }
  return trial.found.has_overlap ? "a sum of gradients starts while another is on its way" : "";
}

// Trainers 1 and 6: only rank 0, and in every step.
std::string wrong_shows(const Trial& trial) {
  if (trial.trainer != 1 && trial.trainer != 6) return "";
  std::vector<Replica::Shown> shown = trial.found.shown;
  std::erase_if(shown, [](const auto& one) { return one.what.find("loss") == std::string::npos; });
  const std::vector<double>& losses = trial.wanted.report.losses;
  const std::size_t num_wanted = trial.rank == 0 ? losses.size() : 0;
  if (shown.size() > 0 && trial.rank > 0)
    return concat("rank ", trial.rank, " shows the loss, too: only rank 0 is to show it");
  if (shown.size() != num_wanted)
    return concat("of ", num_wanted, " steps, rank 0 shows the loss of ", shown.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto num_steps = static_cast<std::int64_t>(i);
    if (shown[i].num_steps != num_steps && shown[i].num_steps != num_steps + 1)
      return concat("the loss of step ", i + 1, " is shown in step ", shown[i].num_steps + 1);
    if (std::abs(shown[i].value - losses[i]) > 1e-9 * losses[i])
      return concat("in step ", i + 1, " rank 0 shows the loss ", shown[i].value, "; over all ",
                    "ranks' rows it is ", losses[i]);
  }
  return "";
}

// Trainer 7: on every rank, and from no more microbatches than are its own.
std::string wrong_validation(const Trial& trial) {
  if (trial.trainer != 7) return "";
  const auto &found = trial.found.report.val_losses, &wanted = trial.wanted.report.val_losses;
  if (found.size() != wanted.size())
    return concat("rank ", trial.rank, " records ", found.size(), " validation losses, not ",
                  wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].step != wanted[i].step)
      return concat("rank ", trial.rank, " evaluates after step ", found[i].step, ", not after ",
                    wanted[i].step);
    if (!(std::abs(found[i].loss - wanted[i].loss) <= 1e-9 * wanted[i].loss))
      return concat("after step ", found[i].step, " rank ", trial.rank,
                    " records the validation loss ", found[i].loss, "; over all ", kNumEvaluated,
                    " microbatches it is ", wanted[i].loss);
  }
  const std::int64_t share =
      (kNumEvaluated - 1 - trial.rank + trial.task.num_ranks) / trial.task.num_ranks;
  if (trial.found.num_evaluated > share * std::ssize(wanted))
    return concat("rank ", trial.rank, " evaluates ", trial.found.num_evaluated,
                  " microbatches; its share is ", share * std::ssize(wanted));
  const auto num_sums = trial.wanted.scalars.size() + wanted.size();
  if (trial.task.num_ranks > 1 && trial.found.scalars.size() < num_sums)
    return concat("rank ", trial.rank, " does not sum the validation loss over the ranks");
  return "";
}

// Trainer 5: what is compared are the parameters after the step.
std::string wrong_messages(const Trial& trial) {
  const FlatLayout layout = layout_of(options_of(trial.trainer, trial.task));
  for (std::size_t i = 0; i < trial.found.sent.size(); ++i) {
    if (flat_norm(layout, trial.found.sent[i]) != trial.wanted.report.param_norms[i])
      return concat("in step ", i + 1, " rank ", trial.rank,
                    " does not send the parameters that the step ends with");
  }
  return "";
}

// Trainer 5: rank r's parameters differ in step r + 1 of three.
std::string missed_drift(const std::string& data) {
  for (int rank = 0; rank < 3; ++rank) {
    const Drift drift = {rank, static_cast<std::size_t>(rank) + 1};
    const std::string name = concat("rank ", rank), next = concat("rank ", (rank + 1) % 3),
                      other = concat("rank ", (rank + 2) % 3);
    std::string said;
    try {
      train_on(3, options_of(5, {3, 3, 0.1, data}), train_of(5), kUnchecked, drift);
    } catch (const std::exception& error) {
      said = error.what();
    }
    const auto names = [&](const std::string& a_rank) {
      return said.find(a_rank, next.size()) != std::string::npos;
    };
    if (said.starts_with(next) && names(name) && !names(other)) continue;
    return concat(name, " drifts in step ", drift.step, " of 3, by a bit of one parameter: ", next,
                  " must end with an error that names ", name, ", not ", other, ", but ",
                  said.empty() ? "no rank finds anything" : "the error is: " + said);
  }
  return "";
}

// What is wrong with it, or nothing.
std::string fault_of(int trainer, Task task) {
  const std::int64_t num_steps = task.num_steps;
  if (trainer == 4) task.num_steps = steps_until_the_loss_rises(plain(task)[0].report.losses);
  const std::vector<Conduct>& wanted = plain(task);
  task.num_steps = num_steps;
  std::vector<Conduct> found;
  try {
    found = train_on(task.num_ranks, options_of(trainer, task), train_of(trainer),
                     kPatienceSeconds * time_scale());
  } catch (const std::exception& error) {
    return error.what();
  }
  for (const auto look : {wrong_training, wrong_calls, wrong_groups, wrong_order, wrong_messages,
                          wrong_shows, wrong_validation}) {
    for (int rank = 0; rank < task.num_ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const std::string fault = look({trainer, task, rank, found[r], wanted[r]});
      if (!fault.empty()) return fault;
    }
  }
  return trainer == 5 && task.num_ranks == 3 ? missed_drift(task.data) : "";
}

// On one rank the loss of this text rises in step 2. Only trainer 4 stops there: but, on several, not
// for a rank's own loss, nor where losses are equal.
std::vector<Task> tasks_of(int trainer, int num_ranks) {
  static const TempFolder folder;
  static const std::string text = CaseTexts(folder.path()).windows,
                           same = folder.write("same.txt", std::string(2000, 'a'));
  constexpr double kRate = 0.02;
  if (trainer != 4) return {{num_ranks, num_ranks == 1 ? 8 : 3, kRate, text}};
  return {{num_ranks, 9, kRate, text}, {num_ranks, 3, 0, same}};
}

std::string fault_of(int trainer, int num_ranks) {
  for (const Task& task : tasks_of(trainer, num_ranks)) {
    const std::string fault = fault_of(trainer, task);
    if (!fault.empty())
      return concat("trainer ", trainer, " on ", count_of(num_ranks, "rank"), ": ", fault);
  }
  return "";
}

// More ranks than before, and other numbers of steps.
std::string fault_of_drawn(int trainer, Draw draw) {
  Task task = tasks_of(trainer, static_cast<int>(draw.number(kMostRanks + 1, 7)))[0];
  task.num_steps = draw.number(4, 12);
  const std::string drawn =
      draw.announce(concat(task.num_ranks, " ranks and ", task.num_steps, " steps"));
  const std::string fault = fault_of(trainer, task);
  return fault.empty() ? "" : concat("trainer ", trainer, ", ", drawn, ": ", fault);
}

}  // namespace
}  // namespace hang

std::vector<std::string> judge_linked(Communicator& comm) {
  const Draw draw(comm);
  for (int trainer = 1; trainer <= int{hang::kTrainers.size()}; ++trainer) {
    std::string fault;
    for (int num_ranks = 1; num_ranks <= hang::kMostRanks && fault.empty(); ++num_ranks)
      fault = hang::fault_of(trainer, num_ranks);
    if (fault.empty()) fault = hang::fault_of_drawn(trainer, draw);
    if (fault.empty()) continue;
    if (trainer == 1) return {fault};
    return {fault, concat("right before it: ", trainer - 1, " of seven")};
  }
  return {};
}

}  // namespace ladder
