#include "common/train/report/step_record.hpp"

#include <cmath>

#include "common/core/check.hpp"

namespace ladder {

const char* non_finite_value(const StepRecord& record, bool has_loss_scale) {
  if (!std::isfinite(record.loss)) return "loss";
  if (!has_loss_scale && !std::isfinite(record.grad_norm)) return "gradient norm";
  if (!std::isfinite(record.param_norm)) return "parameter norm";
  return nullptr;
}

std::string explain_divergence(const StepRecord& record, std::int64_t step,
                               const TrainOptions& options) {
  const char* clipping = options.clip_norm == 0 ? "turn clipping on (--clip-norm 1)"
                                                : "clip harder (a smaller --clip-norm)";
  return concat("step ", step, ": the ", non_finite_value(record), " is not finite (loss ",
                record.loss, ", gradient norm ", record.grad_norm, ", parameter norm ",
                record.param_norm,
                "): training has diverged. Nothing of this step was saved. Try a ",
                "lower --lr (now ", options.lr.lr, "), a longer warmup (--warmup-steps, now ",
                options.lr.warmup_steps, "), or ", clipping);
}

}  // namespace ladder
