#include "tests/parity/configurations.hpp"

#include "common/core/check.hpp"
#include "common/testing/encoded_bytes.hpp"
#include "common/train/start.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"

namespace ladder {

std::string Configuration::name() const {
  return concat(
      "m", num_microbatches, tie_embeddings ? " tied" : " untied",
      clip_norm > 0 ? " clip" : " no-clip", optimizer == OptimizerKind::kAdamW ? " adamw" : " sgd",
      rows == Rows::kWindows     ? " windows"
      : rows == Rows::kDocuments ? " documents"
                                 : " chat",
      tail == Tail::kDrop ? " drop" : " pad", has_small_buckets ? " small-buckets" : " one-bucket",
      has_odd_width ? " odd" : " even", is_sequential ? " sequential" : " shuffled",
      is_bf16 ? " bf16" : " fp32", is_llama ? " llama" : " gpt2",
      has_other_products ? " other-products" : " faster-products",
      recompute == Recompute::kNone    ? " kept"
      : recompute == Recompute::kCheap ? " cheap"
                                       : " blocks");
}

std::vector<Configuration> covering_set() {
  constexpr auto adamw = OptimizerKind::kAdamW, sgd = OptimizerKind::kSgd;
  constexpr auto windows = Rows::kWindows, documents = Rows::kDocuments;
  constexpr auto drop = Tail::kDrop, pad = Tail::kPad;
  constexpr auto kept = Recompute::kNone, cheap = Recompute::kCheap, blocks = Recompute::kBlocks;
  return {
      {1, true, 0.5, adamw, windows, drop, true, true, true, false, true, false, kept},
      {3, true, 0.5, adamw, documents, pad, true, true, false, false, false, true, blocks},
      {3, false, 0.0, sgd, windows, pad, true, false, true, false, true, true, blocks},
      {1, false, 0.5, sgd, documents, drop, false, true, true, true, false, true, kept},
      {3, false, 0.5, adamw, windows, drop, false, false, false, false, false, false, kept},
      {1, true, 0.0, sgd, documents, pad, false, false, false, true, false, false, kept},
      {3, true, 0.0, sgd, windows, drop, true, true, false, true, true, true, cheap},
      {1, false, 0.0, adamw, documents, drop, true, false, false, true, true, false, kept},
      {1, false, 0.0, adamw, windows, pad, false, true, false, true, false, true, blocks},
      {3, true, 0.5, sgd, documents, drop, false, false, false, false, true, false, blocks},
      // Besides: on 2 and 4 ranks, some have no target in any step, and in some steps no rank has.
      {1, true, 0.5, adamw, Rows::kChat, pad, false, true, true, false, false, false, cheap},
  };
}

std::vector<Configuration> full_product() {
  std::vector<Configuration> all;
  for (int bits = 0; bits < 8192; ++bits) {
    const auto bit = [bits](int i) { return (bits >> i & 1) != 0; };
    all.push_back({bit(0) ? 3 : 1, bit(1), bit(2) ? 0.5 : 0.0,
                   bit(3) ? OptimizerKind::kAdamW : OptimizerKind::kSgd,
                   bit(4) ? Rows::kWindows : Rows::kDocuments, bit(5) ? Tail::kDrop : Tail::kPad,
                   bit(6), bit(7), bit(8), bit(9), bit(10), bit(11),
                   bit(12) ? Recompute::kBlocks : Recompute::kNone});
  }
  return all;
}

Texts::Texts(const TempFolder& folder) {
  std::string text, lines;
  for (int i = 0; i < 70; ++i) text += concat("line ", i * i, " of a text that repeats itself. ");
  for (int i = 0; i < 101; ++i) {  // of 12 to 40 tokens, for rows of 24
    lines +=
        concat(R"({"question": "how many )", std::string(static_cast<std::size_t>(i % 29), 'x'),
               R"(?", "answer": ")", i, "\"}\n");
  }
  windows = folder.write("text.txt", text);
  documents = folder.write("documents.jsonl", lines);
  // Every other one, and all of 16 in a row, are cut off before the assistant's answer.
  EncodedParts talks = {.rows = "chat", .starts = {}, .tokens = {}};
  for (int i = 0; i < 100; ++i) {
    const bool is_whole = i % 2 == 0 && i / 16 != 1;
    const std::string shown = concat("a question", std::string(is_whole ? 1 : 40, 'x'), "?");
    const std::string said = concat(i, "th");
    talks.starts.push_back(std::ssize(talks.tokens));
    talks.tokens.insert(talks.tokens.end(), shown.begin(), shown.end());
    talks.tokens.insert(talks.tokens.end(), said.begin(), said.end());
    talks.tokens.push_back(ByteTokenizer::kEndOfText);
    talks.mask.insert(talks.mask.end(), shown.size(), 0);
    talks.mask.insert(talks.mask.end(), said.size() + 1, 1);
  }
  talks.sample = {{"text", "line "}, {"tokens", {'l', 'i', 'n', 'e', ' '}}};
  chat = folder.write("chat.bin", encoded_bytes(talks));
}

TrainOptions options_of(const Configuration& configuration, const Texts& texts) {
  TrainOptions options;
  options.num_steps = 12;
  options.model = {.family = configuration.is_llama ? ModelFamily::kLlama : ModelFamily::kGpt2,
                   .context = 24,
                   .layers = 2,
                   .heads = 2,
                   .kv_heads = configuration.is_llama ? 1 : 0,
                   .channels = configuration.has_odd_width ? 20 : 32,
                   .tie_embeddings = configuration.tie_embeddings};
  if (configuration.has_other_products)
    options.model.products =
        faster_products() == Products::kBlas ? Products::kOneDnn : Products::kBlas;
  options.model.recompute = configuration.recompute;
  if (configuration.is_bf16) options.model.precision.params = NumberFormat::kBf16;
  options.data.rows = configuration.rows;
  options.data.source = configuration.rows == Rows::kWindows     ? texts.windows
                        : configuration.rows == Rows::kDocuments ? texts.documents
                                                                 : texts.chat;
  options.data.validation_source = options.data.source;
  options.data.validation_samples = 14;
  options.data.tail = configuration.tail;
  options.data.order =
      configuration.is_sequential ? SampleOrder::kSequential : SampleOrder::kShuffled;
  options.data.microbatch_size = 2;
  options.data.num_microbatches = configuration.num_microbatches;
  options.optimizer.kind = configuration.optimizer;
  options.lr = {.lr = configuration.optimizer == OptimizerKind::kAdamW ? 1e-3 : 0.1,
                .warmup_steps = 3};
  options.clip_norm = configuration.clip_norm;
  options.set<BucketOptions>().capacity_mb = configuration.has_small_buckets ? 8.0 / 1024 : 25;
  options.output.is_quiet = true;
  options.output.eval_every = 6;
  finalize(options);
  return options;
}

}  // namespace ladder
