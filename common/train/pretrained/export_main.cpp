// ./ladder export: a checkpoint as a Hugging Face folder.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "common/core/check.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/pretrained/export.hpp"
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
  if (text == "fp32") return at::kFloat;
  if (text == "bf16") return at::kBFloat16;
  if (text == "fp16") return at::kHalf;
  throw ladder::UsageError(
      ladder::concat("--dtype is '", text, "', it must be fp32, bf16 or fp16"));
}

void run(int argc, char** argv) {
  std::string from, to, dtype = "fp32";
  CLI::App app(kHelp, "./ladder export");
  app.add_option("RUN", from, "a run, which means its newest checkpoint, or a checkpoint")
      ->required();
  app.add_option("FOLDER", to, "new folder to write")->required();
  app.add_option("--dtype", dtype, "what the parameters are stored as")
      ->type_name("fp32|bf16|fp16")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return;
  } catch (const CLI::ParseError& error) {
    throw ladder::UsageError(
        ladder::concat(error.what(), " (./ladder export --help explains the command)"));
  }
  ladder::export_checkpoint(ladder::checkpoint_in("./ladder export", from), to, parse_dtype(dtype));
  std::printf("exported %s\n", to.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return ladder::kExitDone;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    const bool is_usage = dynamic_cast<const ladder::UsageError*>(&error) != nullptr;
    return is_usage ? ladder::kExitUsage : ladder::kExitError;
  }
}
