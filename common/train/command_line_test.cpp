#include "common/train/command_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <fstream>

#include "common/core/check.hpp"
#include "common/testing/parse_options.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/options/option_table.hpp"
#include "common/train/start.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What a step may add.
struct LevelOptions {
  std::int64_t level = 3;
  bool has_rows = false;
  void declare(OptionTable& table) {
    table.heading("Levels");
    table.number("--level", level, {1, 9}, "how high").changes_no_bits();
    table.value("--level-rows", has_rows, "rows of its own");
  }
  void finalize(TrainOptions& options) {
    check_usage(level < 9 || options.num_steps < 100, "--level 9 is for fewer steps");
    if (!has_rows) return;
    check_usage(!options.given.contains("num-microbatches"), "rows twice");
    options.data.num_microbatches = level;
    options.derived.insert("num-microbatches");
  }
};

Theory trainer_x() {
  return {.step = "step_x",
          .state_bytes = nullptr,
          .sends = nullptr,
          .picture = Theory::Picture{"--show-level", "draw it", nullptr},
          .options = {.own = step_options<LevelOptions>()}};
}

CommandLine parse(std::vector<const char*> words) {
  return parse_words(trainer_x(), std::move(words));
}

void expect_refusal(const std::vector<const char*>& words, const std::vector<std::string>& parts,
                    const std::source_location& where = std::source_location::current()) {
  ladder::expect_refused(trainer_x(), words, parts, where);
}

TEST(Options, DefaultsAreTheStructs) {
  TrainOptions defaults = trainer_x().options;
  finalize(defaults);
  EXPECT_EQ(to_json(parse({}).options), to_json(defaults));
  EXPECT_EQ(defaults.model.vocab_size, 258);
}

TEST(Options, RanksAreThreadsOrTheLaunchers) {
  const TrainOptions o = parse({"--transport", "threads", "--ranks", "3"}).options;
  EXPECT_EQ(o.transport, Transport::kThreads);
  EXPECT_EQ(o.num_ranks, 3);
  EXPECT_EQ(parse({"--transport", "threads", "--ranks", "3", "--dry-run"}).dry_run_ranks, 3);
  EXPECT_EQ(parse({}).options.num_ranks, 0);
  expect_refusal({"--transport", "threads"}, {"--transport threads", "--ranks N"});
  expect_refusal({"--ranks", "3"}, {"--ranks 3", "--transport threads", "mpirun -n 3",
                                    "./ladder train step_x --ranks 3"});
  expect_refusal({"--ranks", "3", "--transport", "mpi"}, {"--ranks 3 is for --transport threads"});
  expect_refusal({"--transport", "thread"}, {"auto or self or mpi or threads"});
  for (const char* number : {"-1", "1025"}) {
    expect_refusal({"--transport", "threads", "--ranks", number},
                   {"it must be at least 1 and at most 1024"});
  }
  expect_refusal({"--transport", "threads", "--ranks", "2", "--memory-cap-mb", "5"},
                 {"--memory-cap-mb 5", "--transport threads", "--transport mpi"});
}

TEST(Options, ASimulatedRankIsOneOfThem) {
  const auto simulated = [](std::vector<const char*> words) {
    words.insert(words.begin(), {"--transport", "simulated"});
    return words;
  };
  EXPECT_EQ(parse(simulated({"--ranks", "64", "--rank", "63"})).options.simulated_rank, 63);
  expect_refusal(simulated({}), {"--transport simulated", "--ranks N"});
  expect_refusal({"--rank", "1"}, {"--rank 1", "--transport simulated"});
  for (const char* rank : {"-1", "64"})
    expect_refusal(simulated({"--ranks", "64", "--rank", rank}), {"numbered from 0 to 63"});
  const std::vector<std::vector<const char*>> refused = {
      {"--save-every", "1"}, {"--resume", "a"}, {"--eval-every", "1"},
      {"--sample", "a"},     {"--trace", "a"},  {"--check-collectives", "1"}};
  for (const auto& words : refused) {
    std::vector<const char*> all = simulated({"--ranks", "64"});
    all.insert(all.end(), words.begin(), words.end());
    expect_refusal(all, {words[0], "is not for --transport simulated"});
  }
}

