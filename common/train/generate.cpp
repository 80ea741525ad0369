#include "common/train/generate.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <set>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"
#include "common/core/trace.hpp"
#include "common/data/encoded_file.hpp"
#include "common/data/text_file.hpp"
#include "common/data/tokenizer_source.hpp"

namespace ladder {
namespace {

constexpr double kTemperature = 0.7;

// Draws one of the tokens that the logits are about.
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

// What the model sees first.
TokenList start_of(const TrainOptions& options, Tokenizer& tokenizer) {
  const std::string& text = options.output.sample;
  if (is_encoded(options.data.source)) return tokenizer.encode(text);  // with what surrounds it
  return start_of_document(text, tokenizer);
}

// The tokens after which a text is over.
std::set<std::int64_t> ends_of(const Tokenizer& tokenizer) {
  return {tokenizer.end_of_text(), tokenizer.padding()};
}

std::unique_ptr<Tokenizer> tokenizer_of(const TrainOptions& options) {
  check(!has_unknown_tokens(options.data),
        "the data consist of token ids, so what the model writes ",
        "has no text; name their tokenizer with --tokenizer");
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options.data);
  check(options.model.vocab_size >= tokenizer->vocab_size(), "the model has ",
        options.model.vocab_size, " tokens, too few for the ", tokenizer->vocab_size(),
        " of the tokenizer '", tokenizer->name(), "'");
  return tokenizer;
}

}  // namespace

void check_can_generate(const TrainOptions& options) {
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(options);
  start_of(options, *tokenizer);
}

std::string generate(const std::function<at::Tensor(const at::Tensor& tokens)>& forward,
                     const TrainOptions& options, std::int64_t max_tokens) {
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(options);
  const Span span("sample");
  const at::NoGradGuard no_grad;
  Random random(derive_seed(options.seed, "sample"));
  const std::set<std::int64_t> ends = ends_of(*tokenizer);
  const TokenList start = start_of(options, *tokenizer);
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < start.size(); ++i) tokens.push_back(start[i]);
  std::vector<std::uint32_t> written;
  while (static_cast<std::int64_t>(written.size()) < max_tokens) {
    const std::int64_t seen =
        std::min<std::int64_t>(static_cast<std::int64_t>(tokens.size()), options.model.context);
    const at::Tensor window = at::tensor(
        at::ArrayRef<std::int64_t>(tokens).slice(tokens.size() - static_cast<std::size_t>(seen)));
    const at::Tensor logits = forward(window.unsqueeze(0)).select(0, 0).select(0, -1);
    const std::int64_t token = choose(logits.narrow(0, 0, tokenizer->vocab_size()), random);
    if (ends.contains(token)) break;
    tokens.push_back(token);
    written.push_back(static_cast<std::uint32_t>(token));
  }
  return tokenizer->decode(written);
}

}  // namespace ladder
