#include "common/train/options/command_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "common/core/check.hpp"
#include "common/testing/temp_folder.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

CommandLine parse(std::vector<const char*> arguments,
                  const std::set<OptionGroup>& groups = {OptionGroup::kSimulatedRanks}) {
  arguments.insert(arguments.begin(), "program");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data(), "step_x", groups);
}

void expect_refused(const std::vector<const char*>& arguments,
                    const std::vector<const char*>& parts) {
  for (const char* part : parts) {
    EXPECT_THAT([&] { parse(arguments); }, ThrowsMessage<UsageError>(HasSubstr(part)));
  }
}

TEST(Options, DefaultsAreTheStructs) {
  TrainOptions defaults{.groups = {OptionGroup::kSimulatedRanks}};
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
  expect_refused({"--transport", "threads"}, {"--transport threads", "--ranks N"});
  expect_refused({"--ranks", "3"}, {"--ranks 3", "--transport threads", "mpirun -n 3",
                                    "./ladder train step_x --ranks 3"});
  expect_refused({"--ranks", "3", "--transport", "mpi"}, {"--ranks 3 is for --transport threads"});
  expect_refused({"--transport", "thread"}, {"auto or self or mpi or threads"});
  for (const char* number : {"-1", "1025"}) {
    expect_refused({"--transport", "threads", "--ranks", number},
                   {"it must be at least 1 and at most 1024"});
  }
  expect_refused({"--transport", "threads", "--ranks", "2", "--memory-cap-mb", "5"},
                 {"--memory-cap-mb 5", "--transport threads", "--transport mpi"});
}

TEST(Options, OnAGpuTheDefaultIsBf16) {
  EXPECT_EQ(parse({"--device", "cuda"}).options.device, at::Device(at::kCUDA));
  EXPECT_EQ(parse({"--device", "cuda"}).options.model.precision, (Precision{at::kBFloat16}));
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
  expect_refused({"--device", "tpu"}, {"--device is 'tpu'", "cpu or cuda"});
  expect_refused({"--transport", "nccl"}, {"--transport nccl", "--device cuda"});
  expect_refused({"--device", "cuda", "--transport", "nccl", "--nccl-timeout", "0"},
                 {"--nccl-timeout is 0"});
  expect_refused({"--device", "cuda", "--transport", "nccl", "--link", "50:1"},
                 {"--link 50:1", "--transport mpi"});
  expect_refused({"--device", "cuda", "--transport", "threads", "--ranks", "2"},
                 {"--transport threads is for the CPU", "./ladder train step_x --ranks 2"});
}

TEST(Options, CudaGraphsNeedAGpuAndAStepWithoutHooks) {
  const auto parse_graphs = [](std::vector<const char*> arguments) {
    return parse(std::move(arguments), {OptionGroup::kCudaGraphs}).options;
  };
  EXPECT_FALSE(parse_graphs({}).uses_cuda_graphs);
  EXPECT_FALSE(parse_graphs({"--cuda-graphs", "false"}).uses_cuda_graphs);
  TrainOptions o = parse_graphs({"--device", "cuda", "--cuda-graphs", "true"});
  EXPECT_TRUE(o.uses_cuda_graphs);
  EXPECT_THAT(
      [&] {
        parse_graphs({"--cuda-graphs", "true"});
      },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("--cuda-graphs true"),
                                      HasSubstr("--device is cpu: give --device cuda"))));
  EXPECT_THAT(
      [] {
        parse({"--device", "cuda", "--cuda-graphs", "true"}, {OptionGroup::kBuckets});
      },
      ThrowsMessage<UsageError>(HasSubstr("--cuda-graphs: step_x does not have it")));
  o.groups = {OptionGroup::kBuckets};  // code that fills in the struct itself
  EXPECT_THAT([&] { finalize(o); },
              ThrowsMessage<UsageError>(HasSubstr("--cuda-graphs true is not for step_x")));
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
                                "32",          "--fold",
                                "ranks-first", "--simulate-ranks",
                                "3",           "--tie-embeddings",
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
  EXPECT_EQ(o.fold, Fold::kRanksFirst);
  EXPECT_EQ(o.simulate_ranks, 3);
  EXPECT_FALSE(o.model.tie_embeddings);
  EXPECT_EQ(o.model.products, Products::kBlas);
  EXPECT_TRUE(o.data.overfit_one_batch);
  EXPECT_EQ(o.clip_norm, 0);
}