TEST(Options, OnAGpuTheDefaultIsBf16) {
  EXPECT_EQ(parse({"--device", "cuda"}).options.device, Device(Device::kCuda));
  EXPECT_EQ(parse({"--device", "cuda"}).options.model.precision, (Precision{NumberFormat::kBf16}));
  EXPECT_TRUE(parse({"--device", "cuda"}).options.data.is_pinned);
  EXPECT_FALSE(parse({}).options.data.is_pinned);
  EXPECT_EQ(parse({"--device", "cuda", "--precision", "fp32"}).options.model.precision,
            Precision{});
  EXPECT_EQ(parse({"--device", "cpu"}).options.model.precision, Precision{});
  const TrainOptions o = parse({"--device", "cuda", "--transport", "nccl", "--reduction", "ordered",
                                "--nccl-timeout", "5", "--deterministic", "false"})
                             .options;
  EXPECT_EQ(o.transport, Transport::kNccl);
  EXPECT_EQ(o.nccl.reduction, Reduction::kOrdered);
  EXPECT_EQ(o.nccl.timeout_s, 5);
  EXPECT_FALSE(o.is_deterministic);
  expect_refusal({"--device", "tpu"}, {"--device is 'tpu'", "cpu or cuda"});
  expect_refusal({"--transport", "nccl"}, {"--transport nccl", "--device cuda"});
  expect_refusal({"--device", "cuda", "--transport", "nccl", "--nccl-timeout", "0"},
                 {"--nccl-timeout is 0"});
  expect_refusal({"--device", "cuda", "--transport", "nccl", "--link", "50:1"},
                 {"--link 50:1", "--transport mpi"});
  expect_refusal(
      {"--device", "cuda", "--transport", "threads", "--ranks", "2"},
      {"--device cuda is not for --transport threads", "./ladder train step_x --ranks 2"});
}

TEST(Options, LinksSayWhatTheyConnect) {
  const Cluster cluster = cluster_of(
      parse({"--link", "3:1800", "--outer-link", "20:200", "--ranks-per-machine", "8"}).options);
  EXPECT_EQ(cluster.links.inside, (Link{3, 1800}));
  EXPECT_EQ(cluster.links.outside, (Link{20, 200}));
  EXPECT_EQ(cluster.ranks_per_machine, 8);
  EXPECT_FALSE(cluster_of(parse({}).options).links.is_on());
  EXPECT_FALSE(cluster_of(parse({"--ranks-per-machine", "2"}).options).links.is_on());
  expect_refusal({"--outer-link", "20:200"},
                 {"--outer-link 20:200 connects machines", "--ranks-per-machine"});
  expect_refusal({"--link", "3:1800", "--ranks-per-machine", "8"},
                 {"--ranks-per-machine 8", "say what connects machines with --outer-link"});
  expect_refusal({"--outer-link", "20", "--ranks-per-machine", "8"},
                 {"--outer-link is '20': the colon is missing"});
  expect_refusal({"--ranks-per-machine", "-1"}, {"--ranks-per-machine is -1"});
  expect_refusal({"--ranks-per-machine", "1025"}, {"--ranks-per-machine is 1025", "1024"});
}

TEST(Options, CollectivesAreCheckedWithOrWithoutATimeOut) {
  EXPECT_EQ(parse({}).options.check_collectives_s, 0);
  EXPECT_EQ(parse({"--check-collectives", "2.5"}).options.check_collectives_s, 2.5);
  EXPECT_EQ(parse({"--check-collectives", "--steps", "3"}).options.check_collectives_s, 30);
  EXPECT_EQ(parse({"--steps", "3", "--check-collectives"}).options.check_collectives_s, 30);
  expect_refusal({"--check-collectives", "-1"}, {"--check-collectives is -1"});
  expect_refusal({"--check-collectives", "x"}, {"--check-collectives is 'x'"});
}

