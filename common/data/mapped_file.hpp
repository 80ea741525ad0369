// A file mapped into memory. Pages are read on first access, and ranks on one machine share them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ladder {

// Throws CheckError with the way out if the file is a Git LFS pointer: what a clone has in place of
// a large file that has not been downloaded. Whatever else is wrong with it is left to its reader.
void refuse_lfs_pointer(const std::string& path);

// Whether the first of these bytes are ASCII text, such as a web page that was saved as a file. Of
// fewer than 8 bytes it cannot be told.
bool begins_with_text(std::string_view bytes);

class MappedFile {
 public:
  // Throws CheckError with the name and the reason if the file is missing, unreadable, not a
  // regular file, or a Git LFS pointer.
  explicit MappedFile(const std::string& path);

  const std::string& path() const { return path_; }
  // Valid while this object, or the one that it was moved to, lives. Starts at a page boundary.
  std::string_view bytes() const { return {data_.get(), data_.get_deleter().num_bytes}; }

 private:
  struct Unmap {
    std::size_t num_bytes;  // 0 at the start
    void operator()(const char* data) const;
  };
  std::string path_;
  std::unique_ptr<const char, Unmap> data_;  // null for an empty file, which cannot be mapped
};

}  // namespace ladder
