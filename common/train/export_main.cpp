// ./ladder export: a checkpoint as a Hugging Face folder.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "common/core/check.hpp"
#include "common/core/torch_types.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/export.hpp"
#include "common/train/options/option_values.hpp"
#include "common/train/run_main.hpp"

namespace {

constexpr const char* kHelp =
    "Writes the parameters of a run as a Hugging Face folder:\n\n"
    "  ./ladder export runs/mine exported/mine --dtype bf16\n"
    "  python3 -c \"from transformers import AutoModelForCausalLM as M; "
    "M.from_pretrained('exported/mine')\"\n\n"
    "The other way, ./ladder train STEP --init-from FOLDER starts a run from such a folder.\n"
    "docs/hugging_face.md says which models can be read and written.";

at::ScalarType parse_dtype(const std::string& text) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    if (text == ladder::format_name(type)) return type;
  throw ladder::UsageError(
      ladder::concat("--dtype is '", text, "', it must be fp32, bf16 or fp16"));
}

}  // namespace

int main(int argc, char** argv) {
  std::string from, to, dtype = "fp32";
  CLI::App app(kHelp, "./ladder export");
  app.add_option("RUN", from, "a run, which means its newest checkpoint, or a checkpoint")
      ->required();
  app.add_option("FOLDER", to, "new folder to write")->required();
  app.add_option("--dtype", dtype, "what the parameters are stored as")
      ->type_name("fp32|bf16|fp16")
      ->capture_default_str();
  return ladder::run_command(app, argc, argv, [&] {
    const std::string warning = ladder::export_checkpoint(
        ladder::checkpoint_in("./ladder export", from), to, parse_dtype(dtype));
    if (!warning.empty()) std::fprintf(stderr, "warning: %s\n", warning.c_str());
    std::printf("exported %s\n", to.c_str());
    return ladder::kExitDone;
  });
}