TEST(Options, ReachTheirMembers) {
  const TrainOptions o = parse({"--steps",     "7",
                                "--seed=9",    "--lr",
                                "0.25",        "--order",
                                "sequential",  "--tail",
                                "pad",         "--rows",
                                "documents",   "--optimizer",
                                "sgd",         "--lr-schedule",
                                "linear",      "--context",
                                "32",          "--level",
                                "7",           "--tie-embeddings",
                                "false",       "--overfit-one-batch",
                                "--clip-norm", "0",
                                "--products",  "blas"})
                             .options;
  EXPECT_EQ(o.num_steps, 7);
  EXPECT_EQ(o.data.seed, 9u);
  EXPECT_EQ(o.lr.lr, 0.25);
  EXPECT_EQ(o.data.order, SampleOrder::kSequential);
  EXPECT_EQ(o.data.tail, Tail::kPad);
  EXPECT_EQ(o.data.rows, Rows::kDocuments);
  EXPECT_EQ(o.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(o.lr.schedule, LrSchedule::kLinear);
  EXPECT_EQ(o.data.context, 32);
  EXPECT_EQ(o.get<LevelOptions>().level, 7);
  EXPECT_FALSE(o.model.tie_embeddings);
  EXPECT_EQ(o.model.products, Products::kBlas);
  EXPECT_TRUE(o.data.overfit_one_batch);
  EXPECT_EQ(o.clip_norm, 0);
}

TEST(Options, AModelIsAFamily) {
  EXPECT_EQ(parse({}).options.model.family, ModelFamily::kGpt2);
  const TrainOptions o =
      parse({"--model", "llama", "--kv-heads", "2", "--mlp-channels", "96", "--rope-theta", "500",
             "--norm-eps", "1e-6", "--head-channels", "8", "--rope-scaling", "linear:2"})
          .options;
  EXPECT_EQ(o.model.family, ModelFamily::kLlama);
  EXPECT_EQ(o.model.kv_heads, 2);
  EXPECT_EQ(o.model.mlp_channels, 96);
  EXPECT_EQ(o.model.rope_theta, 500);
  EXPECT_EQ(o.model.norm_eps, 1e-6);
  EXPECT_EQ(o.model.head_channels, 8);
  EXPECT_EQ(o.model.rope_scaling, "linear:2");
  EXPECT_EQ(o.model.layers, 4);
  EXPECT_EQ(o.model.vocab_size, 258);
  TrainOptions from_code;
  from_code.model.family = ModelFamily::kLlama;
  finalize(from_code);
  EXPECT_EQ(to_json(from_code).at("model"), "llama");
  expect_refusal(
      {"--model", "bert"},
      {"--model is 'bert'",
       "gpt2 or llama or qwen2 or qwen3 or mistral or smollm3 or olmo2 or smollm2-135m"});
  expect_refusal({"--kv-heads", "2"}, {"--kv-heads 2", "--model llama"});
  expect_refusal({"--rope-theta", "500"}, {"--rope-theta 500", "--model llama"});
  expect_refusal({"--rope-scaling", "linear:2"}, {"--rope-scaling linear:2", "--model llama"});
  const auto interval = [](std::vector<const char*> words) {
    words.insert(words.begin(), {"--model", "smollm3"});
    return parse(words).options.model.no_rope_interval;
  };
  EXPECT_EQ(interval({}), 4);
  EXPECT_EQ(interval({"--no-rope-interval", "0"}), 0);
  EXPECT_EQ(interval({"--no-rope-interval", "2"}), 2);
  expect_refusal({"--no-rope-interval", "2"}, {"--no-rope-interval 2", "--model smollm3"});
  EXPECT_EQ(parse({"--gelu", "exact"}).options.model.gelu, GeluForm::kExact);
  expect_refusal({"--model", "llama", "--gelu", "exact"}, {"--gelu exact", "--model gpt2"});
  expect_refusal({"--head-channels", "8"}, {"--head-channels 8", "--model llama"});
  expect_refusal({"--model", "llama", "--kv-heads", "3"}, {"--heads 4", "--kv-heads 3"});
}

// The shape is the model's, but for what has been given as well.
TEST(Options, ANamedModelHasAShape) {
  const ModelOptions model = parse({"--model", "smollm2-135m"}).options.model;
  EXPECT_EQ(model.family, ModelFamily::kLlama);
  EXPECT_EQ(model.layers, 30);
  EXPECT_EQ(model.kv_heads, 3);
  EXPECT_EQ(model.rope_theta, 100000);
  EXPECT_EQ(model.vocab_size, 49152);  // of which text, read as bytes, has 258
  const TrainOptions shallow =
      parse({"--model", "smollm2-360m", "--layers", "4", "--heads", "10", "--vocab-size", "49152",
             "--mlp-channels", "0", "--tie-embeddings", "false", "--channels", "160"})
          .options;
  EXPECT_EQ(shallow.model.layers, 4);
  EXPECT_EQ(shallow.model.channels, 160);
  EXPECT_EQ(shallow.model.kv_heads, 5);
  EXPECT_EQ(shallow.model.mlp_channels, 0);
  EXPECT_FALSE(shallow.model.tie_embeddings);
  EXPECT_EQ(shallow.data.vocab_size, 49152);
  expect_refusal({"--model", "smollm2-135m", "--vocab-size", "50257"},
                 {"--vocab-size 50257", "49152", "--model"});
  expect_refusal({"--model", "smollm2-135m", "--heads", "5"}, {"--channels 576", "--heads 5"});
}

TEST(Options, UnknownOnesNameTheNearest) {
  expect_refusal({"--micro-batchsize", "3"},
                 {"--micro-batchsize", "did you mean --micro-batch-size?"});
  expect_refusal({"--lrws", "1"}, {"did you mean --lr?"});  // as near as --rows, but begins alike
  expect_refusal({"--tracer", "1"}, {"did you mean --trace?"});
  expect_refusal({"--step=3"}, {"unknown option --step,", "did you mean --steps?"});
  for (const auto& [other, ours] : std::vector<std::pair<const char*, std::string>>{
           {"--epochs", "--steps"},
           {"--batch-size", "--micro-batch-size"},
           {"--batch_size", "--micro-batch-size"},
           {"--learning-rate", "--lr"},
           {"--gradient_accumulation_steps=4", "--num-microbatches"},
           {"--micro_batch_size", "--micro-batch-size"},
           {"--n-embd", "--channels"}})
    expect_refusal({other}, {"did you mean " + ours + "?"});
  expect_refusal({"--qwertyuiopasdf"},
                 {"unknown option --qwertyuiopasdf (--help lists those of step_x)"});
  expect_refusal({"stray"}, {"stray"});
}

// Nobody would be told that it changed nothing.
TEST(Options, WithoutAnEffectTheyAreRefusedButForTheirDefaults) {
  const bool is_blas = parse({}).options.model.products == Products::kBlas;
  const char* products = is_blas ? "onednn" : "blas";
  const std::vector<std::pair<std::vector<const char*>, std::string>> cases = {
      {{"--lr-schedule", "constant", "--min-lr", "0.0005"}, "--lr-schedule cosine and linear"},
      {{"--optimizer", "sgd", "--beta1", "0.5"}, "--optimizer adamw"},
      {{"--optimizer", "sgd", "--beta2", "0.5"}, "--optimizer adamw"},
      {{"--optimizer", "sgd", "--eps", "0.5"}, "--optimizer adamw"},
      {{"--loss-scale", "1024"}, "--precision fp16"},
      {{"--precision", "bf16", "--loss-scale-window", "5"}, "--precision fp16"},
      {{"--deterministic", "false"}, "--device cuda"},
      {{"--device", "cuda", "--products", products}, "--device cpu"},
      {{"--reduction", "ordered"}, "--transport nccl"},
      {{"--device", "cuda", "--transport", "mpi", "--nccl-timeout", "5"}, "--transport nccl"},
      {{"--val-data", "v.txt"}, "--eval-every"},
      {{"--eval-samples", "5"}, "--eval-every"}};
  const TempFolder folder;
  for (const auto& [words, companion] : cases) {
    const std::string name = words[words.size() - 2], value = words.back();
    const std::string problem =
        concat(name, " ", value, " has no effect here: it is for ", companion, "; leave it out");
    expect_refusal(words, {problem});
    std::vector<const char*> others(words.begin(), words.end() - 2);
    const std::string file = folder.write("c.toml", concat(name.substr(2), " = ", value));
    others.insert(others.end(), {"--config", file.c_str()});
    expect_refusal(others, {file + ": " + problem});
  }
  const Json defaults = to_json(parse({}).options);
  for (const auto& [name, value] : defaults.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : to_text(value);
    const std::string word = concat("--", name, "=", text);
    if (text.empty()) continue;
    EXPECT_NO_THROW(parse({"--lr-schedule", "constant", "--optimizer", "sgd", word.c_str()}))
        << word;
  }
}

// As a path may be, but all options are written to JSON, and those of a run only at its end.
TEST(Options, ThatAreNotUtf8AreRefusedAtOnce) {
  const Json all = to_json(parse({}).options);
  for (const auto& [name, value] : all.items()) {
    const std::string option = concat("--", name, "=caf\xe9s");
    expect_refusal({option.c_str()},
                   {concat("--", name, " is not UTF-8"), "byte 4 of 5", "after 'caf'"});
  }
  const TempFolder folder;
  const std::string file = folder.write("c.toml", "sample = \"caf\xe9\"\n");
  expect_refusal({"--config", file.c_str()}, {file + ": --sample is not UTF-8", "byte 4 of 4"});
  EXPECT_EQ(parse({"--sample", "caf\u00e9"}).options.output.sample, "caf\u00e9");
}

TEST(Options, BadValuesNameOptionAndValue) {
  expect_refusal({"--steps", "ten"}, {"--steps", "ten"});
  expect_refusal({"--seed", "-1"}, {"--seed is '-1', it must be a whole number from 0 to 1844"});
  expect_refusal({"--seed", "18446744073709551616"}, {"--seed is '18446744073709551616', it must"});
  expect_refusal({"--heads", "5"}, {"--channels 128", "--heads 5"});
  expect_refusal({"--order", "random"}, {"--order", "random"});
  expect_refusal({"--beta2", "1"}, {"--beta2 is 1"});
  expect_refusal({"--dry-run", "0"}, {"--dry-run"});
  expect_refusal({"--json"}, {"--json", "add --dry-run RANKS"});
  expect_refusal({"--data", "x.txt", "--eval-every", "5"}, {"--val-data", "x.txt"});
  expect_refusal({"--init-from", "a", "--resume", "b", "--out", "o", "--dry-run"},
                 {"--init-from a", "--resume b", "--resume auto"});
  expect_refusal({"--resume", "auto"}, {"--out"});
  expect_refusal({"--sample", "x", "--data", "a.bin", "--vocab-size", "100"},
                 {"--sample", "a.bin", "--tokenizer"});
  expect_refusal({"--vocab-size", "100"}, {"--vocab-size 100", "258"});
  expect_refusal({"--precision", "fp8"}, {"--precision is 'fp8', it must be fp32 or bf16 or fp16"});
  expect_refusal({"--grad-dtype", "bf16"}, {"--grad-dtype bf16", "parameters are fp32"});
  expect_refusal({"--precision", "fp16", "--grad-dtype", "bf16"}, {"parameters are fp16"});
  expect_refusal({"--masters", "none"}, {"--masters", "--precision is fp32"});
  for (const char* scale : {"3", "0.5", "-2", "0", "inf"})
    expect_refusal({"--precision", "fp16", "--loss-scale", scale},
                   {"--loss-scale", "a power of two"});
  for (const char* option : {"--eps", "--norm-eps"})
    expect_refusal({option, "1e-46"},
                   {concat(option, " is 1e-46, which is 0 in fp32: give at least")});
  expect_refusal({"--lr", "-1e-39"}, {"--lr is -1e-39, which is 0 in fp32: give 0, or at least"});
}

// Whatever else is missing: the model would have told it.
TEST(Options, AModelThatIsNotThereIsNamedFirst) {
  for (const char* data : {"corpus", "x.txt", "x.bin", "x.jsonl"}) {
    expect_refusal({"--init-from", "an-owner/a.Name", "--data", data, "--resume", "auto"},
                   {"--init-from an-owner/a.Name: no such file or folder", "downloads nothing",
                    "hf download an-owner/a.Name --local-dir FOLDER"});
    expect_refusal({"--init-from", "./nowhere", "--data", data, "--rows", "chat"},
                   {"--init-from ./nowhere: no such", "hf download OWNER/NAME"});
  }
  expect_refusal({"--init-from", "nowhere", "--data", "x.bin", "--dry-run"}, {"nowhere: no such"});
  EXPECT_NO_THROW(parse({"--init-from", "nowhere", "--dry-run"}));  // not yet
}

TEST(Options, PrecisionReachesTheModelAndTheOptimizer) {
  const TrainOptions options = parse({"--precision", "bf16", "--grad-dtype", "bf16", "--masters",
                                      "stochastic", "--seed", "7"})
                                   .options;
  EXPECT_EQ(options.model.precision, (Precision{NumberFormat::kBf16, NumberFormat::kBf16}));
  EXPECT_EQ(options.optimizer.masters, Masters::kStochastic);
  EXPECT_EQ(options.optimizer.seed, 7u);
  EXPECT_FALSE(needs_loss_scale(options));
  const TrainOptions fp16 =
      parse({"--precision", "fp16", "--loss-scale", "1024", "--loss-scale-window", "5"}).options;
  EXPECT_TRUE(needs_loss_scale(fp16));
  EXPECT_EQ(fp16.loss_scale.initial, 1024);
  EXPECT_EQ(fp16.loss_scale.window, 5);
}

// One kind of answer for every kind of option: it names the option and shows what to write.
TEST(Options, AMissingOrWrongValueIsAnsweredWithWhatToWrite) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"--steps", "a whole number, for example --steps 200"},
      {"--threads", "a whole number, for example --threads 1"},
      {"--seed", "a whole number from 0 to 18446744073709551615, for example --seed 1"},
      {"--clip-norm", "a number, for example --clip-norm 1"},
      {"--tie-embeddings", "true or false, for example --tie-embeddings true"},
      {"--optimizer", "adamw or sgd, for example --optimizer adamw"}};
  for (const auto& [name, expected] : kinds) {
    const std::string missing = name + " needs a value: " + expected;
    expect_refusal({name.c_str()}, {missing});
    expect_refusal({name.c_str(), ""}, {missing});
    expect_refusal({(name + "=").c_str()}, {missing});
    expect_refusal({name.c_str(), "--quiet"}, {missing});
    expect_refusal({name.c_str(), "--steps=3"}, {missing});
    const std::string wrong = name + " is 'maybe', it must be " + expected;
    expect_refusal({name.c_str(), "maybe"}, {wrong});
    expect_refusal({(name + "=maybe").c_str()}, {wrong});
  }
  for (const char* wrong : {"2.5", "99999999999999999999", "1x", " 1", "0x10"})
    expect_refusal({"--threads", wrong}, {"--threads is '", "', it must be a whole number"});
  expect_refusal({"--threads", "99999999999"}, {"--threads is '99999999999'"});
}

