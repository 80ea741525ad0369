// What options mean together, once it is known what the files say that they name.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/data/tokenizer.hpp"
#include "common/model/model_options.hpp"
#include "common/train/options/options.hpp"

namespace ladder {

// The model that a run starts from (start.hpp).
struct StartModel {
  ModelOptions model;  // `context` is the longest that it can have
  std::string file;    // that says so
  bool is_of_another_program = false;
};

// Opens the files that options name, when they are needed. What is left out is not there: then a run
// starts from its seed, and the tokens are bytes.
struct StartFiles {
  std::function<StartModel()> model = {};
  std::function<std::shared_ptr<const TokenizerFiles>(const DataOptions& options)> tokenizer = {};
};

// Copies what the files say and values that several parts share into the parts: the shape of the
// start or of the named model, where an option has not been given; the tokenizer and its vocabulary;
// the data's context and seed. Then checks everything that can be checked without opening the data.
// Throws UsageError, and what opening the files throws.
void finalize(TrainOptions& options, const StartFiles& files);

}  // namespace ladder
