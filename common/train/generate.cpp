#include "common/train/generate.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"
#include "common/core/trace.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {
namespace {

constexpr double kTemperature = 0.7;

std::int64_t choose(const at::Tensor& logits, Random& random) {
  const at::Tensor probabilities = (logits.cpu().to(at::kDouble) / kTemperature).softmax(0);
  const auto* p = probabilities.const_data_ptr<double>();
  double left = random.uniform();
  for (std::int64_t token = 0; token < probabilities.numel(); ++token) {
    left -= p[token];
    if (left < 0) return token;
  }
  return probabilities.argmax().item<std::int64_t>();  // rounding left a remainder
}

}  // namespace

std::string generate(const std::function<at::Tensor(const at::Tensor& tokens)>& forward,
                     const TrainOptions& options, std::int64_t max_tokens) {
  check(options.model.vocab_size == ByteTokenizer::kVocabSize,
        "only a model of bytes can generate text, this one has ", options.model.vocab_size,
        " tokens");
  const Span span("sample");
  const at::NoGradGuard no_grad;
  Random random(derive_seed(options.seed, "sample"));
  std::vector<std::int64_t> tokens = {ByteTokenizer::kEndOfText};  // precedes every document
  for (const std::uint16_t token : ByteTokenizer::encode(options.output.sample))
    tokens.push_back(token);
  std::vector<std::uint16_t> written;
  while (static_cast<std::int64_t>(written.size()) < max_tokens) {
    const std::int64_t seen =
        std::min<std::int64_t>(static_cast<std::int64_t>(tokens.size()), options.model.context);
    const at::Tensor window = at::tensor(
        at::ArrayRef<std::int64_t>(tokens).slice(tokens.size() - static_cast<std::size_t>(seen)));
    const std::int64_t token =
        choose(forward(window.unsqueeze(0)).select(0, 0).select(0, -1), random);
    if (token >= ByteTokenizer::kEndOfText) break;
    tokens.push_back(token);
    written.push_back(static_cast<std::uint16_t>(token));
  }
  return ByteTokenizer::decode(written);
}

}  // namespace ladder
