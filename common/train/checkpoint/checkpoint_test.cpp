#include "common/train/checkpoint/checkpoint.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What a state is made of: tensors that a test can change.
struct Tensors {
  std::vector<NamedTensor> parameters = {{"w", at::randn({3, 4})}, {"b", at::randn({4})}};
  std::vector<NamedTensor> optimizer = {{"w.exp_avg", at::randn({3, 4})},
                                        {"b.exp_avg", at::randn({4})}};
  std::string tokenizer = "bytes";

  TrainState state() const {
    return {whole_tensors(parameters),
            whole_tensors(optimizer),
            /*optimizer_steps=*/17,
            {.epoch = 2, .samples = 30},
            tokenizer};
  }
};

Tensors zeros() {
  Tensors zeros;
  for (auto* list : {&zeros.parameters, &zeros.optimizer}) {
    for (NamedTensor& named : *list) named.tensor.zero_();
  }
  return zeros;
}

TrainState zero_state() {
  TrainState state = zeros().state();
  state.optimizer_steps = 0;
  state.data = {};
  return state;
}

void flip_byte(const fs::path& path, std::streamoff from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const char byte = static_cast<char>(file.peek() ^ 1);
  file.seekp(-from_end, std::ios::end);
  file.put(byte);
}

class CheckpointTest : public ::testing::Test {
 protected:
  // Loading it into such a state fails, and says all this.
  static void expect_refused(const fs::path& checkpoint, TrainState state,
                             const std::vector<std::string>& parts,
                             const std::source_location& where = std::source_location::current()) {
    expect_throws<CheckError>([&] { load_checkpoint(checkpoint, state); }, parts, where);
  }

  const Tensors tensors_;
  const TrainState state_ = tensors_.state();
  TempFolder folder_;
};

TEST_F(CheckpointTest, RoundTripKeepsEveryBit) {
  const fs::path saved = save_checkpoint(folder_.path(), 40, state_, {{"seed", 3}}).path;
  EXPECT_EQ(saved.filename(), "step_000040");
  TrainState loaded = zero_state();
  const LoadedCheckpoint found = load_checkpoint(saved, loaded);
  EXPECT_EQ(found.step, 40);
  EXPECT_EQ(found.config["seed"], 3);
  EXPECT_EQ(tensor_hash(loaded.parameters), tensor_hash(state_.parameters));
  EXPECT_EQ(tensor_hash(loaded.optimizer), tensor_hash(state_.optimizer));
  EXPECT_EQ(found.optimizer_steps, 17);
  EXPECT_EQ(found.data, state_.data);
  EXPECT_EQ(*newest_checkpoint(folder_.path()), saved);
}

TEST_F(CheckpointTest, HashDependsOnNamesAndBitsNotOnOrder) {
  std::vector<NamedTensor> tensors = tensors_.parameters;
  const std::string hash = tensor_hash(whole_tensors(tensors));
  EXPECT_EQ(hash.size(), 32u);
  std::swap(tensors[0], tensors[1]);
  EXPECT_EQ(tensor_hash(whole_tensors(tensors)), hash);
  tensors[0].name = "c";
  EXPECT_NE(tensor_hash(whole_tensors(tensors)), hash);
  tensors = tensors_.parameters;
  tensors[0].tensor = tensors[0].tensor.clone();
  tensors[0].tensor[0][0] = std::nextafter(tensors[0].tensor[0][0].item<float>(), 10.0F);
  EXPECT_NE(tensor_hash(whole_tensors(tensors)), hash);
}

// As the first version of the format had it, without a hash, so that a reader must look at each
// value.
Json first_version_of(const fs::path& checkpoint) {
  Json json = Json::parse(read_text_file(checkpoint / "state.json"));
  json["format_version"] = 1;
  json.erase("state_hash");
  return json;
}

TEST_F(CheckpointTest, ALossScaleComesBackAndADamagedOneIsRefused) {
  const LossScaleState state = {.scale = 4096, .good_steps = 17, .skipped_steps = 3};
  const fs::path saved =
      save_checkpoint(folder_.path(), 1, state_, Json::object(), {.loss_scale = state}).path;
  TrainState loaded = zero_state();
  EXPECT_EQ(load_checkpoint(saved, loaded).loss_scale, state);
  const fs::path without = save_checkpoint(folder_.path(), 2, state_, Json::object()).path;
  EXPECT_FALSE(load_checkpoint(without, loaded).loss_scale.has_value());
  Json json = first_version_of(saved);
  for (const Json& damaged :
       {Json(7), Json::object(), Json({{"scale", 0}, {"good_steps", 0}, {"skipped_steps", 0}}),
        Json({{"scale", -2}, {"good_steps", 0}, {"skipped_steps", 0}})}) {
    json["loss_scale"] = damaged;
    std::ofstream(saved / "state.json") << json.dump();
    expect_refused(saved, loaded, {"state.json"});
  }
}

