// Writes what a model reads and says: OUT/logits.safetensors holds the first microbatch of the
// data, "tokens" and "targets" [B, T], and the "logits" [B, T, V] in fp32. It takes step 0's
// options, and gets its parameters as any run does:
//
//   logits --init-from FOLDER --data tokens.bin --order sequential --context 64 --out OUT
#include <filesystem>

#include "common/train/build_model.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/run.hpp"
#include "common/train/run_main.hpp"
#include "step0_single_gpu/train.hpp"

namespace ladder {
namespace {

void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors)
    stored.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  SafetensorsWriter file(path, stored);
  for (const auto& [name, tensor] : tensors) file.write(tensor);
  file.finish();
}

TrainReport write_logits(const TrainOptions& options, Communicator& comm) {
  Run run(options, comm);
  FlatModel flat(layout_of(options));
  const Model model = build_model(options, flat);
  const FlatGradients grads(flat);
  Optimizer optimizer(flat, grads, options.optimizer);
  BatchStream batches(options.data, whole_data(options.data.tail));
  run.resume(full_state(flat, optimizer, batches));
  const Microbatch rows = batches.next_microbatch();
  const at::Tensor logits = model.forward(rows.tokens).detach().to(at::kFloat).contiguous();
  write_tensors(std::filesystem::path(options.output.out) / "logits.safetensors",
                {{"logits", logits}, {"targets", rows.targets}, {"tokens", rows.tokens}});
  return run.report();
}

Trainer logits_program() {
  Trainer program = step0::trainer();
  program.step = "logits";
  program.train = write_logits;
  return program;
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::logits_program());
}
