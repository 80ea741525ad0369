#include "common/train/reference.hpp"

#include "common/core/check.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {

namespace fs = std::filesystem;

ReferenceFolder::ReferenceFolder(const TrainOptions& options, bool is_main) {
  const std::string& name = options.output.save_reference;
  if (name.empty() || !is_main) return;
  const std::string& out = options.output.out;
  const fs::path folder = plain_path(name);
  check_usage(out.empty() || !lies_in(folder, out), "--save-reference ", name,
              " is inside the run's own folder, --out ", out, ": name one outside it");
  const std::string run = out.empty() ? "runs" : out;  // without --out it goes under runs/
  check_usage(!lies_in(run, folder), "--save-reference ", name, " holds the run's own folder, ",
              run, ": name one next to it");
  folder_.emplace(name, "--save-reference " + name);
}

std::string ReferenceFolder::keep(const fs::path& out, const TrainReport& report) {
  if (!folder_) return "";
  if (report.was_stopped) {
    return "no reference was kept, because the run was stopped; resume it with the same command, "
           "and it is kept when it ends";
  }
  const auto num_steps = static_cast<std::int64_t>(report.losses.size());
  check(num_steps > 0,
        "--save-reference: the run has taken no step that could be compared (it starts after step ",
        report.first_step, "): start again with another --out, or raise --steps");
  const auto checkpoint = newest_checkpoint(out);
  check(checkpoint.has_value(), out.string(), ": holds no checkpoint to keep as a reference");
  copy_file_to_disk(out / "report.json", folder_->path() / "report.json");
  copy_file_to_disk(*checkpoint / "model.safetensors", folder_->path() / "model.safetensors");
  const std::string line = concat("reference: ", folder_->complete().string());
  if (report.first_step == 0) return line;
  return concat(line, " (steps ", report.first_step + 1, " to ", report.first_step + num_steps,
                ", those since the run was resumed)");
}

}  // namespace ladder
