#include "step0_single_gpu/denominators/laboratory.hpp"

#include <ATen/ops/argsort.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sum.h>

#include <map>
#include <span>

#include "common/core/compute_threads.hpp"
#include "common/data/batch_stream.hpp"
#include "common/optim/norm.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/objective.hpp"

namespace ladder::lab {
namespace {

constexpr std::int64_t kContext = 256;
constexpr std::int64_t kValidationRows = 16;  // a multiple of every microbatch's

// These rows, by number.
Microbatch select(const Microbatch& all, const at::Tensor& rows) {
  const at::Tensor targets = all.targets.index_select(0, rows);
  const auto num_targets = targets.ne(kIgnoredTarget).sum().item<std::int64_t>();
  return {all.tokens.index_select(0, rows), targets, num_targets};
}

// Sorts the rows by their number of targets and deals them out.
GlobalBatch sort_and_cut(const Microbatch& all, const Cut& cut) {
  const at::Tensor order = all.targets.ne(kIgnoredTarget).sum(1).argsort(/*stable=*/true);
  GlobalBatch step(static_cast<std::size_t>(cut.ranks));
  std::int64_t row = 0;
  for (auto& flushes : step) {
    for (std::int64_t flush = 0; flush < cut.flushes; ++flush) {
      std::vector<Microbatch> list;
      for (std::int64_t i = 0; i < cut.microbatches; ++i, row += cut.rows)
        list.push_back(select(all, order.narrow(0, row, cut.rows)));
      flushes.emplace_back(std::move(list));
    }
  }
  return step;
}

std::vector<std::int64_t> microbatch_targets(const GlobalBatch& batch) {
  std::vector<std::int64_t> counts;
  for (const auto& flushes : batch) {
    for (const Microbatches& flush : flushes) {
      for (const Microbatch& microbatch : flush) counts.push_back(microbatch.num_targets);
    }
  }
  return counts;
}

}  // namespace

double clip_norm_of(Recipe recipe) {
  return recipe == Recipe::kSgd ? 0 : 0.5;
}

TrainOptions options_of(const Experiment& experiment) {
  const bool is_sgd = experiment.recipe == Recipe::kSgd;
  TrainOptions options;
  options.step = "denominators";
  options.num_steps = experiment.num_steps;
  options.seed = experiment.data_seed;
  options.model = {.context = kContext, .layers = 1, .heads = 2, .channels = 32};
  options.data = {.microbatch_size = experiment.cut.rows,
                  .num_microbatches = experiment.cut.num_microbatches(),
                  .validation_samples = kValidationRows};
  options.optimizer = {.kind = is_sgd ? OptimizerKind::kSgd : OptimizerKind::kAdamW,
                       .weight_decay = is_sgd ? 0 : 0.1};
  options.lr = {.schedule = LrSchedule::kConstant, .lr = is_sgd ? 0.2 : 3e-3};
  options.clip_norm = clip_norm_of(experiment.recipe);
  finalize(options);
  options.seed = experiment.model_seed;
  return options;
}

// Opened once for many runs: generating it takes longer than a short run.
const Laboratory::Corpus& Laboratory::corpus_of(Rows rows) {
  static std::map<Rows, Corpus> opened;
  const DataOptions options = {.rows = rows, .context = kContext};
  if (!opened.contains(rows))
    opened.emplace(rows,
                   Corpus{Dataset::open_training(options), Dataset::open_validation(options)});
  return opened.at(rows);
}

Laboratory::Laboratory(const Experiment& experiment)
    : experiment_(experiment),
      corpus_(corpus_of(experiment.rows)),
      options_(options_of(experiment)),
      flat_(layout_of(options_)),
      model_(build_model(options_, flat_)),
      grads_(flat_),
      loss_sum_(loss_of(model_, kNextToken)),
      order_(epoch_order(corpus_.training.num_samples(), experiment.data_seed, /*epoch=*/0,
                         SampleOrder::kShuffled)) {
  set_compute_threads(options_.num_threads);
}

GlobalBatch Laboratory::next() {
  const std::int64_t num_rows = experiment_.cut.num_microbatches() * experiment_.cut.rows;
  if (position_ + num_rows > static_cast<std::int64_t>(order_.size())) position_ = 0;
  const std::span samples(order_.begin() + position_, static_cast<std::size_t>(num_rows));
  position_ += num_rows;
  return sort_and_cut(corpus_.training.read(samples), experiment_.cut);
}

Microbatches Laboratory::validation() const {
  const auto order = epoch_order(kValidationRows, 0, 0, SampleOrder::kSequential);
  std::vector<Microbatch> list;
  for (auto first = order.begin(); first < order.end(); first += experiment_.cut.rows)
    list.push_back(
        corpus_.validation.read({first, static_cast<std::size_t>(experiment_.cut.rows)}));
  return Microbatches(std::move(list));
}

Outcome train_with(Mistake mistake, const Experiment& experiment) {
  Laboratory lab(experiment);
  const TrainOptions& options = lab.options();
  Optimizer optimizer(lab.flat(), lab.grads(), options.optimizer);
  Outcome outcome;
  outcome.start = lab.flat().params().clone();
  for (std::int64_t step = 0; step < options.num_steps; ++step) {
    const GlobalBatch batch = lab.next();
    const double loss = accumulate(mistake, lab.loss_sum(), batch, lab.grads());
    const Clipping clip(gradient_norm(lab.grads()), options.clip_norm);
    optimizer.step(learning_rate(options.lr, step, options.num_steps), clip.factor);
    lab.grads().zero();
    if (step == 0) outcome.microbatch_targets = microbatch_targets(batch);
    outcome.losses.push_back(loss);
    outcome.grad_norms.push_back(clip.norm);
    outcome.param_norms.push_back(parameter_norm(lab.flat()));
    outcome.target_tokens.push_back(num_targets(batch));
  }
  const Microbatches validation = lab.validation();
  outcome.val_loss = evaluate(mistake, lab.loss_sum(), validation);
  const bool is_true = mistake != Mistake::kValidationMeans && mistake != Mistake::kPadding;
  outcome.true_val_loss =
      is_true ? outcome.val_loss : evaluate(Mistake::kNone, lab.loss_sum(), validation);
  outcome.params = lab.flat().params().clone();
  return outcome;
}

}  // namespace ladder::lab
