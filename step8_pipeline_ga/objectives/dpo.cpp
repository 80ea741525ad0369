#include "step8_pipeline_ga/objectives/dpo.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/torch_types.hpp"
#include "common/train/build_model.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/checkpoint/state_tensors.hpp"
#include "common/train/start.hpp"
#include "step8_pipeline_ga/objectives/inference_model.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"

namespace ladder {

at::Tensor answer_log_probs(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor losses = at::cross_entropy_loss(
      widened(logits).flatten(0, -2), to_device(targets, logits.device()).flatten(), /*weight=*/{},
      at::Reduction::None, kIgnoredTarget);  // 0 where there is no target
  return -losses.view(targets.sizes()).sum(1);
}

PairScores score_pairs(const at::Tensor& policy, const at::Tensor& reference,
                       const DpoOptions& options) {
  check(policy.dim() == 1 && policy.size(0) % 2 == 0 && policy.sizes() == reference.sizes(),
        "pairs are scored by the log-probabilities of chosen and rejected answers: got ",
        policy.sizes(), " of the model and ", reference.sizes(), " of the reference");
  const at::Tensor rewards = options.beta * (policy - reference.to(policy.device()));
  const std::int64_t num_pairs = policy.size(0) / 2;
  const at::Tensor chosen = rewards.narrow(0, 0, num_pairs);
  const at::Tensor rejected = rewards.narrow(0, num_pairs, num_pairs);
  const at::Tensor margin = chosen - rejected;
  const double smoothing = options.label_smoothing;
  return {-(1 - smoothing) * at::log_sigmoid(margin) - smoothing * at::log_sigmoid(-margin),
          chosen.detach(), rejected.detach()};
}

std::int64_t count_pairs(const Microbatches& batch, DpoMeanOver mean_over) {
  return mean_over == DpoMeanOver::kTokens ? batch.num_targets() : batch.num_samples();
}

at::Tensor dpo_loss_sum(const at::Tensor& logits, const Microbatch& microbatch,
                        const DpoOptions& options, MetricSums* sums) {
  const at::Tensor policy = answer_log_probs(logits, microbatch.targets);
  const PairScores scores = score_pairs(policy, microbatch.second_model_output, options);
  if (sums != nullptr) {
    const at::Tensor pairs = policy.detach().view({2, -1});
    const at::Tensor log_probs = pairs.sum(1, false, at::kDouble);
    sums->resize(kNumDpoSums);
    (*sums)[kPairSum] += static_cast<double>(scores.loss.size(0));
    (*sums)[kAccurateSum] += (scores.chosen_reward > scores.rejected_reward).sum().item<double>();
    (*sums)[kRankedSum] += (pairs[0] > pairs[1]).sum().item<double>();
    (*sums)[kChosenRewardSum] += scores.chosen_reward.sum(at::kDouble).item<double>();
    (*sums)[kRejectedRewardSum] += scores.rejected_reward.sum(at::kDouble).item<double>();
    (*sums)[kChosenLogProbSum] += log_probs[0].item<double>();
    (*sums)[kRejectedLogProbSum] += log_probs[1].item<double>();
    (*sums)[kAnswerTokenSum] += static_cast<double>(microbatch.num_targets);
  }
  if (options.mean_over == DpoMeanOver::kPairs) return scores.loss.sum();
  const at::Tensor is_answer = microbatch.targets != kIgnoredTarget;
  const at::Tensor tokens = is_answer.sum(1).view({2, -1}).sum(0);  // of both answers of each pair
  return (scores.loss * to_device(tokens, scores.loss.device())).sum();
}

Metrics dpo_metrics(const MetricSums& sums) {
  const auto mean = [&](DpoSum sum) { return sums[sum] / sums[kPairSum]; };
  return {{"accuracy", mean(kAccurateSum)},
          {"ranking_accuracy", mean(kRankedSum)},
          {"margin", mean(kChosenRewardSum) - mean(kRejectedRewardSum)},
          {"chosen_reward", mean(kChosenRewardSum)},
          {"rejected_reward", mean(kRejectedRewardSum)},
          {"chosen_log_prob", mean(kChosenLogProbSum)},
          {"rejected_log_prob", mean(kRejectedLogProbSum)},
          {"answer_tokens", mean(kAnswerTokenSum)}};
}

// ---- the reference's log-probabilities, on disk ----

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMicrobatchesPerRun = 64;  // between two lines of progress

// What the reference gives to every pair of the data [pairs, 2].
at::Tensor score(const Dataset& data, const char* part, InferenceModel& reference,
                 std::int64_t rows, const Mesh& mesh, Run& run) {
  const at::Tensor table = at::zeros({data.num_samples(), 2}, at::kFloat);
  const std::int64_t pairs_per_run = kMicrobatchesPerRun * rows * mesh.num_replicas();
  for (std::int64_t first = 0; first < data.num_samples(); first += pairs_per_run) {
    const std::int64_t end = std::min(first + pairs_per_run, data.num_samples());
    std::vector<Microbatch> own;
    for (std::int64_t i = first + mesh.dp_rank() * rows; i < end; i += rows * mesh.num_replicas()) {
      std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(rows, end - i)));
      std::iota(samples.begin(), samples.end(), i);
      own.push_back(data.read(samples));
    }
    const Microbatches batch(std::move(own));
    reference.forward(batch, [&](const at::Tensor& logits, std::int64_t i) {
      const std::vector<std::int64_t>& samples = batch[i].samples;
      table.narrow(0, samples.front(), static_cast<std::int64_t>(samples.size()))
          .copy_(answer_log_probs(logits, batch[i].targets).view({2, -1}).t());
    });
    run.announce(concat("reference log-probabilities: ", end, " of ", data.num_samples(), " ", part,
                        " pairs"));
  }
  mesh.world.all_reduce(table)->wait();  // one rank's values and zeros: no rounding
  return table;
}

