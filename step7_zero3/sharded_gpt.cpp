#include "step7_zero3/sharded_gpt.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/core/check.hpp"

namespace ladder {
namespace {

ShardPlan plan_model(const GptOptions& options, const Communicator& comm,
                     const PrepareUnit& prepare) {
  const Gpt shapes(options, /*seed=*/0, prepare, at::kMeta);
  return plan_shards(plan_flat_layout(shapes.units(), shard_multiple(comm.size())), comm.size(),
                     comm.rank());
}

}  // namespace

ShardedGpt::ShardedGpt(const GptOptions& options, std::uint64_t seed, int prefetch,
                       Communicator& comm, const PrepareUnit& prepare)
    : plan_(plan_model(options, comm, prepare)),
      units_(plan_, comm),
      model_(options, seed,
             [&](const Unit& unit) {
               if (prepare) prepare(unit);
               units_.add(unit);
             }),
      last_(units_.num_units() - 1),
      prefetch_(static_cast<std::size_t>(prefetch)) {
  check(prefetch >= 0, "ShardedGpt: prefetch is ", prefetch, ", it must be at least 0");
}

at::Tensor ShardedGpt::forward(const at::Tensor& tokens) {
  units_.reshard_all();  // what a backward that never came has left
  begin_forward(0);
  at::Tensor x = model_.embedding()(tokens);
  on_gradient_of_output(x, 0);
  end_forward(0);
  for (std::size_t u = 1; u < last_; ++u) {
    begin_forward(u);
    x = model_.blocks()[u - 1](x);
    on_gradient_of_output(x, u);
    end_forward(u);
  }
  begin_forward(last_);
  const at::Tensor logits = model_.head()(x);
  on_gradient_of_output(logits, last_);
  end_forward(last_);
  return logits;
}

at::Tensor ShardedGpt::loss_sum(const at::Tensor& tokens, const at::Tensor& targets) {
  return cross_entropy_sum(forward(tokens), targets);
}

void ShardedGpt::begin_forward(std::size_t unit) {
  for (std::size_t u = unit; u <= std::min(unit + prefetch_, last_); ++u) units_.start_unshard(u);
  units_.unshard(unit);
}

bool ShardedGpt::is_kept(std::size_t unit) const {
  return unit == last_ || (unit == 0 && options().tie_embeddings);
}

void ShardedGpt::end_forward(std::size_t unit) {
  if (!is_kept(unit)) units_.reshard(unit);
  if (unit == last_ && !at::GradMode::is_enabled()) units_.reshard_all();  // no backward will come
}

void ShardedGpt::on_gradient_of_output(const at::Tensor& output, std::size_t unit) {
  if (!output.requires_grad()) return;
  output.register_hook([this, unit](const at::Tensor& /*gradient*/) { begin_backward(unit); });
}

// Units are gone through in reverse. The gradient at the output of one is the gradient at the input of
// the one after it, whose backward is over then.
void ShardedGpt::begin_backward(std::size_t unit) {
  if (unit < last_) units_.reshard(unit + 1);
  if (unit + 1 == last_) units_.reshard(0);  // tied, it was kept for the head
  for (std::size_t u = unit; u >= 1 && u + prefetch_ >= unit; --u) units_.start_unshard(u);
  if (unit >= 1) units_.unshard(unit);
  // Whole already, unless another forward has come between.
  if (unit == last_ && is_kept(0)) units_.unshard(0);
}

}  // namespace ladder
