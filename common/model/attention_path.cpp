#include "common/model/attention_path.hpp"

#include "common/core/check.hpp"
#include "common/model/family.hpp"
#include "common/model/products.hpp"

namespace ladder {

AttentionPath attention_path(NumberFormat format) {
  if (!is_16_bit(format)) return AttentionPath::kFused;
  return has_instructions_for(format) ? AttentionPath::kWrittenOut : AttentionPath::kWidened;
}

std::vector<AttentionPath> attention_paths(NumberFormat format, Device device) {
  if (device.is_cuda()) return {AttentionPath::kOnGpu};
  if (!is_16_bit(format)) return {AttentionPath::kFused};
  if (format == NumberFormat::kFp16)
    return {AttentionPath::kWidened};  // no CPU has instructions that we use
  return {AttentionPath::kWidened, AttentionPath::kWrittenOut};
}

// Queries, keys and values. Norms of the first two also what came in, and one number each. The
// fused kernel also its output, which is the result itself in fp32, and one log-sum per head, all in
// fp32 if 16 bits are widened for it; the one that is written out all probabilities. A GPU's kernels
// copy heads whose channels are no multiple of 8, and in fp32 each query's shared keys and values.
std::int64_t saved_bytes_of_attention(const ModelOptions& options, AttentionPath path) {
  const std::int64_t H = options.heads, K = options.kv_heads, d = head_channels_of(options);
  const std::int64_t A = H * d, qkv = A + 2 * d * K, e = options.precision.param_bytes();
  const QkNorm qk_norm = traits_of(options.family).qk_norm();
  const std::int64_t norms =
      qk_norm == QkNorm::kNone ? 0
                               : e * d * (H + K) + 4 * (qk_norm == QkNorm::kOfEachHead ? H + K : 2);
  switch (path) {
    case AttentionPath::kFused:
      return norms + 4 * (qkv + H);
    case AttentionPath::kWidened:
      return norms + 4 * (qkv + A + H);
    case AttentionPath::kWrittenOut:
      return norms + e * (qkv + H * options.context);
    case AttentionPath::kOnGpu: {
      const std::int64_t padded = d % 8 == 0 ? 0 : (d + 7) / 8 * 8 * (2 * H + 2 * K);
      return norms + e * (qkv + padded + (e == 4 && K < H ? 2 * A : 0)) + 4 * H;
    }
  }
  throw CheckError("attention: no such path");
}

std::int64_t working_bytes_of_attention(const ModelOptions& options, AttentionPath path) {
  const std::int64_t A = query_channels_of(options), e = options.precision.param_bytes();
  const std::int64_t probabilities =
      path == AttentionPath::kWrittenOut ? options.heads * options.context : 0;
  return 2 * e * probabilities + 4 * 7 * A;
}

}  // namespace ladder
