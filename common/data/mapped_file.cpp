#include "common/data/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// Closes the descriptor at the end of the constructor, even on an exception; the mapping remains.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

void refuse_lfs_pointer(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;  // to open a pipe would wait
  constexpr std::string_view kFirst = "version https://git-lfs.github.com/spec/";
  char first[kFirst.size()] = {};
  std::ifstream(path, std::ios::binary).read(first, sizeof first);
  check(std::string_view(first, sizeof first) != kFirst, path,
        ": is a Git LFS pointer; the file itself has not been downloaded: run git lfs pull in its "
        "repository, or download that file");
}

bool begins_with_text(std::string_view bytes) {
  const std::string_view first = bytes.substr(0, 64);
  return first.size() >= 8 && std::ranges::all_of(first, [](char c) {
           return (' ' <= c && c <= '~') || c == '\n' || c == '\r' || c == '\t';
         });
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file{
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // does not wait for a pipe
  check(file.number >= 0, path, ": cannot be opened: ", std::strerror(errno));
  struct stat status {};
  check(::fstat(file.number, &status) == 0, path, ": cannot be opened: ", std::strerror(errno));
  check(!S_ISDIR(status.st_mode), path, ": is a directory; expected a file");
  check(S_ISREG(status.st_mode), path, ": is not a regular file");
  refuse_lfs_pointer(path);
  if (status.st_size == 0) return;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  check(data != MAP_FAILED, path, ": cannot be mapped into memory: ", std::strerror(errno));
  data_ = {static_cast<const char*>(data), Unmap{size}};
}

void MappedFile::Unmap::operator()(const char* data) const {
  ::munmap(const_cast<char*>(data), num_bytes);
}

}  // namespace ladder
