#include "common/train/options/option_table.hpp"

namespace ladder {
namespace {

const std::vector<std::pair<std::string, NumberFormat>> kFormats = {
    {"fp32", NumberFormat::kFp32}, {"bf16", NumberFormat::kBf16}, {"fp16", NumberFormat::kFp16}};

constexpr std::int64_t kMostContext = std::int64_t{1} << 22;
constexpr std::int64_t kMostLayers = std::int64_t{1} << 16;
constexpr std::int64_t kMostChannels = std::int64_t{1} << 18;
constexpr std::int64_t kMostMlpChannels = std::int64_t{1} << 20;
constexpr std::int64_t kMostHeads = std::int64_t{1} << 12;
constexpr int kMostThreads = 1024;
constexpr double kMostDecay = 1e6;  // times the learning rate, it is still an fp32
constexpr double kMostSeconds = 1e9;

// What several options have an effect with only.
bool is_adamw(const TrainOptions& o) {
  return o.optimizer.kind == OptimizerKind::kAdamW;
}
bool may_be_nccl(const TrainOptions& o) {
  return o.transport == Transport::kNccl || (o.transport == Transport::kAuto && o.device.is_cuda());
}
bool is_validated(const TrainOptions& o) {
  return o.output.eval_every > 0;
}
bool has_decay(const TrainOptions& o) {
  return o.lr.schedule != LrSchedule::kConstant;
}
bool is_on_cpu(const TrainOptions& o) {
  return o.device.is_cpu();
}
bool is_on_gpu(const TrainOptions& o) {
  return o.device.is_cuda();
}

void declare_run(OptionTable& t, TrainOptions& o) {
  t.heading("Run");
  t.number("--steps", o.num_steps, kCount,
           "optimizer steps in total, including those before a resume");
  t.value("--seed", o.seed, "seed for the model's initial values and the order of samples");
  t.number("--threads", o.num_threads, {1, kMostThreads},
           "compute threads per rank; steps agree to the bit only with 1");
  t.choice("--products", o.model.products,
           {{"auto", faster_products()}, {"onednn", Products::kOneDnn}, {"blas", Products::kBlas}},
           "library for fp32 matrix products on the CPU: oneDNN, or the BLAS that "
           "torch.nn.Linear calls; auto: oneDNN if the CPU has AVX-512, else the BLAS; their last "
           "bits differ")
      .only("--device cpu", is_on_cpu);
  t.value("--memory-cap-mb", o.memory_cap_mb,
          "MiB of tensors that a rank may hold, to simulate a smaller device; 0: no cap")
      .changes_no_bits();
  t.choice(
       "--recompute", o.model.recompute,
       {{"none", Recompute::kNone}, {"cheap", Recompute::kCheap}, {"blocks", Recompute::kBlocks}},
       "what backward computes again instead of keeping it; cheap: norms and activation "
       "functions of blocks; blocks: each block from its input, which takes a third more "
       "computing and most activations out of memory")
      .changes_no_bits();
  t.choice(
      "--device", o.device, {{"cpu", Device::kCpu}, {"cuda", Device::kCuda}},
      "where the model lives and is computed; cuda: a GPU for each rank, or one for all of them, "
      "in bf16 unless --precision says otherwise");
  t.value("--deterministic", o.is_deterministic,
          "true: only GPU kernels that give the same bits in every run; false: the fastest ones")
      .only("--device cuda", is_on_gpu);
  t.choice("--transport", o.transport,
           {{"auto", Transport::kAuto},
            {"self", Transport::kSelf},
            {"mpi", Transport::kMpi},
            {"threads", Transport::kThreads},
            {"store", Transport::kStore},
            {"nccl", Transport::kNccl},
            {"simulated", Transport::kSimulated}},
           "what carries messages between ranks; threads: all ranks are threads of this process; "
           "store: that of torchrun, which starts no MPI; nccl: between GPUs, one for each rank; "
           "simulated: this process is one rank of many, and theory answers for the others")
      .changes_no_bits();
  t.choice("--reduction", o.nccl.reduction,
           {{"native", Reduction::kNative}, {"ordered", Reduction::kOrdered}},
           "order in which nccl adds up: its own, which is the fastest; or a tree over the ranks, "
           "which "
           "gives the bits of the other transports")
      .only("--transport nccl", may_be_nccl);
  t.number("--nccl-timeout", o.nccl.timeout_s, {.least = 0, .most = kMostSeconds, .is_above = true},
           "seconds that an operation of nccl may take once the GPU has begun it; after that it is "
           "taken for hung, and the run ended")
      .only("--transport nccl", may_be_nccl)
      .changes_no_bits();
  t.value("--ranks", o.num_ranks,
          "ranks to start with --transport threads, or to simulate; 0: those that the launcher has "
          "started")
      .changes_no_bits();
  t.value("--rank", o.simulated_rank, "with --transport simulated, the rank that this process is")
      .changes_no_bits();
  t.number_or_alone("--check-collectives", o.check_collectives_s, {0, kMostSeconds}, 30,
                    "compare the calls of all ranks, and end the run where they differ or if a "
                    "rank waits longer "
                    "than so many seconds; 0: off; without a number: 30")
      .changes_no_bits();
  t.value("--link", o.link,
          "LATENCY_US:GBPS, for example 50:1: slow the transport down to such a network")
      .changes_no_bits();
  t.value("--outer-link", o.outer_link,
          "the same between machines; --link is then between the ranks of one")
      .changes_no_bits();
  t.value("--ranks-per-machine", o.ranks_per_machine,
          "ranks that share a machine: sums are first taken there; 0: those that the launcher has "
          "started on each")
      .changes_no_bits();
}

void declare_data(OptionTable& t, TrainOptions& o) {
  t.heading("Data");
  t.value(
      "--data", o.data.source,
      "corpus (built in), or a file: .txt, .jsonl (documents), .bin (token ids of ./ladder encode, "
      "nanoGPT or llm.c)");
  t.value("--val-data", o.data.validation_source,
          "validation data of the same kinds; the corpus has its own")
      .only("--eval-every", is_validated)
      .changes_no_bits();
  t.value(
      "--tokenizer", o.data.tokenizer,
      "bytes, a folder with tokenizer.json (or vocab.json and merges.txt), or auto: that of the "
      "folder or run that --init-from names, or else bytes; says what the ids of a .bin file stand "
      "for");
  t.choice("--rows", o.data.rows,
           {{"windows", Rows::kWindows}, {"documents", Rows::kDocuments}, {"chat", Rows::kChat}},
           "packed windows of the context's length, one padded document per row, or one padded "
           "conversation, of which only the assistant's words are learned");
  t.choice("--order", o.data.order,
           {{"shuffled", SampleOrder::kShuffled}, {"sequential", SampleOrder::kSequential}},
           "a new permutation every epoch, or the order of the data");
  t.choice("--tail", o.data.tail, {{"drop", Tail::kDrop}, {"pad", Tail::kPad}},
           "samples of an epoch that do not divide evenly over the ranks: drop, or repeat some");
  t.number("--micro-batch-size", o.data.microbatch_size, kRows, "rows per forward and backward");
  t.number("--num-microbatches", o.data.num_microbatches, kRows,
           "forwards and backwards per optimizer step and rank");
  t.number("--microbatches-per-step", o.data.step_microbatches, {0, kMostRows},
           "of all ranks together, instead of --num-microbatches; with --gradient-sum exact");
  t.number("--eval-samples", o.data.validation_samples, kCount,
           "rows of the validation data per evaluation; 0: all")
      .only("--eval-every", is_validated)
      .changes_no_bits();
  t.flag("--overfit-one-batch", o.data.overfit_one_batch,
         "train on the first step's samples in every step, to test the loop");
}

void declare_model(OptionTable& t, TrainOptions& o) {
  t.heading(kModelHeading);
  std::vector<std::pair<std::string, std::string>> models;
  for (const NamedModel& model : named_models()) models.emplace_back(model.name, model.name);
  t.choice("--model", o.named_model, models,
           "family of models; or a model of one with its shape, but for the options below that are "
           "given as well");
  t.number("--context", o.model.context, {1, kMostContext}, "tokens per row, T");
  t.number("--layers", o.model.layers, {1, kMostLayers}, "blocks, L");
  t.number("--heads", o.model.heads, {1, kMostHeads}, "attention heads, H; must divide --channels");
  t.number("--kv-heads", o.model.kv_heads, {0, kMostHeads},
           "heads of keys and values, K, each of them for H/K heads; must divide --heads; 0: H");
  t.number("--head-channels", o.model.head_channels, {0, kMostChannels},
           "width of a head, d; 0: C/H, as gpt2's must be");
  t.number("--channels", o.model.channels, {1, kMostChannels}, "width, C");
  t.number(
      "--mlp-channels", o.model.mlp_channels, {0, kMostMlpChannels},
      "width inside the MLP, M; 0: 4C, or 8C/3 rounded up to 32 if it has a gate, as llama's has");
  t.number("--vocab-size", o.data.vocab_size, {0, kMostTokenIds},
           "number of token ids that the model has; 0: as many as the tokenizer");
  t.value("--tie-embeddings", o.model.tie_embeddings,
          "true: the head uses the token embedding as its weight");
  t.number(
      "--rope-theta", o.model.rope_theta, kPositive,
      "base of rotary positions, as llama has them: the slowest turns once in about 2π times as "
      "many tokens");
  t.value("--rope-scaling", o.model.rope_scaling,
          "how rotary positions are slowed down for longer texts: none, linear:FACTOR, or "
          "llama3:FACTOR:LOW:HIGH:CONTEXT");
  t.number(
      "--no-rope-interval", o.model.no_rope_interval, {0, kMostLayers},
      "every Nth layer has no positions, by default every 4th of smollm3; 0: all layers have them");
  t.number("--norm-eps", o.model.norm_eps, kPositive,
           "what LayerNorm or RMSNorm adds to the variance or the mean square");
  t.choice("--gelu", o.model.gelu, {{"tanh", GeluForm::kTanh}, {"exact", GeluForm::kExact}},
           "gpt2's activation function: by tanh, as GPT-2 has it, or exact, as newer nanoGPT does");
  t.number("--product-parts", o.model.product_parts, {1, kMostHeads},
           "parts into which heads, the MLP's channels and the vocabulary are cut, and whose "
           "products are added up; must divide the heads of keys and values");
}

void declare_optimizer(OptionTable& t, TrainOptions& o) {
  t.heading("Optimizer");
  t.choice("--optimizer", o.optimizer.kind,
           {{"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}},
           "AdamW, or SGD without momentum");
  t.number("--lr", o.lr.lr, kNotNegative, "largest learning rate");
  t.number("--min-lr", o.lr.min_lr, kNotNegative,
           "learning rate that the decay reaches after the last step")
      .only("--lr-schedule cosine and linear", has_decay);
  t.choice("--lr-schedule", o.lr.schedule,
           {{"cosine", LrSchedule::kCosine},
            {"linear", LrSchedule::kLinear},
            {"constant", LrSchedule::kConstant}},
           "shape of the decay after the warmup");
  t.number("--warmup-steps", o.lr.warmup_steps, kCount, "steps over which the learning rate rises");
  t.number("--weight-decay", o.optimizer.weight_decay, {0, kMostDecay},
           "on tensors of two or more dimensions");
  t.number("--beta1", o.optimizer.beta1, kDecayRate, "AdamW's decay rate for the mean of gradients")
      .only("--optimizer adamw", is_adamw);
  t.number("--beta2", o.optimizer.beta2, kDecayRate,
           "AdamW's decay rate for the mean of squared gradients")
      .only("--optimizer adamw", is_adamw);
  t.number("--eps", o.optimizer.eps, kPositive, "AdamW's guard against division by zero")
      .only("--optimizer adamw", is_adamw);
  t.number("--clip-norm", o.clip_norm, kNotNegative,
           "largest norm of the gradient; 0: no clipping");
}

void declare_precision(OptionTable& t, TrainOptions& o) {
  t.heading("Precision");
  t.choice("--precision", o.model.precision.params, kFormats,
           "what parameters and activations are stored and computed in; with 16 bits the optimizer "
           "keeps fp32 masters of the parameters");
  t.choice("--grad-dtype", o.model.precision.grads, kFormats,
           "what gradients are added up and reduced in; 16 bits, the same as --precision, save 2 "
           "bytes per parameter and half of the wire, and cost accuracy");
  t.choice("--gradient-sum", o.gradient_sum,
           {{"ordered", SumMode::kOrdered}, {"exact", SumMode::kExact}},
           "ordered: as a tree over the ranks; exact: the same bits in any order, so on any number "
           "of ranks, for which gradients are rounded before they are added");
  t.choice(
      "--masters", o.optimizer.masters,
      {{"fp32", Masters::kFp32}, {"none", Masters::kNone}, {"stochastic", Masters::kStochastic}},
      "what remembers the digits that 16-bit parameters cannot hold: fp32 masters; nothing; or "
      "nothing but chance, which rounds up or down at random");
  t.value("--loss-scale", o.loss_scale.initial,
          "what fp16's loss is multiplied by at first, a power of two; halved when a gradient "
          "overflows, and that step is skipped")
      .only("--precision fp16", needs_loss_scale);
  t.number("--loss-scale-window", o.loss_scale.window, kPositiveCount,
           "good steps in a row after which the loss scale is doubled")
      .only("--precision fp16", needs_loss_scale);
}

void declare_output(OptionTable& t, TrainOptions& o) {
  t.heading("Output");
  t.value("--out", o.output.out, "folder of the run; default: a fresh one under runs/")
      .changes_no_bits();
  t.value("--resume", o.output.resume,
          "none, auto (the newest checkpoint in --out), or the folder of a checkpoint or run")
      .changes_no_bits();
  t.value("--init-from", o.output.init_from,
          "start a new run from the parameters of this checkpoint, Hugging Face folder or file of "
          "llm.c; with --resume auto, only where --out has no checkpoint yet")
      .changes_no_bits();
  t.number("--log-every", o.output.log_every, kPositiveCount, "steps between lines on the console")
      .changes_no_bits();
  t.number("--eval-every", o.output.eval_every, kCount,
           "steps between evaluations on the validation data; 0: never")
      .changes_no_bits();
  t.number("--save-every", o.output.save_every, kCount,
           "steps between checkpoints; 0: only at the end")
      .changes_no_bits();
  t.choice("--save-dtype", o.output.save_dtype, kFormats,
           "bf16 or fp16: each checkpoint also holds its parameters in 16 bits, for other tools")
      .changes_no_bits();
  t.number("--keep", o.output.keep, kCount, "how many good checkpoints to keep; 0: all")
      .changes_no_bits();
  t.value("--sample", o.output.sample, "text for the trained model to continue at the end")
      .changes_no_bits();
  t.value(
       "--trace", o.output.trace,
       "new file for what each rank did and when, and each message: open it in ui.perfetto.dev or "
       "chrome://tracing, or with ./ladder trace FILE")
      .changes_no_bits();
  t.flag("--quiet", o.output.is_quiet, "print nothing on the console").changes_no_bits();
}

}  // namespace

void declare_common_options(OptionTable& table, TrainOptions& options) {
  declare_run(table, options);
  declare_data(table, options);
  declare_model(table, options);
  declare_optimizer(table, options);
  declare_precision(table, options);
  declare_output(table, options);
}

}  // namespace ladder