TEST(Options, UnknownOnesNameTheNearest) {
  expect_refused({"--micro-batchsize", "3"},
                 {"--micro-batchsize", "did you mean --micro-batch-size?"});
  expect_refused({"--lrate", "1"}, {"did you mean --lr?"});  // as near as --data, but begins alike
  expect_refused({"--bucket-mb", "1"},
                 {"unknown option --bucket-mb: step_x does not have it", "other steps"});
  expect_refused({"--step=3"}, {"unknown option --step,", "did you mean --steps?"});
  expect_refused({"--qwertyuiopasdf"}, {"unknown option --qwertyuiopasdf (--help"});
  expect_refused({"stray"}, {"stray"});
  EXPECT_THROW(parse({"--simulate-ranks", "2"}, {}), UsageError);  // not an option of this step
}

TEST(Options, BadValuesNameOptionAndValue) {
  expect_refused({"--steps", "-1"}, {"--steps is -1"});
  expect_refused({"--steps", "ten"}, {"--steps", "ten"});
  expect_refused({"--seed", "-1"}, {"--seed is '-1', it must be a whole number from 0 to 1844"});
  expect_refused({"--seed", "18446744073709551616"}, {"--seed is '18446744073709551616', it must"});
  expect_refused({"--micro-batch-size", "9223372036854775807"},
                 {"--micro-batch-size is 9223372036854775807"});
  expect_refused({"--simulate-ranks", "9223372036854775807"},
                 {"--simulate-ranks is 9223372036854775807"});
  expect_refused({"--heads", "5"}, {"--channels 128", "--heads 5"});
  expect_refused({"--order", "random"}, {"--order", "random"});
  expect_refused({"--beta2", "1"}, {"--beta2 is 1"});
  expect_refused({"--lr", "nan"}, {"--lr"});
  expect_refused({"--eps", "0"}, {"--eps is 0"});
  expect_refused({"--micro-batch-size", "0"}, {"--micro-batch-size is 0"});
  expect_refused({"--dry-run", "0"}, {"--dry-run"});
  expect_refused({"--data", "x.txt", "--eval-every", "5"}, {"--val-data", "x.txt"});
  expect_refused({"--init-from", "a", "--resume", "b", "--out", "o"},
                 {"--init-from a", "--resume b", "--resume auto"});
  expect_refused({"--resume", "auto"}, {"--out"});
  expect_refused({"--sample", "x", "--vocab-size", "100"}, {"--sample", "100"});
  expect_refused({"--precision", "fp8"}, {"--precision is 'fp8', it must be fp32 or bf16 or fp16"});
  expect_refused({"--grad-dtype", "bf16"}, {"--grad-dtype bf16", "parameters are fp32"});
  expect_refused({"--precision", "fp16", "--grad-dtype", "bf16"}, {"parameters are fp16"});
  expect_refused({"--masters", "none"}, {"--masters", "--precision is fp32"});
  for (const char* scale : {"3", "0.5", "-2", "0", "inf"})
    expect_refused({"--loss-scale", scale}, {"--loss-scale", "a power of two"});
  expect_refused({"--loss-scale-window", "0"}, {"--loss-scale-window is 0"});
}

TEST(Options, PrecisionReachesTheModelAndTheOptimizer) {
  const TrainOptions options = parse({"--precision", "bf16", "--grad-dtype", "bf16", "--masters",
                                      "stochastic", "--seed", "7"})
                                   .options;
  EXPECT_EQ(options.model.precision, (Precision{at::kBFloat16, at::kBFloat16}));
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
    expect_refused({name.c_str()}, {missing.c_str()});
    expect_refused({name.c_str(), ""}, {missing.c_str()});
    expect_refused({(name + "=").c_str()}, {missing.c_str()});
    expect_refused({name.c_str(), "--quiet"}, {missing.c_str()});
    expect_refused({name.c_str(), "--steps=3"}, {missing.c_str()});
    const std::string wrong = name + " is 'maybe', it must be " + expected;
    expect_refused({name.c_str(), "maybe"}, {wrong.c_str()});
    expect_refused({(name + "=maybe").c_str()}, {wrong.c_str()});
  }
  for (const char* wrong : {"2.5", "99999999999999999999", "1x", " 1", "0x10"})
    expect_refused({"--threads", wrong}, {"--threads is '", "', it must be a whole number"});
  expect_refused({"--threads", "99999999999"}, {"--threads is '99999999999'"});
}

