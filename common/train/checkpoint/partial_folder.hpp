// A new folder that appears only once it is complete: until then it has a hidden name next to its
// own.
#pragma once

#include <filesystem>
#include <string>

namespace ladder {

class PartialFolder {
 public:
  // Makes the hidden folder, and missing ones above it. `option` names the new folder in messages
  // ("--save-reference kept"). Throws UsageError, with nothing written, if it already exists;
  // CheckError if it cannot be created.
  PartialFolder(const std::filesystem::path& folder, const std::string& option);
  ~PartialFolder();  // removes what is not complete; a killed process leaves it behind
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return partial_; }  // where its files are written
  // Flushes the folder and gives it its name, which is returned. Throws CheckError if that was
  // taken meanwhile.
  std::filesystem::path complete();

 private:
  std::string option_;
  std::filesystem::path folder_;
  std::filesystem::path partial_;  // what we have made, and may delete; empty once complete
};

}  // namespace ladder
