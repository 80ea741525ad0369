// How many operators one microbatch launches, as docs/gpu.md says.

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/core/check.hpp"
#include "common/model/build_layers.hpp"
#include "common/testing/operator_calls.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;

struct Passes {
  OperatorCalls forward, backward;
};

// What the dispatcher is asked for while a model of so many blocks computes the gradients of one
// microbatch, and adds them to those of another.
Passes count_operators(std::int64_t layers) {
  const Model model = build_layers(
      {.vocab_size = 50, .context = 16, .layers = layers, .heads = 2, .channels = 32}, 1);
  for (const NamedTensor& leaf : model.leaves())
    leaf.tensor.mutable_grad() = at::zeros_like(leaf.tensor);
  const at::Tensor tokens = at::zeros({4, 16}, at::kLong);

  at::Tensor logits, loss;
  Passes passes;
  passes.forward = operator_calls_of([&] {
    logits = model.forward(tokens);
    loss = at::cross_entropy_loss(logits.flatten(0, 1), tokens.flatten(), {}, at::Reduction::Sum);
  });
  passes.backward = operator_calls_of([&] { loss.backward(); });
  return passes;
}

struct Row {
  const char* name;
  std::vector<const char*> operators;
};

int count(const Row& row, const OperatorCalls& counts) {
  int sum = 0;
  for (const char* name : row.operators)
    if (const auto found = counts.find(name); found != counts.end()) sum += found->second;
  return sum;
}

// Views launch nothing. Copies and fills depend on the library that multiplies.
TEST(Operators, OfOneMicrobatchAreThoseOfThePage) {
  const std::vector<Row> rows = {
      {"products", {"mkldnn::_linear_pointwise", "aten::addmm", "aten::mm"}},
      {"attention",
       {"aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward"}},
      {"LayerNorm", {"aten::native_layer_norm", "aten::native_layer_norm_backward"}},
      {"GELU", {"aten::gelu", "aten::gelu_backward", "gelu", "gelu_backward"}},
      {"additions: residuals, gradients to `.grad`", {"aten::add", "aten::add_"}},
      {"sums over rows: gradients of biases and positions", {"aten::sum"}},
      {"gradients of queries, keys and values, joined", {"aten::cat"}},
      {"look-up of tokens", {"aten::index_select", "aten::embedding_dense_backward"}},
      {"loss",
       {"aten::_log_softmax", "aten::nll_loss_forward", "aten::_log_softmax_backward_data",
        "aten::nll_loss_backward"}},
  };
  const Passes one = count_operators(1), two = count_operators(2), twelve = count_operators(12);
  int total[4] = {};
  for (const Row& row : rows) {
    const int block[] = {count(row, two.forward) - count(row, one.forward),
                         count(row, two.backward) - count(row, one.backward)};
    const int rest[] = {count(row, one.forward) - block[0], count(row, one.backward) - block[1]};
    EXPECT_EQ(count(row, twelve.forward), 12 * block[0] + rest[0]) << row.name;
    EXPECT_EQ(count(row, twelve.backward), 12 * block[1] + rest[1]) << row.name;
    total[0] += block[0], total[1] += block[1], total[2] += rest[0], total[3] += rest[1];
  }
  std::string page;
  std::ifstream file(LADDER_SOURCE "/docs/gpu.md");
  for (std::string word; file >> word;) page += word + " ";
  EXPECT_THAT(page, HasSubstr(concat("each block takes ", total[0], " and ", total[1],
                                     " operators; embedding, head and loss take ", total[2],
                                     " and ", total[3], ". In all these are ",
                                     12 * (total[0] + total[1]) + total[2] + total[3], ",")));
}

}  // namespace
}  // namespace ladder