TEST(Options, ATextMayBeEmptyButNotForgotten) {
  EXPECT_EQ(parse({"--out", "", "--quiet"}).options.output.out, "");
  EXPECT_EQ(parse({"--sample", "-- a comment"}).options.output.sample, "-- a comment");
  for (const std::vector<const char*>& forgotten :
       {std::vector<const char*>{"--out"}, {"--out="}, {"--out", "--quiet"}})
    expect_refused(forgotten, {"--out needs a value: text"});
  expect_refused({"--data"}, {"--data needs a value: text, for example --data corpus"});
  expect_refused({"--config"}, {"--config needs a value: a file name"});
}

TEST(Options, AFlagNeedsNoValueButTakesOne) {
  EXPECT_TRUE(parse({"--quiet"}).options.output.is_quiet);
  EXPECT_TRUE(parse({"--quiet", "--steps", "3"}).options.output.is_quiet);
  EXPECT_TRUE(parse({"--quiet=true"}).options.output.is_quiet);
  EXPECT_FALSE(parse({"--quiet=false"}).options.output.is_quiet);
  expect_refused({"--quiet=maybe"}, {"--quiet is 'maybe', it must be true or false"});
}

TEST(Options, AMemoryCapIsNoneOrAtLeastAByte) {
  const auto cap = [](const char* mb) {
    return memory_cap_bytes(parse({"--memory-cap-mb", mb}).options);
  };
  EXPECT_EQ(cap("0"), 0);
  EXPECT_EQ(cap("1.5"), 1572864);
  EXPECT_EQ(cap("0.00000095367431640625"), 1);  // 2^-20 MiB
  for (const char* mb : {"1e-9", "-1", "9e-7", "1e300", "nan", "inf"})
    expect_refused({"--memory-cap-mb", mb}, {"--memory-cap-mb is ", "0 (no cap)"});
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
    EXPECT_THAT(
        [&] {
          parse({"--config", path.c_str()});
        },
        ThrowsMessage<UsageError>(AllOf(HasSubstr(path), HasSubstr(part))));
  };
  refused("stepz = 11\n", "unknown option stepz, did you mean steps?");
  refused("steps = [1, 2]\n", "steps has 2 values");
  refused("steps = 1 2\n", "steps has 2 values");
  refused("[model]\nlayers = 2\n", "model");
  EXPECT_THROW(parse({"--config", "/does/not/exist"}), UsageError);
  const std::string fifo = folder.path("fifo");  // to open it would wait for a writer
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& no_file : {fifo, folder.path().string(), std::string("/dev/zero")}) {
    EXPECT_THAT(
        [&] {
          parse({"--config", no_file.c_str()});
        },
        ThrowsMessage<UsageError>(HasSubstr("--config " + no_file + ": is not a regular file")));
  }
}

// The values to try for an option: others than its default, and all that a choice has.
std::vector<std::string> values_for(const std::string& name, const Json& value,
                                    const std::set<OptionGroup>& groups) {
  if (value.is_boolean()) return {"true", "false"};
  if (value.is_number()) return {"2", "300", "0.00123456789012345"};
  try {
    parse({name.c_str(), "?"}, groups);
  } catch (const UsageError& error) {
    const std::string message = error.what();
    const std::size_t start = message.find("it must be ");
    if (start != std::string::npos && message.find(" or ", start) != std::string::npos) {
      std::vector<std::string> choices;
      std::istringstream words(
          message.substr(start + 11, message.find(',', start + 11) - start - 11));
      for (std::string word; words >> word;)
        if (word != "or") choices.push_back(word);
      return choices;
    }
  }
  return {"", "a folder/x, [y]; z = 1 'q'", "50:1", "localhost:1"};
}