void write(const fs::path& file, const fs::path& partial, const at::Tensor& training,
           const at::Tensor& validation, const std::map<std::string, std::string>& metadata) {
  SafetensorsWriter writer(partial,
                           {{"training", at::kFloat, training.sizes().vec()},
                            {"validation", at::kFloat, validation.sizes().vec()}},
                           metadata);
  writer.write(training);
  writer.write(validation);
  writer.finish();
  rename_on_disk(partial, file);
}

std::string option_of(const std::string& file) {
  return "--dpo-reference-cache " + file;
}

// An option that is not in the file is newer than it, and had no other value than today's default.
std::string said_in(const SafetensorsReader& reader, const std::string& name) {
  const auto found = reader.metadata().find(name);
  if (found != reader.metadata().end()) return excerpt(found->second);
  const Json defaults = unshaped_options({});
  const std::string option = name.starts_with("--") ? name.substr(2) : "";
  return defaults.contains(option) ? to_text(defaults[option]) : "unknown";
}

using LoadReference = std::function<std::unique_ptr<InferenceModel>()>;

// Computed once, so that later runs need neither the model's memory nor its forwards.
//
// The file is a safetensors file. Its metadata say what it belongs to: the model and the data, by
// hashes, and what else changes what the same parameters say: --precision and the options that no
// shape tells (--heads, …). A cache of anything else is refused. A hash of the values themselves
// tells a damaged file.
class ReferenceCache {
 public:
  // Reads the file of --dpo-reference-cache on every rank. Only if there is none, it loads the
  // reference, whose parameters have this hash, lets it score all training and validation pairs in
  // microbatches of the run's size, each replica its share, and rank 0 writes the file. Collective
  // over the world. Throws CheckError naming the file: with both values if it is stale; if it is
  // damaged; and before anything is scored, if it cannot be made, or if another process makes it.
  ReferenceCache(const TrainOptions& options, const std::string& reference_hash,
                 const BatchStream& batches, const LoadReference& load_reference, const Mesh& mesh,
                 Run& run);

