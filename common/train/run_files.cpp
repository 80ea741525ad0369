#include "common/train/run_files.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/core/check.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/run_start.hpp"

namespace ladder {

namespace fs = std::filesystem;
using std::chrono::system_clock;

namespace {

constexpr const char* kLogFile = "metrics.jsonl";

bool holds_a_run(const fs::path& folder) {
  return fs::exists(folder / kLogFile) || fs::exists(folder / "report.json") ||
         fs::exists(folder / "checkpoints");
}

// The lines of a log, without what a kill has left half written.
std::string lines_up_to(std::int64_t step, const fs::path& log) {
  std::string kept;
  std::istringstream lines(read_text_file(log));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool is_step =
        json.is_object() && json.contains("step") && json["step"].is_number_integer();
    if (is_step && json["step"].get<std::int64_t>() <= step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

RunFiles::RunFiles(const TrainOptions& options, bool is_main)
    : out_(options.output.out),
      past_(out_ / kLogFile),
      keep_(options.output.keep),
      is_main_(is_main) {
  if (!are_written()) return;
  const std::string& resume = options.output.resume;
  const bool is_resumed = resume == "auto" || (resume != "none" && lies_in(resume, out_));
  check(is_resumed || !holds_a_run(out_), "--out ", out_.string(),
        " already holds a run: choose another folder, or continue that run with --resume auto");
  const std::string& start = options.output.init_from;
  check(start.empty() ||
            (plain_path(start) != plain_path(out_) && !lies_in(start, out_ / "checkpoints")),
        "--init-from ", start, " is this run itself, --out ", out_.string(),
        ", whose newest checkpoint is what --resume auto continues: name another run");
}

std::vector<fs::path> RunFiles::checkpoints() const {
  return out_.empty() ? std::vector<fs::path>() : checkpoints_of(out_);
}

void RunFiles::continue_from(const fs::path& checkpoint) {
  const fs::path folder = plain_path(checkpoint).parent_path();
  if (folder.filename() == "checkpoints") past_ = folder.parent_path() / kLogFile;
}

void RunFiles::open(const TrainOptions& options, std::int64_t step) {
  if (!are_written()) return;
  make_folders(out_);
  sweep_partial_checkpoints(out_);
  check_can_save(out_);
  if (options.start != nullptr) options.start->keep_files(options, out_);
  std::error_code ignored;
  // A report of an earlier part of this run is outdated now.
  if (step < options.num_steps) fs::remove(out_ / "report.json", ignored);
  const bool has_past = step > 0 && fs::exists(past_);
  write_text_file(out_ / kLogFile, has_past ? lines_up_to(step, past_) : "");
  metrics_.open(out_ / kLogFile, std::ios::app);
  check(metrics_.good(), (out_ / kLogFile).string(), ": cannot be written: ", std::strerror(errno));
}

void RunFiles::go_on_after(std::int64_t step) {
  unproven_step_ = -1;
  if (!metrics_.is_open()) return;
  metrics_.close();
  write_text_file(out_ / kLogFile, lines_up_to(step, out_ / kLogFile));
  metrics_.open(out_ / kLogFile, std::ios::app);
}

void RunFiles::log(const Json& line) {
  if (!metrics_.is_open()) return;
  Json timed = line;
  timed["time"] = std::chrono::duration<double>(system_clock::now().time_since_epoch()).count();
  metrics_ << timed.dump() << std::endl;
  check(metrics_.good(), (out_ / kLogFile).string(), ": cannot be written: ", std::strerror(errno));
}

void RunFiles::began_with(std::int64_t step) {
  unproven_step_ = step;
  is_loaded_ = true;
}

void RunFiles::has_saved(std::int64_t step) {
  if (are_written()) prune_checkpoints(out_, keep_, unproven_step_ >= 0 ? 2 : 1);
  unproven_step_ = step;
  is_loaded_ = false;
}

void RunFiles::was_finite(std::int64_t step) {
  if (unproven_step_ < 0 || step <= unproven_step_) return;
  unproven_step_ = -1;
  if (are_written()) prune_checkpoints(out_, keep_);
}

std::string RunFiles::find_way_back(bool is_good) {
  std::vector<fs::path> all = checkpoints();
  std::string text, how;
  if (!is_good && unproven_step_ >= 0) {
    const fs::path last = checkpoint_path(out_, unproven_step_);
    std::erase(all, last);  // perhaps rank 0 was faster
    if (is_loaded_) {
      text = concat(". This run began with ", last.string(),
                    ", which diverges at once with these options");
      how = ": to continue from it, --resume it with another --out";
    } else if (are_written()) {
      text = concat(". What was saved last diverges at once: it is now ",
                    set_aside_checkpoint(out_, unproven_step_).string());
    }
  }
  if (!all.empty())
    return concat(text, ". The newest good checkpoint is ", all.back().string(), how);
  return text.empty() ? text : text + ". No other checkpoint is left";
}

}  // namespace ladder