// Options that others need next to them.
const std::vector<std::vector<const char*>> kCompanions = {
    {},
    {"--out", "o"},
    {"--val-data", "v"},
    {"--device", "cuda"},
    {"--precision", "fp16"},
    {"--transport", "threads", "--ranks", "2"},
    {"--objective", "dpo", "--dpo-reference", "a"},
    {"--pipeline-schedule", "interleaved", "--chunks-per-stage", "2"},
    {"--micro-batch-size", "2", "--local-batch-size", "8"},
    {"--elastic", "localhost:1", "--workers", "9", "--worker", "1"}};

// With the first of the companions that lets the option have this value.
std::optional<CommandLine> print_config(const std::string& name, const std::string& value,
                                        const std::set<OptionGroup>& groups) {
  for (std::vector<const char*> arguments : kCompanions) {
    arguments.insert(arguments.end(), {name.c_str(), value.c_str(), "--print-config"});
    try {
      return parse(arguments, groups);
    } catch (const UsageError&) {
    }
  }
  return std::nullopt;
}

// Every option of every step.
TEST(Options, PrintedConfigReadsBackToTheSameValues) {
  const TempFolder folder;
  const std::string path = folder.path("c.toml");
  for (const std::set<OptionGroup>& groups :
       {std::set{OptionGroup::kSimulatedRanks, OptionGroup::kCudaGraphs, OptionGroup::kReference},
        {OptionGroup::kBuckets, OptionGroup::kPrefetch},
        {OptionGroup::kBuckets, OptionGroup::kPipeline},
        {OptionGroup::kDiloco}}) {
    const Json defaults = to_json(parse({}, groups).options);
    for (const auto& [key, default_value] : defaults.items()) {
      bool is_changed = false;
      for (const std::string& value : values_for("--" + key, default_value, groups)) {
        const std::optional<CommandLine> line = print_config("--" + key, value, groups);
        if (!line) continue;
        const Json wanted = to_json(line->options);
        is_changed = is_changed || wanted[key] != default_value;
        std::ofstream(path) << line->text;
        try {
          EXPECT_EQ(to_json(parse({"--config", path.c_str()}, groups).options), wanted)
              << line->text;
        } catch (const UsageError& error) {
          ADD_FAILURE() << key << " = " << value << ": " << error.what();
        }
      }
      EXPECT_TRUE(is_changed) << key << ": no value was tried but its default";
    }
  }
}

TEST(Options, PrintedConfigLeavesOutWhatAFileCannotHold) {
  for (const char* text : {"two\nlines", "a \"quote\"", "C:\\x", "item #1", "\xff"}) {
    const CommandLine line = parse({"--print-config", "--sample", text});
    EXPECT_THAT(line.text, HasSubstr("# sample: give it on the command line")) << text;
  }
}

TEST(Options, HelpTeaches) {
  const CommandLine line = parse({"--help"});
  EXPECT_TRUE(line.should_exit);
  EXPECT_THAT(line.text, AllOf(HasSubstr("--simulate-ranks"), HasSubstr("--warmup-steps"),
                               HasSubstr("corpus")));
  EXPECT_THAT(parse({"--help"}, {}).text, ::testing::Not(HasSubstr("--simulate-ranks")));
}

const std::set<OptionGroup> kPipelines = {OptionGroup::kPipeline};

TEST(Options, APipelineTakesAFlushInMicrobatchesOrInRows) {
  const TrainOptions o =
      parse({"--local-batch-size", "12", "--micro-batch-size", "2", "--accumulation", "3"},
            kPipelines)
          .options;
  EXPECT_EQ(o.data.num_microbatches, 6);
  EXPECT_EQ(microbatches_per_step(o), 18);
  EXPECT_EQ(parse({}, kPipelines).options.data.num_microbatches, 4);
  EXPECT_EQ(microbatches_per_step(parse({"--num-microbatches", "5"}, kPipelines).options), 5);
  EXPECT_EQ(parse({"--pipeline-schedule", "zero-bubble"}, kPipelines).options.pipeline.schedule,
            Schedule::kZeroBubble);
}

