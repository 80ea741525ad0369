#include "step8_pipeline_ga/reference_cache.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/train/disk.hpp"
#include "common/train/safetensors.hpp"
#include "step8_pipeline_ga/objectives/dpo.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

using Metadata = std::map<std::string, std::string>;

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

void write(const fs::path& file, const at::Tensor& training, const at::Tensor& validation,
           const Metadata& metadata) {
  const fs::path partial = file.string() + ".partial";
  SafetensorsWriter writer(partial,
                           {{"training", at::kFloat, training.sizes().vec()},
                            {"validation", at::kFloat, validation.sizes().vec()}},
                           metadata);
  writer.write(training);
  writer.write(validation);
  writer.finish();
  rename_on_disk(partial, file);
}

}  // namespace

ReferenceCache::ReferenceCache(const std::string& file, const std::string& reference_hash,
                               const BatchStream& batches, const LoadReference& load_reference,
                               std::int64_t rows, const Mesh& mesh, Run& run) {
  const MemoryScope scope(MemoryCategory::kOther, "reference log-probabilities");
  const Metadata metadata = {{"model", reference_hash},
                             {"training data", batches.training_data().content_hash()},
                             {"validation data", batches.validation_data().content_hash()}};
  const bool is_there =
      all_reduce_sum(mesh.world.rank() == 0 && fs::exists(file) ? 1 : 0, mesh.world) > 0;
  if (!is_there) {
    const auto reference = load_reference();
    training_ = score(batches.training_data(), "training", *reference, rows, mesh, run);
    validation_ = score(batches.validation_data(), "validation", *reference, rows, mesh, run);
    if (mesh.world.rank() == 0) write(file, training_, validation_, metadata);
    return;
  }
  SafetensorsReader reader(file);
  for (const auto& [name, wanted] : metadata) {
    const auto found = reader.metadata().find(name);
    const std::string made_for = found == reader.metadata().end() ? "nothing" : found->second;
    check(made_for == wanted, "--dpo-reference-cache ", file, ": is stale: it was made for the ",
          name, " ", excerpt(made_for), ", this run has ", wanted,
          "; remove it, or name another file");
  }
  training_ = at::empty({batches.training_data().num_samples(), 2}, at::kFloat);
  validation_ = at::empty({batches.validation_data().num_samples(), 2}, at::kFloat);
  reader.read("training", training_);
  reader.read("validation", validation_);
}

at::Tensor ReferenceCache::log_probs(const std::vector<std::int64_t>& samples,
                                     bool is_validation) const {
  const at::Tensor& table = is_validation ? validation_ : training_;
  return table.index_select(0, at::tensor(at::ArrayRef<std::int64_t>(samples), at::kLong))
      .t()
      .reshape({-1});
}

}  // namespace ladder
