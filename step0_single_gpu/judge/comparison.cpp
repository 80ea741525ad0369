#include "step0_single_gpu/judge/comparison.hpp"

#include <ATen/ops/empty.h>

#include <cmath>
#include <utility>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "common/testing/closeness.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/report/console.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/train.hpp"

namespace ladder {
namespace {

// The mission's floor for parameters and norms: smaller differences may be rounding.
constexpr double kFloor = 1e-6;

class Comparison {
 public:
  Comparison(const FinishedRun& run, const FinishedRun& wanted) : run_(run), wanted_(wanted) {}

  template <class Value>
  void series(const char* what, const std::vector<Value>& found, const std::vector<Value>& wanted) {
    if (found.size() != wanted.size()) {
      add(found_.series, what, ": ", found.size(), " steps instead of ", wanted.size());
      return;
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto a = static_cast<double>(found[i]), b = static_cast<double>(wanted[i]);
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      add(found_.series, "step ", run_.report.first_step + static_cast<std::int64_t>(i) + 1, " of ",
          run_.report.first_step + static_cast<std::int64_t>(found.size()), ": ", what, " is ",
          digits(a), ", wanted ", digits(b), distance(std::abs(a - b) / std::abs(b)));
      return;  // later differences follow from this one
    }
  }

  void evaluations() {
    const auto &found = run_.report.val_losses, &wanted = wanted_.report.val_losses;
    if (each(found, &ValidationLoss::step) != each(wanted, &ValidationLoss::step))
      add(found_.series, "validation losses are not after the wanted steps");
    series("the validation loss", each(found, &ValidationLoss::loss),
           each(wanted, &ValidationLoss::loss));
  }

  void parameters() {
    if (run_.report.param_hash == wanted_.report.param_hash) return;
    add(found_.hash, "the parameters' hash is ", run_.report.param_hash, ", wanted ",
        wanted_.report.param_hash);
    const auto found = newest_checkpoint(run_.folder), wanted = newest_checkpoint(wanted_.folder);
    if (run_.folder.empty() || wanted_.folder.empty() || !found || !wanted) return;
    SafetensorsReader a(*found / "model.safetensors"), b(*wanted / "model.safetensors");
    for (const StoredTensor& stored : b.tensors()) tensor(a, b, stored);
  }

  Differences take() { return std::move(found_); }

 private:
  void tensor(SafetensorsReader& a, SafetensorsReader& b, const StoredTensor& stored) {
    const at::Tensor found = at::empty(stored.shape, stored.dtype);
    const at::Tensor wanted = at::empty(stored.shape, stored.dtype);
    a.read(stored.name, found);
    b.read(stored.name, wanted);
    const auto num_different = found.ne(wanted).sum().item<std::int64_t>();
    if (num_different == 0) return;
    add(found_.tensors, "tensor '", stored.name, "' differs in ", num_different, " of ",
        found.numel(), " elements", distance(relative_distance(found, wanted)));
  }

  template <class Value>
  static std::vector<Value> each(const std::vector<ValidationLoss>& losses,
                                 Value ValidationLoss::*member) {
    std::vector<Value> values;
    for (const ValidationLoss& loss : losses) values.push_back(loss.*member);
    return values;
  }
  static std::string distance(double relative) {
    if (!std::isfinite(relative)) return "";
    return concat(" (relative distance ", relative,
                  relative <= kFloor ? ", within rounding)" : ", more than rounding)");
  }
  template <class... Parts>
  static void add(std::vector<std::string>& lines, const Parts&... parts) {
    lines.push_back(concat(parts...));
  }

  const FinishedRun& run_;
  const FinishedRun& wanted_;
  Differences found_;
};

}  // namespace

Differences compare_runs(const FinishedRun& run, const FinishedRun& wanted) {
  Comparison comparison(run, wanted);
  comparison.series("the denominator", run.report.denominators, wanted.report.denominators);
  comparison.series("the loss", run.report.losses, wanted.report.losses);
  comparison.series("the gradient norm", run.report.grad_norms, wanted.report.grad_norms);
  comparison.series("the parameter norm", run.report.param_norms, wanted.report.param_norms);
  comparison.evaluations();
  comparison.parameters();
  return comparison.take();
}

std::vector<std::string> differences(const FinishedRun& run, const FinishedRun& wanted) {
  std::vector<std::string> all;
  const auto [series, hash, tensors] = compare_runs(run, wanted);
  for (const std::vector<std::string>& lines : {series, hash, tensors}) {
    for (const std::string& line : lines)
      all.push_back(concat(run.name, " against ", wanted.name, ": ", line));
  }
  return all;
}

FinishedRun ask_oracle(TrainOptions options, int num_replicas, const std::string& out) {
  const Trainer oracle = step0::trainer();
  SelfCommunicator alone;
  if (options.gradient_sum == SumMode::kExact)
    options.data.step_microbatches = microbatches_of_all(options, std::exchange(num_replicas, 1));
  options.set<OracleOptions>() = {num_replicas};
  options.output.out = out;
  options = options_for(oracle, options);
  return {oracle.step, oracle.train(options, alone), out};
}

TrainOptions with_sums_of_any_order(TrainOptions options) {
  if (options.model.precision.grads != NumberFormat::kFp32) options.data.num_microbatches = 1;
  if (options.data.num_microbatches > 1) options.gradient_sum = SumMode::kExact;
  return options;
}

}  // namespace ladder