TEST(Options, ATextMayBeEmptyButNotForgotten) {
  EXPECT_EQ(parse({"--out", "", "--quiet"}).options.output.out, "");
  EXPECT_EQ(parse({"--sample", "-- a comment"}).options.output.sample, "-- a comment");
  for (const std::vector<const char*>& forgotten :
       {std::vector<const char*>{"--out"}, {"--out="}, {"--out", "--quiet"}})
    expect_refusal(forgotten, {"--out needs a value: text"});
  expect_refusal({"--data"}, {"--data needs a value: text, for example --data corpus"});
  expect_refusal({"--config"}, {"--config needs a value: a file name"});
}

TEST(Options, AFlagNeedsNoValueButTakesOne) {
  EXPECT_TRUE(parse({"--quiet"}).options.output.is_quiet);
  EXPECT_TRUE(parse({"--quiet", "--steps", "3"}).options.output.is_quiet);
  EXPECT_TRUE(parse({"--quiet=true"}).options.output.is_quiet);
  EXPECT_FALSE(parse({"--quiet=false"}).options.output.is_quiet);
  expect_refusal({"--quiet=maybe"}, {"--quiet is 'maybe', it must be true or false"});
}

TEST(Options, AMemoryCapIsNoneOrAtLeastAByte) {
  const auto cap = [](const char* mb) {
    return memory_cap_bytes(parse({"--memory-cap-mb", mb}).options);
  };
  EXPECT_EQ(cap("0"), 0);
  EXPECT_EQ(cap("1.5"), 1572864);
  EXPECT_EQ(cap("0.00000095367431640625"), 1);  // 2^-20 MiB
  for (const char* mb : {"1e-9", "-1", "9e-7", "1e300", "nan", "inf"})
    expect_refusal({"--memory-cap-mb", mb}, {"--memory-cap-mb is ", "0 (no cap)"});
}