  // [2B] of B pairs: those of the chosen answers, then those of the rejected ones.
  at::Tensor log_probs(const std::vector<std::int64_t>& samples, bool is_validation) const;

 private:
  using Metadata = std::map<std::string, std::string>;  // what the file belongs to

  void make(const std::string& file, Metadata metadata, const TrainOptions& options,
            const BatchStream& batches, const LoadReference& load_reference, const Mesh& mesh,
            Run& run);
  void read(const std::string& file, const Metadata& metadata, const BatchStream& batches);
  std::string hash() const;  // of the values

  at::Tensor training_, validation_;  // [pairs, 2]
};

ReferenceCache::ReferenceCache(const TrainOptions& options, const std::string& reference_hash,
                               const BatchStream& batches, const LoadReference& load_reference,
                               const Mesh& mesh, Run& run) {
  const MemoryScope scope(MemoryCategory::kOther, "reference log-probabilities");
  const std::string& file = options.get<ObjectiveOptions>().dpo.cache;
  Metadata metadata = {{"model", reference_hash},
                       {"--precision", to_json(options).at("precision").get<std::string>()},
                       {"training data", batches.training_data().content_hash()},
                       {"validation data", batches.validation_data().content_hash()}};
  const Json unshaped = unshaped_options(options.model);
  for (const auto& [name, value] : unshaped.items()) metadata["--" + name] = to_text(value);
  const bool is_there = mesh.world.rank() == 0 && fs::exists(file);
  if (all_reduce_sum(is_there ? 1 : 0, mesh.world) > 0) {
    read(file, metadata, batches);
  } else {
    make(file, metadata, options, batches, load_reference, mesh, run);
  }
}

void ReferenceCache::make(const std::string& file, Metadata metadata, const TrainOptions& options,
                          const BatchStream& batches, const LoadReference& load_reference,
                          const Mesh& mesh, Run& run) {
  const bool is_main = mesh.world.rank() == 0;
  const fs::path making = file + ".partial";  // a folder: what is in it is this process's
  std::optional<FolderLock> lock;
  if (is_main) lock.emplace(making, option_of(file));
  const auto reference = load_reference();
  const std::int64_t rows = options.data.microbatch_size;
  training_ = score(batches.training_data(), "training", *reference, rows, mesh, run);
  validation_ = score(batches.validation_data(), "validation", *reference, rows, mesh, run);
  if (!is_main) return;
  metadata["values"] = hash();
  write(file, making / "pairs.safetensors", training_, validation_, metadata);
  std::error_code ignored;  // the cache is complete; on NFS our open lock may keep the folder
  fs::remove_all(making, ignored);  // with what a killed process may have left there
}

void ReferenceCache::read(const std::string& file, const Metadata& metadata,
                          const BatchStream& batches) {
  SafetensorsReader reader(file);
  for (const auto& [what, wanted] : metadata) {
    const std::string found = said_in(reader, what);
    check(found == wanted, option_of(file), ": is stale: its ", what, " is ", found,
          ", this run's is ", wanted, "; remove it, or name another file");
  }
  training_ = at::empty({batches.training_data().num_samples(), 2}, at::kFloat);
  validation_ = at::empty({batches.validation_data().num_samples(), 2}, at::kFloat);
  reader.read("training", training_);
  reader.read("validation", validation_);
  const std::string found = hash(), wanted = said_in(reader, "values");
  check(found == wanted, option_of(file), ": is damaged: its values hash to ", found,
        ", its header says ", wanted, "; remove it");
}

std::string ReferenceCache::hash() const {
  return tensor_hash(whole_tensors({{"training", training_}, {"validation", validation_}}));
}

