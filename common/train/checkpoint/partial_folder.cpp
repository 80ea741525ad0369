#include "common/train/checkpoint/partial_folder.hpp"

#include <unistd.h>

#include "common/core/check.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

bool is_taken(const fs::path& path) {  // true also for a dangling link
  return fs::symlink_status(path).type() != fs::file_type::not_found;
}

}  // namespace

PartialFolder::PartialFolder(const fs::path& folder, const std::string& option)
    : option_(option), folder_(plain_path(folder)) {
  check_usage(!is_taken(folder_), option, " already exists: name a new folder, or remove this one");
  try {
    make_folders(folder_.parent_path());
  } catch (const CheckError& reason) {
    throw CheckError(concat(option, ": cannot be created: ", reason.what()));
  }
  std::error_code error;
  fs::path partial =
      folder_.parent_path() / concat(".", folder_.filename().string(), ".partial-", ::getpid());
  while (!error && !fs::create_directory(partial, error) && !error) partial += "_";
  check(!error, option, ": cannot be created: ", error.message());
  partial_ = partial;
}

PartialFolder::~PartialFolder() {
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
}

fs::path PartialFolder::complete() {
  sync_to_disk(partial_);
  check(!is_taken(folder_), option_, " was made by another process meanwhile");
  rename_on_disk(partial_, folder_);
  partial_.clear();
  return folder_;
}

}  // namespace ladder