// A message about several options has the values of all.
TEST(Options, APipelineRefusesABatchThatDoesNotDivide) {
  const auto refused = [](const std::vector<const char*>& words,
                          const std::vector<const char*>& parts) {
    for (const char* part : parts)
      EXPECT_THAT([&] { parse(words, kPipelines); }, ThrowsMessage<UsageError>(HasSubstr(part)));
  };
  refused(
      {"--local-batch-size", "9", "--micro-batch-size", "2", "--pipeline-stages", "3"},
      {"--micro-batch-size 2, --local-batch-size 9, --pipeline-stages 3: 9 rows do not divide"});
  refused({"--micro-batch-size", "0"}, {"--micro-batch-size is 0"});
  refused({"--local-batch-size", "-2"}, {"--local-batch-size is -2"});
  refused({"--num-microbatches", "2", "--pipeline-stages", "3"},
          {"--micro-batch-size 4, --num-microbatches 2, --pipeline-stages 3", "it has 2"});
  refused({"--local-batch-size", "8", "--num-microbatches", "2"}, {"say the same"});
  refused({"--pipeline-stages", "-1"}, {"--pipeline-stages is -1"});
  refused({"--accumulation", "0"}, {"--accumulation is 0"});
  refused({"--chunks-per-stage", "2"}, {"only --pipeline-schedule interleaved"});
  refused({"--pipeline-schedule", "interleaved"}, {"needs 2 or more"});
  refused({"--pipeline-schedule", "1b1f"},
          {"it must be gpipe or 1f1b or interleaved or zero-bubble"});
  expect_refused({"--pipeline-stages", "2"}, {"unknown option --pipeline-stages"});
}

TEST(Options, DocumentsPerStepReplaceTheNumberOfMicrobatches) {
  const TrainOptions o =
      parse({"--docs-per-step", "12", "--pipeline-stages", "3"}, kPipelines).options;
  EXPECT_EQ(o.pipeline.docs_per_step, 12);
  EXPECT_EQ(microbatches_per_step(o), 1);  // fetched at a time
  EXPECT_EQ(num_stages_of(o, 6), 3);       // a flush of any size
  const auto refused = [](const std::vector<const char*>& words, const char* part) {
    EXPECT_THAT([&] { parse(words, kPipelines); }, ThrowsMessage<UsageError>(HasSubstr(part)));
  };
  refused({"--docs-per-step", "-1"}, "--docs-per-step is -1");
  refused({"--docs-per-step", "5", "--num-microbatches", "2"}, "give only one of them");
  refused({"--docs-per-step", "5", "--accumulation", "2"}, "leave out --accumulation 2");
  refused({"--docs-per-step", "5", "--local-batch-size", "8"}, "leave out --local-batch-size 8");
  refused({"--docs-per-step", "5", "--overfit-one-batch"}, "--overfit-one-batch reads the same");
}

TEST(Options, ObjectivesHaveTheirUnits) {
  const auto unit = [](const std::vector<const char*>& words) {
    return unit_of(parse(words, kPipelines).options.objective);
  };
  EXPECT_EQ(unit({}), "target tokens");
  EXPECT_EQ(unit({"--objective", "dpo", "--dpo-reference", "runs/a"}), "pairs");
  EXPECT_EQ(unit({"--objective", "dpo", "--init-from", "runs/a", "--dpo-unit", "tokens"}),
            "answer tokens");
  EXPECT_EQ(unit({"--objective", "self_distillation"}), "samples");
}

