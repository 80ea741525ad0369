#include "step0_single_gpu/judge/cases.hpp"

#include <filesystem>
#include <fstream>

#include "common/core/check.hpp"
#include "common/train/report/console.hpp"

namespace ladder {

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"one step of SGD, one microbatch",
       [](TrainOptions& options) {
         options.num_steps = 1;
         options.optimizer.kind = OptimizerKind::kSgd;
         options.optimizer.weight_decay = 0;
       }},
      {"three microbatches, tied embeddings",
       [](TrainOptions& options) {
         options.data.num_microbatches = 3;
         options.model.tie_embeddings = true;
         options.model.channels = 20;
       }},
      {"AdamW with a decay, clipping, and an evaluation after every step",
       [](TrainOptions& options) {
         options.num_steps = 3;
         options.optimizer = {.weight_decay = 0.3, .beta1 = 0.7, .beta2 = 0.9, .eps = 1e-3};
         options.clip_norm = 0.5;
         options.output.eval_every = 1;
       }},
      {"documents of different lengths, and an epoch that ends",
       [](TrainOptions& options) {
         options.num_steps = 7;  // on two ranks the last one is in the next epoch
         options.data.rows = Rows::kDocuments;
         options.data.tail = Tail::kPad;
         options.data.num_microbatches = 2;
         options.clip_norm = 1;
       }},
      {"parameters in bf16 without masters, gradients in fp32",
       [](TrainOptions& options) {
         options.model.precision.params = NumberFormat::kBf16;
         options.optimizer.masters = Masters::kNone;
         options.data.num_microbatches = 3;
       }},
      {"parameters and gradients in bf16, two blocks",
       [](TrainOptions& options) {
         options.model.precision = {NumberFormat::kBf16, NumberFormat::kBf16};
         options.model.layers = 2;
         options.model.tie_embeddings = true;
         options.data.num_microbatches = 2;
         options.clip_norm = 1;
       }},
      {"parameters and gradients in fp16, which overflow at first",
       [](TrainOptions& options) {
         options.num_steps = 8;
         options.model.precision = {NumberFormat::kFp16, NumberFormat::kFp16};
         options.loss_scale = {.initial = 1 << 22, .window = 2};
         options.data.num_microbatches = 2;
         options.clip_norm = 0.5;
       }},
      {"parameters in bf16, stochastic rounding instead of masters",
       [](TrainOptions& options) {
         options.model.precision.params = NumberFormat::kBf16;
         options.optimizer.masters = Masters::kStochastic;
         options.optimizer.weight_decay = 0.1;
         options.seed = 7;
       }},
      // Exact sums go on from the block sums of the gradient's norm.
      {"exact sums, and a checkpoint in the middle, from which it goes on",
       [](TrainOptions& options) {
         options.num_steps = 4;
         options.gradient_sum = SumMode::kExact;
         options.data.num_microbatches = 2;
         options.output.save_every = 2;
       },
       /*resumes=*/true},
      {"forty steps", [](TrainOptions& options) { options.num_steps = 40; }},
  };
  return all;
}

Case drawn_case(Draw& draw) {
  const auto change = [&draw](TrainOptions& options) {
    options.num_steps = draw.number(2, 4);
    options.seed = static_cast<std::uint64_t>(draw.number(1, 1000));
    options.model.context = draw.number(5, 15);
    options.model.layers = draw.number(1, 2);
    options.model.heads = draw.number(3, 4);
    options.model.channels = options.model.heads * draw.number(7, 9);
    options.model.tie_embeddings = draw.coin();
    options.data.num_microbatches = draw.number(5, 9);
    options.data.microbatch_size = draw.number(1, 3);
    if (draw.coin()) {
      options.data.rows = Rows::kDocuments;
      options.data.tail = Tail::kPad;
    }
    if (draw.coin()) options.optimizer.kind = OptimizerKind::kSgd;
    options.optimizer.weight_decay = static_cast<double>(draw.number(0, 3)) / 10;
    options.clip_norm = static_cast<double>(draw.number(0, 20)) / 10;
  };
  return {"drawn at random", change};
}

std::string shape_of(const TrainOptions& options) {
  const ModelOptions& model = options.model;
  const DataOptions& data = options.data;
  return concat(
      count_of(options.num_steps, "step"), " of ", count_of(data.num_microbatches, "microbatch"),
      " of ", count_of(data.microbatch_size, data.rows == Rows::kDocuments ? "document" : "row"),
      " of ", model.context, " tokens, ", count_of(model.layers, "block"), " of ", model.heads,
      " heads and ", model.channels, " channels", model.tie_embeddings ? ", tied embeddings" : "");
}

CaseTexts::CaseTexts(const std::string& folder)
    : windows(folder + "/text.txt"), documents(folder + "/documents.jsonl") {
  std::filesystem::create_directories(folder);
  std::ofstream text(windows), lines(documents);
  for (int i = 0; i < 60; ++i) text << "line " << i * i << " of a text that repeats itself. ";
  for (int i = 0; i < 41; ++i) {  // of 3 to 15 tokens, for rows of 12
    lines << R"({"question": ")" << std::string(static_cast<std::size_t>(i % 9), 'x')
          << R"(", "answer": ")" << i << "\"}\n";
  }
}

TrainOptions options_of(const Case& one, const CaseTexts& texts) {
  TrainOptions options;
  options.num_steps = 2;
  options.model = {.context = 12, .layers = 1, .heads = 2, .channels = 16, .tie_embeddings = false};
  options.data.microbatch_size = 2;
  options.data.validation_samples = 6;
  options.clip_norm = 0;
  options.lr = {.lr = 0.01};
  options.output.is_quiet = true;
  one.change(options);
  options.data.source = options.data.rows == Rows::kDocuments ? texts.documents : texts.windows;
  options.data.validation_source = options.data.source;
  return options;
}

}  // namespace ladder