TEST(Options, ConfigFileIsReadAndTheCommandLineWins) {
  const TempFolder folder;
  const std::string path = folder.path("c.toml");
  std::ofstream(path) << "steps = 11\nlr = 0.5\noverfit-one-batch = true\norder = \"sequential\"\n";
  const TrainOptions o = parse({"--config", path.c_str(), "--steps", "12"}).options;
  EXPECT_EQ(o.num_steps, 12);
  EXPECT_EQ(o.lr.lr, 0.5);
  EXPECT_TRUE(o.data.overfit_one_batch);
  EXPECT_EQ(o.data.order, SampleOrder::kSequential);
  const auto refused = [&](const std::string& text, const std::string& part) {
    std::ofstream(path) << text;
    expect_refusal({"--config", path.c_str()}, {path, part});
  };
  refused("stepz = 11\n", "unknown option stepz, did you mean steps?");
  refused("steps = [1, 2]\n", "steps has 2 values");
  refused("steps = 1 2\n", "steps has 2 values");
  refused("\uFEFFsteps = 11\n", "begins with a byte order mark");
  refused("[model]\nlayers = 2\n", "sections like [model] have no meaning");
  refused("steps = many\n", ": --steps is 'many'");
  EXPECT_THAT(
      [&] {
        parse({"--config", path.c_str(), "--steps", "few"});
      },
      ::testing::ThrowsMessage<UsageError>(::testing::StartsWith("--steps is 'few'")));
  expect_refusal({"--config", "/does/not/exist"}, {"--config /does/not/exist: no such file"});
  const std::string fifo = folder.path("fifo");  // to open it would wait for a writer
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& no_file : {fifo, folder.path().string(), std::string("/dev/zero")}) {
    expect_refusal({"--config", no_file.c_str()},
                   {"--config " + no_file + ": is not a regular file"});
  }
}