TEST(Options, ObjectivesRefuseWhatTheyCannotUse) {
  const auto refused = [](const std::vector<const char*>& words, const char* part) {
    EXPECT_THAT([&] { parse(words, kPipelines); }, ThrowsMessage<UsageError>(HasSubstr(part)));
  };
  refused({"--objective", "ppo"}, "it must be lm or dpo or self_distillation");
  refused({"--objective", "dpo"}, "give --dpo-reference CHECKPOINT");
  refused({"--objective", "dpo", "--dpo-reference", "a", "--rows", "documents"}, "leave it out");
  refused({"--dpo-reference", "a"}, "--dpo-reference a is for --objective dpo only");
  refused({"--dpo-reference-cache", "a"}, "--dpo-reference-cache a is for --objective dpo only");
  refused({"--dpo-beta", "0"}, "--dpo-beta is 0");
  refused({"--dpo-label-smoothing", "0.6"}, "--dpo-label-smoothing is 0.6");
  refused({"--prototypes", "1"}, "--prototypes is 1");
  refused({"--prototypes", "259"}, "the size of the vocabulary, which is 258");
  refused({"--student-temperature", "0"}, "--student-temperature is 0");
  refused({"--teacher-temperature", "-1"}, "--teacher-temperature is -1");
  refused({"--teacher-momentum", "1.1"}, "--teacher-momentum is 1.1");
  refused({"--view-noise", "-0.1"}, "--view-noise is -0.1");
  refused({"--objective", "self_distillation", "--micro-batch-size", "1"},
          "--micro-batch-size 2 or more, or --sinkhorn-scope batch");
  parse({"--micro-batch-size", "1"}, kPipelines);
  parse(
      {"--objective", "self_distillation", "--micro-batch-size", "1", "--sinkhorn-scope", "batch"},
      kPipelines);
  expect_refused({"--objective", "dpo"}, {"unknown option --objective"});
}

TEST(Options, ThePipelinesStagesFollowFromTheRanks) {
  const TrainOptions any = parse({"--num-microbatches", "6"}, kPipelines).options;
  EXPECT_EQ(num_stages_of(any, 3), 3);
  EXPECT_THROW(num_stages_of(any, 7), UsageError);  // more stages than microbatches
  const TrainOptions two = parse({"--pipeline-stages", "2"}, kPipelines).options;
  EXPECT_EQ(num_stages_of(two, 6), 2);
  EXPECT_THAT([&] { num_stages_of(two, 5); },
              ThrowsMessage<UsageError>(HasSubstr("does not divide 5 rank(s)")));
  const TrainOptions chunks =
      parse({"--pipeline-schedule", "interleaved", "--chunks-per-stage", "2"}, kPipelines).options;
  EXPECT_EQ(num_stages_of(chunks, 2), 2);
  EXPECT_THAT([&] { num_stages_of(chunks, 1); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("--pipeline-schedule is interleaved"),
                                              HasSubstr("nothing to interleave"))));
}

TEST(Options, ShowScheduleTakesNoFileOrAnSvg) {
  EXPECT_FALSE(parse({}, kPipelines).show_schedule.has_value());
  EXPECT_EQ(parse({"--show-schedule"}, kPipelines).show_schedule, "");
  EXPECT_EQ(parse({"--show-schedule", "a.svg"}, kPipelines).show_schedule, "a.svg");
  EXPECT_THAT(
      [] {
        parse({"--show-schedule", "a.png"}, kPipelines);
      },
      ThrowsMessage<UsageError>(HasSubstr("--show-schedule is 'a.png'")));
}

TEST(Options, AWireHasOneOfThreeFormats) {
  const std::set<OptionGroup> diloco = {OptionGroup::kDiloco};
  EXPECT_EQ(parse({}, diloco).options.diloco.wire, WireFormat::kFp32);
  EXPECT_EQ(parse({"--wire", "bf16"}, diloco).options.diloco.wire, WireFormat::kBf16);
  EXPECT_EQ(parse({"--wire", "int8"}, diloco).options.diloco.wire, WireFormat::kInt8);
  EXPECT_THAT(
      [&] {
        parse({"--wire", "fp8"}, diloco);
      },
      ThrowsMessage<UsageError>(HasSubstr("--wire is 'fp8', it must be fp32 or bf16 or int8")));
}

TEST(Options, DryRunTakesRanks) {
  EXPECT_EQ(parse({"--dry-run"}).dry_run_ranks, 1);
  EXPECT_EQ(parse({"--dry-run", "8"}).dry_run_ranks, 8);
  EXPECT_EQ(parse({}).dry_run_ranks, 0);
}

}  // namespace
}  // namespace ladder
