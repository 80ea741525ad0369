// One writer at a time for the folder of a run.
//
// The lock is the kernel's (flock), on the file FOLDER/.lock, and belongs to the process: it is gone
// when the process is, however that ended. Who only reads the folder needs no lock.
#pragma once

#include <filesystem>

namespace ladder {

class FolderLock {
 public:
  // Makes the folder if it is missing. Throws CheckError, with nothing changed, if another process
  // holds the lock; the message names the folder as `what` ("--out runs/a") and that process.
  FolderLock(const std::filesystem::path& folder, const std::string& what);
  // Takes away the file, and the folder if this object made it and it is empty.
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