// Other tools find model.safetensors in a folder of its own; the checkpoint itself stays what it
// was.
TEST_F(CheckpointTest, ACopyIn16BitsIsWrittenBeside) {
  const std::string param_hash =
      save_checkpoint(folder_.path(), 1, state_, Json::object()).param_hash;
  for (const auto& [type, name] : {std::pair{at::kBFloat16, "bf16"}, {at::kHalf, "fp16"}}) {
    fs::remove_all(folder_.path() / "checkpoints");
    const SavedCheckpoint saved =
        save_checkpoint(folder_.path(), 1, state_, Json::object(), {.copy_dtype = type});
    EXPECT_EQ(saved.param_hash, param_hash);
    SafetensorsReader copy(saved.path / name / "model.safetensors");
    ASSERT_EQ(copy.tensors().size(), state_.parameters.stored.size());
    for (const NamedTensor& wanted : tensors_.parameters) {
      const at::Tensor found = at::empty(wanted.tensor.sizes(), type);
      copy.read(wanted.name, found);
      EXPECT_TRUE(found.equal(wanted.tensor.to(type))) << wanted.name;
    }
    TrainState loaded = zero_state();
    load_checkpoint(saved.path, loaded);
    EXPECT_EQ(tensor_hash(loaded.parameters), param_hash);
  }
}

// What 16-bit parameters store: their masters, or themselves, as fp32 either way.
TEST_F(CheckpointTest, SixteenBitParametersAreStoredInFp32) {
  for (const Masters kind : {Masters::kFp32, Masters::kNone}) {
    FlatModel model(
        {{"unit", {{"w", at::randn({320}).to(at::kBFloat16).set_requires_grad(true)}}}});
    const FlatGradients grads(model);
    Optimizer optimizer(model, grads, {.masters = kind});
    // As if another rank's parameters arrived: masters follow them until they are used.
    model.params().copy_(at::randn({320}));
    const StateTensors stored = stored_parameters(model, optimizer);
    EXPECT_EQ(stored.stored[0].dtype, at::kFloat);
    EXPECT_EQ(tensor_hash(stored),
              tensor_hash(whole_tensors({{"w", model.params().to(at::kFloat)}})));
    const at::Tensor saved = at::randn({320});
    stored.fill("w", [&](const std::string&, const at::Tensor& into) { into.copy_(saved); });
    EXPECT_TRUE(model.params().equal(saved.to(at::kBFloat16)));
    const bool has_masters = kind == Masters::kFp32;
    EXPECT_EQ(tensor_hash(stored),
              tensor_hash(whole_tensors(
                  {{"w", has_masters ? saved : saved.to(at::kBFloat16).to(at::kFloat)}})));
    EXPECT_EQ(optimizer.masters().defined(), has_masters);
  }
}

TEST_F(CheckpointTest, DamageIsFoundAndNamed) {
  const auto with_quanta = [](TrainState state) {
    state.extra_files = {{"quanta.safetensors", whole_tensors(zeros().optimizer)}};
    return state;
  };
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "quanta.safetensors"}) {
    fs::remove_all(folder_.path() / "checkpoints");
    const fs::path saved =
        save_checkpoint(folder_.path(), 1, with_quanta(state_), Json::object()).path;
    flip_byte(saved / name, 3);
    expect_refused(saved, with_quanta(zero_state()), {name, "damaged"});
    fs::resize_file(saved / name, fs::file_size(saved / name) - 1);
    expect_refused(saved, with_quanta(zero_state()), {name});
    fs::remove(saved / name);
    expect_refused(saved, with_quanta(zero_state()), {name});
  }
  const fs::path saved = save_checkpoint(folder_.path(), 2, state_, Json::object()).path;
  for (const char* text :
       {"", "{", "{}", R"({"format_version": 3})", R"({"format_version": 1, "step": 2})"}) {
    std::ofstream(saved / "state.json") << text;
    expect_refused(saved, zero_state(), {"state.json"});
  }
}

