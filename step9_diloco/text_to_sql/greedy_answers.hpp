// What a trained model answers: for each prompt, the token that it finds most probable, again and
// again, until it ends the text.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/data/tokenizer.hpp"

namespace ladder {

struct AnswerLimits {
  std::int64_t context = 0;       // the model sees at most so many of the last tokens
  std::int64_t max_tokens = 256;  // of an answer, which is cut off there
  std::int64_t batch_size = 32;   // prompts that go through the model together
};

// Returns the answers in the order of the prompts. `forward` returns the logits [B, T, V] of tokens
// [B, T], T ≤ context; logits at a position depend on no later one. Prompts of about one length go
// through it together, the shorter ones padded behind their end. `on_progress` is called after each
// batch with the number of prompts that have been answered.
//
// Memory: the activations of one batch. A token costs a forward over its whole row: nothing is kept
//         from one token to the next.
std::vector<std::string> greedy_answers(
    const std::function<at::Tensor(const at::Tensor& tokens)>& forward, Tokenizer& tokenizer,
    const std::vector<std::string>& prompts, const AnswerLimits& limits,
    const std::function<void(std::size_t num_answered)>& on_progress = {});

}  // namespace ladder