at::Tensor ReferenceCache::log_probs(const std::vector<std::int64_t>& samples,
                                     bool is_validation) const {
  const at::Tensor& table = is_validation ? validation_ : training_;
  return table.index_select(0, at::tensor(at::ArrayRef<std::int64_t>(samples), at::kLong))
      .t()
      .reshape({-1});
}

// ---- in a pipeline ----

// Where the frozen model's parameters are: a checkpoint, or a model of another program.
fs::path reference_of(const TrainOptions& options) {
  const std::string& named = options.get<ObjectiveOptions>().dpo.reference;
  const fs::path path = named.empty() ? options.output.init_from : named;
  return Start(path).is_of_another_program() ? path : checkpoint_in("--dpo-reference", path);
}

// The hash that its parameters have in a checkpoint. Of another program's model, they are read for it.
std::string hash_of_reference(const fs::path& source, const TrainOptions& options) {
  const Start start(source);
  if (!start.is_of_another_program()) return describe_checkpoint(source).param_hash;
  TrainState state;
  state.parameters = shapes_of_parameters(options);
  std::map<std::string, StoredTensor> shapes;
  for (const StoredTensor& each : state.parameters.stored) shapes[each.name] = each;
  state.parameters.fill = [&](const std::string& name, const TensorVisitor& read) {
    read(name, at::empty(shapes.at(name).shape, shapes.at(name).dtype));
  };
  return start.load(state, options.model.tie_embeddings);
}

class Dpo final : public StepObjective {
 public:
  Dpo(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh)
      : options_(options), plan_(plan), mesh_(mesh), source_(reference_of(options)) {
    state.reference = {hash_of_reference(source_, options),
                       "If --dpo-reference or --init-from names a run, that is its newest "
                       "checkpoint, which may have changed since: give --dpo-reference the "
                       "checkpoint itself (RUN/checkpoints/step_N), or start a new run with "
                       "another --out"};
    count = [this](const Microbatches& batch) { return count_pairs(batch, own().mean_over); };
    loss_sum = [this](const at::Tensor& logits, const Microbatch& microbatch) {
      return dpo_loss_sum(logits, microbatch, own(), &sums_);
    };
  }

  void start(Run& run, const BatchStream& batches) override {
    run.announce(batches.training_data().description());  // tells how many pairs were cut
    const auto load = [&] {
      auto reference = std::make_unique<InferenceModel>(options_, plan_, mesh_);
      reference->load(source_, batches.training_data().tokenizer());
      return reference;
    };
    if (own().cache.empty()) {
      reference_ = load();
    } else {
      cache_.emplace(options_, state.reference.hash, batches, load, mesh_, run);
    }
  }

  void prepare(Microbatches& batch, const BatchOrigin& origin) override {
    if (cache_) {
      for (std::int64_t i = 0; i < batch.size(); ++i)
        batch[i].second_model_output = cache_->log_probs(batch[i].samples, origin.is_validation);
    } else {
      reference_->forward(batch, [&](const at::Tensor& logits, std::int64_t i) {
        batch[i].second_model_output = answer_log_probs(logits, batch[i].targets);
      });
    }
  }

  Metrics take_metrics() override { return dpo_metrics(take_sums(sums_, kNumDpoSums, mesh_)); }

 private:
  const DpoOptions& own() const { return options_.get<ObjectiveOptions>().dpo; }

  TrainOptions options_;
  StagePlan plan_;
  Mesh mesh_;
  fs::path source_;  // the reference's checkpoint: a newer one does not replace it
  std::unique_ptr<InferenceModel> reference_;  // null if there is a cache
  std::optional<ReferenceCache> cache_;
  MetricSums sums_;
};

}  // namespace

std::unique_ptr<StepObjective> make_dpo(const TrainOptions& options, const StagePlan& plan,
                                        const Mesh& mesh) {
  return std::make_unique<Dpo>(options, plan, mesh);
}

}  // namespace ladder