TEST_F(CheckpointTest, WhatDoesNotFitIsRefusedBeforeAnythingChanges) {
  const fs::path saved = save_checkpoint(folder_.path(), 1, state_, Json::object()).path;
  const auto refused = [&](const Tensors& other, const std::string& first,
                           const std::string& second) {
    expect_refused(saved, other.state(), {first, second});
    EXPECT_EQ(other.parameters[0].tensor.abs().max().item<float>(), 0.0F);
  };
  Tensors other = zeros();
  other.parameters[1].tensor = at::zeros({5});
  refused(other, "[4]", "[5]");
  other = zeros();
  other.parameters.push_back({"extra", at::zeros({1})});
  refused(other, "no tensor \"extra\"", "");
  other = zeros();
  other.parameters.pop_back();
  refused(other, "no place for", "\"b\"");
  other = zeros();
  other.optimizer.clear();  // a run with SGD
  refused(other, "optimizer.safetensors", "--optimizer sgd");
  other = zeros();
  other.tokenizer = "token file";
  refused(other, "'bytes'", "'token file'");
}

// Shapes tell none of these, so that a wrong model would train on without a word.
TEST_F(CheckpointTest, WhatNoShapeTellsIsComparedForParametersAloneAsWell) {
  const Json config = {{"heads", 4}, {"rope-theta", 100000.0}, {"norm-eps", 1e-6}};
  const fs::path saved = save_checkpoint(folder_.path(), 1, state_, config).path;
  const Tensors untouched = zeros();
  TrainState same = zero_state(), other_heads = untouched.state();
  same.model = {.heads = 4, .rope_theta = 100000, .norm_eps = 1e-6};
  other_heads.model = same.model;
  TrainState other_theta = other_heads, other_eps = other_heads, other_tokens = other_heads,
             slower = other_heads, no_positions = other_heads, exact = other_heads;
  other_heads.model->heads = 2;
  other_theta.model->rope_theta = 10000;
  other_eps.model->norm_eps = 1e-5;
  slower.model->rope_scaling = "linear:2";
  no_positions.model->no_rope_interval = 4;
  exact.model->gelu = GeluForm::kExact;
  other_tokens.tokenizer = "token file";
  const auto refused = [&](const TrainState& state, const std::string& first,
                           const std::string& second) {
    expect_refused(saved, state, {first, second});
    expect_throws<CheckError>([&] { load_parameters(saved, state); }, {first, second});
    EXPECT_EQ(untouched.parameters[0].tensor.abs().max().item<float>(), 0.0F);
  };
  refused(other_heads, "--heads 4", "--heads 2");
  refused(other_theta, "--rope-theta 100000.0", "--rope-theta 10000.0:");
  refused(slower, "--rope-scaling \"none\"", "--rope-scaling \"linear:2\"");
  refused(no_positions, "--no-rope-interval 0", "--no-rope-interval 4");
  refused(exact, "--gelu \"tanh\"", "--gelu \"exact\"");
  refused(other_eps, "--norm-eps 1e-06", "--norm-eps 1e-05");
  refused(other_tokens, "'bytes'", "'token file'");
  fs::create_directory(folder_.path("tokenizer"));
  refused(other_tokens, "'bytes'", "--tokenizer, for example " + folder_.path("tokenizer"));
  load_checkpoint(saved, same);
  EXPECT_EQ(load_parameters(saved, same), tensor_hash(state_.parameters));
}

// Checkpoints of a time when there were no such options.
TEST_F(CheckpointTest, WhatAnOlderOneDoesNotSayWasAsByDefault) {
  const fs::path saved = save_checkpoint(folder_.path(), 1, state_, {{"heads", 4}}).path;
  TrainState same = zero_state(), other = same;
  same.model = {.heads = 4};
  other.model = {.heads = 4, .norm_eps = 1e-6};
  load_checkpoint(saved, same);
  expect_refused(saved, other, {"give --norm-eps 1e-05"});
}

TEST_F(CheckpointTest, AnotherReferenceModelIsRefused) {
  TrainState held = state_, other = zero_state(), same = other, none = other;
  held.reference.hash = same.reference.hash = std::string(32, 'a');
  other.reference = {std::string(32, 'b'), "take a"};
  const fs::path saved = save_checkpoint(folder_.path(), 1, held, Json::object()).path;
  expect_refused(saved, other, {held.reference.hash, other.reference.hash + ". take a"});
  load_checkpoint(saved, same);
  load_checkpoint(saved, none);   // a run that has no reference
  load_parameters(saved, other);  // a new run
}

