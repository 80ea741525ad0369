#include "step9_diloco/text_to_sql/greedy_answers.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "common/core/check.hpp"
#include "common/data/text_file.hpp"

namespace ladder {
namespace {

struct Row {
  std::size_t prompt = 0;            // its index
  std::vector<std::int64_t> tokens;  // of the prompt, and what has been written
  std::vector<std::uint32_t> written;
  bool has_ended = false;

  std::int64_t seen(std::int64_t context) const {
    return std::min<std::int64_t>(std::ssize(tokens), context);
  }
};

Row row_of(std::size_t prompt, const std::string& text, Tokenizer& tokenizer) {
  Row row{prompt, {}, {}};
  for (const std::uint32_t token : start_of_document(text, tokenizer).ids())
    row.tokens.push_back(token);
  return row;
}

// The last tokens of each row: [rows, context or fewer].
at::Tensor window_of(std::span<const Row> rows, const Tokenizer& tokenizer, std::int64_t context) {
  std::int64_t longest = 0;
  for (const Row& row : rows) longest = std::max(longest, row.seen(context));
  at::Tensor window = at::full({std::ssize(rows), longest},
                               static_cast<std::int64_t>(tokenizer.padding()), at::kLong);
  auto* to = window.mutable_data_ptr<std::int64_t>();
  for (const Row& row : rows) {
    std::copy(row.tokens.end() - row.seen(context), row.tokens.end(), to);
    to += longest;
  }
  return window;
}

void write_answers(std::span<Row> rows,
                   const std::function<at::Tensor(const at::Tensor& tokens)>& forward,
                   const Tokenizer& tokenizer, const AnswerLimits& limits) {
  for (std::int64_t written = 0; written < limits.max_tokens; ++written) {
    const at::Tensor logits =
        forward(window_of(rows, tokenizer, limits.context)).narrow(2, 0, tokenizer.vocab_size());
    bool all_have_ended = true;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Row& row = rows[i];
      if (row.has_ended) continue;
      const auto number = static_cast<std::int64_t>(i);
      const std::int64_t token =
          logits[number][row.seen(limits.context) - 1].argmax().item<std::int64_t>();
      row.has_ended = token == tokenizer.end_of_text() || token == tokenizer.padding();
      if (row.has_ended) continue;
      all_have_ended = false;
      row.tokens.push_back(token);
      row.written.push_back(static_cast<std::uint32_t>(token));
    }
    if (all_have_ended) return;
  }
}

}  // namespace

std::vector<std::string> greedy_answers(
    const std::function<at::Tensor(const at::Tensor& tokens)>& forward, Tokenizer& tokenizer,
    const std::vector<std::string>& prompts, const AnswerLimits& limits,
    const std::function<void(std::size_t num_answered)>& on_progress) {
  check(limits.context > 0 && limits.batch_size > 0, "a context of ", limits.context,
        " tokens and batches of ", limits.batch_size, " prompts: both must be positive");
  const at::NoGradGuard no_grad;
  std::vector<Row> rows;
  for (std::size_t i = 0; i < prompts.size(); ++i) rows.push_back(row_of(i, prompts[i], tokenizer));
  std::ranges::stable_sort(rows, {}, [](const Row& row) { return row.tokens.size(); });
  std::vector<std::string> answers(prompts.size());
  const auto at_once = static_cast<std::size_t>(limits.batch_size);
  for (std::size_t first = 0; first < rows.size(); first += at_once) {
    const std::span batch = std::span(rows).subspan(first, std::min(at_once, rows.size() - first));
    write_answers(batch, forward, tokenizer, limits);
    for (const Row& row : batch) answers[row.prompt] = tokenizer.decode(row.written);
    if (on_progress) on_progress(first + batch.size());
  }
  return answers;
}

}  // namespace ladder
