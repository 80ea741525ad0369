// A file mapped into memory. Pages are read on first access, and ranks on one machine share them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ladder {

class MappedFile {
 public:
  // Throws CheckError with the name and the reason if the file is missing, unreadable or not a
  // regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  // Valid while this object, or the one that it was moved to, lives. Starts at a page boundary.
  std::string_view bytes() const { return bytes_; }

 private:
  std::string path_;
  std::string_view bytes_;  // empty for an empty file, which cannot be mapped
};

}  // namespace ladder