TEST_F(CheckpointTest, ImpossibleNumbersAreRefusedBeforeAnythingChanges) {
  const fs::path saved = save_checkpoint(folder_.path(), 3, state_, Json::object()).path;
  const Json good = first_version_of(saved);
  const auto refused = [&](const Json& json) {
    std::ofstream(saved / "state.json") << json;
    const Tensors untouched = zeros();
    expect_refused(saved, untouched.state(), {"state.json", "damaged"});
    EXPECT_EQ(untouched.parameters[0].tensor.abs().max().item<float>(), 0.0F);
  };
  for (const char* name : {"step", "optimizer_steps"}) {
    Json bad = good;
    for (const double number : {-3.0, 2.9, 2.0, 1e300}) {
      bad[name] = number;
      refused(bad);
    }
    bad[name] = -3;
    refused(bad);
    bad[name] = (std::int64_t{1} << 53) + 1;
    refused(bad);
    bad[name] = "three";
    refused(bad);
    bad.erase(name);
    refused(bad);
  }
  refused(Json::array());
  Json bad = good;
  bad["data"]["samples"] = -1;
  refused(bad);
  bad = good;
  bad["format_version"] = "1";
  refused(bad);
  bad = good;
  bad["config"] = "none";
  refused(bad);
}

// All that a run goes on from.
std::string all_of(const LoadedCheckpoint& loaded) {
  const LossScaleState scale = loaded.loss_scale.value_or(LossScaleState());
  return concat(loaded.step, " ", loaded.config, " ", loaded.param_hash, " ", loaded.optimizer_hash,
                " ", scale.scale, " ", scale.good_steps, " ", scale.skipped_steps, " ",
                loaded.optimizer_steps, " ", loaded.data.epoch, " ", loaded.data.samples);
}

// A digit in the number of optimizer steps, say, would otherwise change the run and nobody would
// know.
TEST_F(CheckpointTest, AnyDamagedByteOfTheStateIsRefusedOrHarmless) {
  const SaveOptions options = {
      .loss_scale = LossScaleState{.scale = 4096, .good_steps = 17, .skipped_steps = 3}};
  const fs::path saved =
      save_checkpoint(folder_.path(), 8, state_, {{"seed", 3}, {"lr", 1e-05}}, options).path;
  const std::string good = read_text_file(saved / "state.json");
  TrainState loaded = zero_state();
  const std::string wanted = all_of(load_checkpoint(saved, loaded));
  std::size_t num_refused = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {1, 3, 128}) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      std::ofstream(saved / "state.json") << damaged;
      try {
        loaded = zero_state();
        EXPECT_EQ(all_of(load_checkpoint(saved, loaded)), wanted) << damaged;
      } catch (const CheckError& error) {
        ++num_refused;
        EXPECT_THAT(error.what(), AllOf(HasSubstr("state.json"), Not(HasSubstr("json.exception"))));
      }
    }
  }
  EXPECT_GT(num_refused, 2 * good.size()) << "most bytes are no spaces";
}

TEST_F(CheckpointTest, ACheckpointOfTheFirstVersionIsReadWithoutAHash) {
  const fs::path saved = save_checkpoint(folder_.path(), 8, state_, {{"seed", 3}}).path;
  TrainState loaded = zero_state();
  Json json = first_version_of(saved);
  std::ofstream(saved / "state.json") << json;
  EXPECT_EQ(load_checkpoint(saved, loaded).step, 8);
  EXPECT_EQ(load_checkpoint(saved, loaded).optimizer_steps, 17);
  json["format_version"] = 2;
  std::ofstream(saved / "state.json") << json;
  expect_refused(saved, loaded, {"\"state_hash\" is missing"});
}

