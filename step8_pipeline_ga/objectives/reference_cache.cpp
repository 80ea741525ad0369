#include "step8_pipeline_ga/objectives/reference_cache.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/checkpoint/state_tensors.hpp"
#include "step8_pipeline_ga/objectives/dpo.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"

namespace ladder {
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

std::string said_in(const SafetensorsReader& reader, const std::string& name) {
  const auto found = reader.metadata().find(name);
  return found == reader.metadata().end() ? "unknown" : excerpt(found->second);
}

}  // namespace

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

}  // namespace ladder