TEST(Options, PrintedConfigLeavesOutWhatAFileCannotHold) {
  for (const char* text : {"two\nlines", "a \"quote\"", "C:\\x", "item #1"}) {
    const CommandLine line = parse({"--print-config", "--sample", text});
    EXPECT_THAT(line.text, HasSubstr("# sample: give it on the command line")) << text;
  }
}

TEST(Options, HelpTeaches) {
  const CommandLine line = parse({"--help"});
  EXPECT_TRUE(line.should_exit);
  EXPECT_THAT(line.text,
              AllOf(HasSubstr("Levels"), HasSubstr("--level "), HasSubstr("--warmup-steps"),
                    HasSubstr("corpus"), HasSubstr("--products auto|onednn|blas=auto")));
}

TEST(Options, AStepHasOptionsOfItsOwn) {
  expect_refusal({"--level", "10"}, {"--level is 10, it must be at least 1 and at most 9"});
  expect_refusal({"--level", "9"}, {"--level 9 is for fewer steps"});
  EXPECT_EQ(parse({"--level", "9", "--steps", "10"}).options.get<LevelOptions>().level, 9);
  // What is derived cannot be given, and is not printed.
  EXPECT_EQ(parse({"--level-rows", "true"}).options.data.num_microbatches, 3);
  expect_refusal({"--level-rows", "true", "--num-microbatches", "2"}, {"rows twice"});
  EXPECT_THAT(parse({"--level-rows", "true", "--print-config"}).text,
              HasSubstr("# num-microbatches = 3, which follows from other options"));
  const std::set<std::string> harmless = options_that_change_no_bits(parse({}).options);
  EXPECT_TRUE(harmless.contains("level") && harmless.contains("out"));
  EXPECT_FALSE(harmless.contains("level-rows") || harmless.contains("reduction") ||
               harmless.contains("device") || harmless.contains("lr"));
}

