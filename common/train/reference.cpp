#include "common/train/reference.hpp"

#include <filesystem>

#include "common/core/check.hpp"
#include "common/train/checkpoint.hpp"

namespace ladder {

namespace fs = std::filesystem;

void check_reference_folder(const TrainOptions& options) {
  check_usage(options.save_reference.empty() || !fs::exists(options.save_reference),
              "--save-reference ", options.save_reference,
              " is there already: name a new folder, or remove that one");
}

void save_reference(const TrainOptions& options) {
  if (options.save_reference.empty()) return;
  check_reference_folder(options);
  const fs::path out = options.output.out, partial = options.save_reference + ".partial";
  const auto checkpoint = newest_checkpoint(out);
  check(checkpoint.has_value(), out.string(), ": holds no checkpoint to keep as a reference");
  std::error_code error;
  fs::remove_all(partial, error);
  fs::create_directories(partial, error);
  check(!error, "--save-reference ", options.save_reference, ": cannot be made: ", error.message());
  fs::copy_file(out / "report.json", partial / "report.json");
  fs::copy_file(*checkpoint / "model.safetensors", partial / "model.safetensors");
  fs::rename(partial, options.save_reference);
}

}  // namespace ladder
