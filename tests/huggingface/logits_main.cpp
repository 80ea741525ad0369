// Writes what a model says of the first microbatch of its data: OUT/logits.safetensors holds the
// logits [B, T, V] in fp32. It takes step 0's options, and gets its parameters as any run does:
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

TrainReport write_logits(const TrainOptions& options, World& world) {
  Run run(options, world.comm());
  FlatModel flat(layout_of(options));
  const Model model = build_model(options, flat);
  const FlatGradients grads(flat);
  Optimizer optimizer(flat, grads, options.optimizer);
  BatchStream batches(options.data, whole_data(options.data.tail));
  run.resume(full_state(flat, optimizer, batches));
  const at::Tensor logits = model.forward(batches.next_microbatch().tokens).detach().to(at::kFloat);
  const StoredTensor stored = {"logits", logits.scalar_type(), logits.sizes().vec()};
  SafetensorsWriter file(std::filesystem::path(options.output.out) / "logits.safetensors",
                         {stored});
  file.write(logits.contiguous());
  file.finish();
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
