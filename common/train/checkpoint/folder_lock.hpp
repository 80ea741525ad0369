// One writer at a time for the folder of a run.
//
// The lock is the kernel's (flock), on the file FOLDER/.lock, and belongs to the process: when the
// process ends, however it ends, the lock is released. Readers of the folder need no lock.
#pragma once

#include <filesystem>

namespace ladder {

class FolderLock {
 public:
  // Makes the folder if it is missing. If another process holds the lock, changes nothing and
  // throws CheckError; the message names that process, and the folder as `what` ("--out runs/a").
  FolderLock(const std::filesystem::path& folder, const std::string& what);
  // Removes the file, and the folder if this object made it and it is empty.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  bool try_lock(const std::string& what);

  std::filesystem::path folder_;
  std::filesystem::path file_;
  bool has_made_folder_ = false;
  int descriptor_ = -1;
};

}  // namespace ladder
