// Which kernel computes attention, and what it keeps for backward.
#pragma once

#include <cstdint>
#include <vector>

#include "common/core/device.hpp"
#include "common/core/precision.hpp"
#include "common/model/model_options.hpp"

namespace ladder {

// Who computes attention. libtorch's fused kernel saves no probabilities and is faster in fp32, but
// on a CPU in bf16 it takes 1.2 to 5 times as long as two products and a softmax
// (benchmarks/README.md).
enum class AttentionPath {
  kOnGpu,       // a fused kernel
  kFused,       // the CPU's, in fp32
  kWidened,     // the same, for 16-bit numbers as fp32
  kWrittenOut,  // two products and a softmax, as on paper
};

// The path on this machine's CPU, whose 16-bit instructions decide.
AttentionPath attention_path(NumberFormat format);

// All paths that a GPU, or any CPU, may take: nothing depends on this machine.
std::vector<AttentionPath> attention_paths(NumberFormat format, Device device);

// The bytes per token that attention saves for backward, apart from its result. `options` has kv_heads.
std::int64_t saved_bytes_of_attention(const ModelOptions& options, AttentionPath path);

// The most bytes per token that its backward adds to that while it computes: two gradients of all
// probabilities where it is written out; elsewhere a few of queries, keys and values.
std::int64_t working_bytes_of_attention(const ModelOptions& options, AttentionPath path);

}  // namespace ladder
