#include "step0_single_gpu/cross_entropy_in_parts.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "common/core/cuda_device.hpp"
#include "common/core/torch_types.hpp"
#include "common/core/tree_sum.hpp"
#include "common/data/batch.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What is known of each row from some of the parts. All [N].
struct SumOfRows {
  at::Tensor max, sum, target;
};

SumOfRows join_rows(const SumOfRows& left, const SumOfRows& right) {
  const at::Tensor max = at::maximum(left.max, right.max);
  return {max, left.sum * (left.max - max).exp() + right.sum * (right.max - max).exp(),
          left.target + right.target};
}

// One of this process's parts.
class OwnPart {
 public:
  OwnPart(const VocabParts& parts, int i, const at::Tensor& targets)
      : start_(parts.begin(parts.first + i) - parts.begin(parts.first)),
        length_(parts.begin(parts.first + i + 1) - parts.begin(parts.first + i)),
        targets_(targets - parts.begin(parts.first + i)) {}

  at::Tensor columns_of(const at::Tensor& logits) const {
    return logits.narrow(1, start_, length_);
  }
  at::Tensor target_of(const at::Tensor& columns) const {
    return at::where(has_target(), columns.gather(1, column()).squeeze(1), 0);
  }
  void add_to_target(const at::Tensor& columns, const at::Tensor& values) const {
    columns.scatter_add_(1, column(), at::where(has_target(), values, 0).unsqueeze(1));
  }

 private:
  at::Tensor has_target() const {
    // One that is ignored is negative.
    return targets_.ge(0).logical_and_(targets_.lt(length_));
  }
  at::Tensor column() const { return targets_.clamp(0, length_ - 1).unsqueeze(1); }

  std::int64_t start_, length_;
  at::Tensor targets_;  // [N], counted from the part's first token
};

SumOfRows of_all_owners(const SumOfRows& own, const VocabParts& parts) {
  // Each fills in its own rows; zeros change nothing.
  if (!parts.start_sum) return own;
  const int num_owners = parts.total / parts.own;
  const at::Tensor all = at::zeros({num_owners, 3, own.max.size(0)}, own.max.options());
  const at::Tensor mine = all[parts.first / parts.own];
  mine[0].copy_(own.max);
  mine[1].copy_(own.sum);
  mine[2].copy_(own.target);
  parts.sum(all);
  return tree_sum(
      0, num_owners,
      [&](int i) {
        return SumOfRows{all[i][0], all[i][1], all[i][2]};
      },
      join_rows);
}

// logits [N, own tokens] in fp32, targets [N] -> [].
struct CrossEntropyInParts : torch::autograd::Function<CrossEntropyInParts> {
  struct Kept : torch::CustomClassHolder {
    explicit Kept(VocabParts the_parts) : parts(std::move(the_parts)) {}
    VocabParts parts;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets, const VocabParts& parts) {
    variable_list saved;
    const auto of_part = [&](int i) -> SumOfRows {
      const OwnPart part(parts, i, targets);
      const at::Tensor columns = part.columns_of(logits);
      const at::Tensor max = columns.amax(1);
      const at::Tensor exps = (columns - max.unsqueeze(1)).exp_();  // of one layout, whoever has it
      saved.insert(saved.end(), {exps, max});
      return {max, exps.sum(1), part.target_of(columns)};
    };
    const SumOfRows rows = of_all_owners(tree_sum(0, parts.own, of_part, join_rows), parts);
    const at::Tensor is_counted = targets.ne(kIgnoredTarget);
    saved.insert(saved.end(), {rows.max, rows.sum, targets});
    context->save_for_backward(saved);
    context->saved_data["parts"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(parts));
    const at::Tensor losses = rows.sum.log() + (rows.max - rows.target);
    return losses.masked_fill(is_counted.logical_not(), 0).sum();
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const auto kept =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data["parts"].toCapsule());
    const VocabParts& parts = kept->parts;
    const std::size_t last = saved.size();
    const at::Tensor &max = saved[last - 3], &sum = saved[last - 2], &targets = saved[last - 1];
    const at::Tensor upstream = at::where(targets.ne(kIgnoredTarget), outputs[0], 0);  // [N]
    const std::int64_t own_tokens = parts.begin(parts.first + parts.own) - parts.begin(parts.first);
    const at::Tensor gradient = at::empty({targets.size(0), own_tokens}, max.options());
    for (int i = 0; i < parts.own; ++i) {
      const at::Tensor& exps = saved[2 * static_cast<std::size_t>(i)];
      const at::Tensor& own_max = saved[2 * static_cast<std::size_t>(i) + 1];
      const OwnPart part(parts, i, targets);
      at::Tensor columns = part.columns_of(gradient);
      at::mul_out(columns, exps, ((own_max - max).exp_() * upstream / sum).unsqueeze(1));
      part.add_to_target(columns, -upstream);
    }
    return {gradient, {}, {}};
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets,
                             const VocabParts& parts) {
  const at::Tensor there = to_device(targets, logits.device());
  return CrossEntropyInParts::apply(widened(logits).flatten(0, -2), there.flatten(), parts);
}

}  // namespace ladder