// A step sees its own options, whatever else a struct holds that other steps have been given.
TEST(Options, OfOtherStepsAreDropped) {
  struct OtherOptions {
    int other = 1;
    void declare(OptionTable& table) { table.value("--other", other, "of another step"); }
  };
  TrainOptions options;
  options.set<OtherOptions>().other = 2;
  EXPECT_EQ(to_json(options).at("other"), 2);
  const TrainOptions own = options_for(trainer_x(), options);
  EXPECT_EQ(own.own.find<OtherOptions>(), nullptr);
  EXPECT_EQ(to_json(own).at("level"), 3);
  EXPECT_EQ(own.step, "step_x");
}

TEST(Options, APictureIsTextOrATrace) {
  EXPECT_FALSE(parse({}).picture_file.has_value());
  EXPECT_EQ(parse({"--show-level"}).picture_file, "");
  EXPECT_EQ(parse({"--show-level", "a.json"}).picture_file, "a.json");
  expect_refusal({"--show-level", "a.svg"}, {"--show-level is 'a.svg'", "./ladder trace"});
}

TEST(Options, DryRunTakesRanks) {
  EXPECT_EQ(parse({"--dry-run"}).dry_run_ranks, 1);
  EXPECT_EQ(parse({"--dry-run", "8"}).dry_run_ranks, 8);
  EXPECT_EQ(parse({}).dry_run_ranks, 0);
}

}  // namespace
}  // namespace ladder