TEST_F(CheckpointTest, AStateThatWouldTakeHoursToReadIsRefused) {
  const fs::path saved = save_checkpoint(folder_.path(), 3, state_, Json::object()).path;
  const auto refused = [&](const std::string& text, const char* why) {
    std::ofstream(saved / "state.json") << text;
    expect_refused(saved, zero_state(), {"state.json", why});
  };
  refused(std::string(1'000'000, '['), "deeper than 32 levels");
  std::string keys = "{\"0\":0";
  for (int i = 1; i < 300'000; ++i) keys += concat(",\"", i, "\":0");
  refused(keys + "}", "more than 1000 keys");
}

TEST_F(CheckpointTest, NothingIsEverReplaced) {
  const fs::path saved = save_checkpoint(folder_.path(), 5, state_, Json::object()).path;
  EXPECT_THROW(save_checkpoint(folder_.path(), 5, Tensors().state(), Json::object()), CheckError);
  TrainState loaded = zero_state();
  load_checkpoint(saved, loaded);
  EXPECT_EQ(tensor_hash(loaded.parameters), tensor_hash(state_.parameters));
}

// The run's state was replaced by an older one. What goes on from there is newer.
TEST_F(CheckpointTest, TheNewerHistoryIsTheNewerCheckpoint) {
  const auto save = [&](std::int64_t step, std::vector<std::int64_t> history) {
    TrainState state = state_;
    state.history = std::move(history);
    return save_checkpoint(folder_.path(), step, state, Json::object()).path;
  };
  const auto names = [&] {
    std::vector<std::string> found;
    for (const fs::path& path : checkpoints_of(folder_.path())) found.push_back(path.filename());
    return found;
  };
  using ::testing::ElementsAre;
  save(20, {});
  save(15, {5, 9});
  save(14, {5, 10});
  EXPECT_EQ(describe_checkpoint(save(13, {6, 1})).history, (std::vector<std::int64_t>{6, 1}));
  EXPECT_THAT(names(), ElementsAre("step_000020", "step_000015", "step_000014", "step_000013"));
  EXPECT_THROW(save(13, {5, 11}), CheckError);
  EXPECT_THROW(save(20, {6, 1}), CheckError);  // one without a history is never replaced
  save(14, {6, 1});
  save(14, {6, 1});
  save(15, {6, 2});
  EXPECT_THAT(names(), ElementsAre("step_000020", "step_000013", "step_000014", "step_000015"));
  // What is damaged is neither passed over nor preferred.
  flip_byte(checkpoint_path(folder_.path(), 14) / "state.json", 100);
  EXPECT_THAT(names(), ElementsAre("step_000020", "step_000013", "step_000014", "step_000015"));
  prune_checkpoints(folder_.path(), 2);
  EXPECT_THAT(names(), ElementsAre("step_000014", "step_000015"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path() / "checkpoints"), {}), 2);
}

// As on a full disk.
TEST_F(CheckpointTest, ASaveThatFailsLeavesNothing) {
  const fs::path good = save_checkpoint(folder_.path(), 1, state_, Json::object()).path;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  for (const char* first_too_large : {"model.safetensors", "state.json"}) {
    const rlim_t limit = fs::file_size(good / first_too_large) - 1;
    const rlimit lower = {limit, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &lower), 0);
    EXPECT_THROW(save_checkpoint(folder_.path(), 2, state_, Json::object()), CheckError);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_THAT(checkpoints_of(folder_.path()), ::testing::ElementsAre(good));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path() / "checkpoints"), {}), 1);
  }
  std::signal(SIGXFSZ, old_handler);
  save_checkpoint(folder_.path(), 2, state_, Json::object());
}

TEST_F(CheckpointTest, PruningKeepsTheNewestAndSweepsUpLeftovers) {
  for (const std::int64_t step : {9, 10, 100, 1000000})
    save_checkpoint(folder_.path(), step, state_, Json::object());
  fs::create_directories(folder_.path() / "checkpoints" / ".partial_step_000011");
  prune_checkpoints(folder_.path(), 0);
  EXPECT_TRUE(fs::exists(folder_.path() / "checkpoints" / "step_000009"));
  sweep_partial_checkpoints(folder_.path());
  EXPECT_FALSE(fs::exists(folder_.path() / "checkpoints" / ".partial_step_000011"));
  prune_checkpoints(folder_.path(), 2);
  EXPECT_FALSE(fs::exists(folder_.path() / "checkpoints" / "step_000010"));
  EXPECT_TRUE(fs::exists(folder_.path() / "checkpoints" / "step_000100"));
  EXPECT_EQ(newest_checkpoint(folder_.path())->filename(), "step_1000000");
  prune_checkpoints(folder_.path(), 1, /*num_unproven=*/1);
  EXPECT_TRUE(fs::exists(folder_.path() / "checkpoints" / "step_000100"));
  save_checkpoint(folder_.path(), 1000001, state_, Json::object());
  prune_checkpoints(folder_.path(), 1, /*num_unproven=*/2);
  EXPECT_TRUE(fs::exists(folder_.path() / "checkpoints" / "step_000100"));
  EXPECT_FALSE(fs::exists(folder_.path() / "checkpoints" / "step_1000000"));
  EXPECT_EQ(newest_checkpoint(folder_.path())->filename(), "step_1000001");
  EXPECT_FALSE(newest_checkpoint(folder_.path() / "nowhere").has_value());
}

}  // namespace
}  // namespace ladder
