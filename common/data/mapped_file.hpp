// A file as memory: pages are read when they are touched, and ranks on one machine share them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ladder {

class MappedFile {
 public:
  // Throws CheckError with the name and the reason for what is missing, unreadable or no regular
  // file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  // Valid as long as this object or the one it was moved to lives; starts at a page's beginning.
  std::string_view bytes() const { return bytes_; }

 private:
  std::string path_;
  std::string_view bytes_;  // empty for an empty file, which cannot be mapped
};

}  // namespace ladder
