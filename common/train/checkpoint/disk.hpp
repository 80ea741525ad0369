// Files and folders of a run, written so that they survive a power failure: when a function here
// returns, what it made is on disk, and so is the entry in the folder above.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ladder {

// Throws CheckError with the name and the reason.
std::string read_text_file(const std::string& path);

// Reads a file that others wrote: it must be an ordinary one of at most so many bytes.
std::string read_text_file(const std::string& path, std::uintmax_t most_bytes);

// Writes the file under another name, flushes it and renames it into place: after a crash a reader
// finds the old file or the new one. Throws CheckError with the name and the reason.
void write_text_file(const std::string& path, const std::string& text);

// Makes the folder and any missing folders above it. Throws CheckError with the name and the
// reason.
void make_folders(const std::filesystem::path& folder);

// Copies a file; `to` must not exist. Throws CheckError with the name and the reason.
void copy_file_to_disk(const std::filesystem::path& from, const std::filesystem::path& to);

// Renames, within one file system. Throws CheckError with both names and the reason.
void rename_on_disk(const std::filesystem::path& from, const std::filesystem::path& to);

// Flushes a file, or the entries of a folder. Throws CheckError with the name and the reason.
void sync_to_disk(const std::string& path);

// The absolute path without links, dots or a trailing slash, so that it has a name and can be
// compared. The path need not exist.
std::filesystem::path plain_path(const std::filesystem::path& path);

// True for paths inside the folder and for the folder itself. Neither need exist.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder);

// A new folder that appears only once it is complete: until then it has a hidden name next to its
// own.
class PartialFolder {
 public:
  // Makes the hidden folder, and missing ones above it. Throws UsageError, with nothing written, if
  // the folder already exists; CheckError if it cannot be created.
  explicit PartialFolder(const std::filesystem::path& folder);
  ~PartialFolder();  // removes what is not complete; a killed process leaves it behind
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return partial_; }  // where its files are written
  // Flushes the folder and gives it its name, which is returned. Throws CheckError if that was
  // taken meanwhile.
  std::filesystem::path complete();

 private:
  std::string name_;  // as it was given, for messages
  std::filesystem::path folder_;
  std::filesystem::path partial_;  // what we have made, and may delete; empty once complete
};

// One writer at a time for the folder of a run. The lock is the kernel's (flock), on the file
// FOLDER/.lock, and belongs to the process: when the process ends, however it ends, the lock is
// released. Readers of the folder need no lock.
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
