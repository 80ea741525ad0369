#include "common/train/checkpoint/disk.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "common/core/check.hpp"
#include "common/data/mapped_file.hpp"

namespace ladder {

namespace fs = std::filesystem;

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  check(file.good(), path, ": cannot be opened: ", std::strerror(errno));
  text << file.rdbuf();
  check(!file.bad(), path, ": cannot be read: ", std::strerror(errno));
  refuse_lfs_pointer(path);
  return text.str();
}

std::string read_text_file(const std::string& path, std::uintmax_t most_bytes) {
  std::error_code error;
  const std::uintmax_t num_bytes = fs::file_size(path, error);
  check(!error, path, ": cannot be opened: ", error.message());
  check(num_bytes <= most_bytes, path, ": has ", num_bytes, " bytes, such a file has at most ",
        most_bytes);
  return read_text_file(path);
}

void write_text_file(const std::string& path, const std::string& text) {
  const std::string partial = path + ".partial";
  {
    std::ofstream file(partial, std::ios::binary);
    file << text;
    file.flush();
    check(file.good(), partial, ": cannot be written: ", std::strerror(errno));
  }
  sync_to_disk(partial);
  rename_on_disk(partial, path);
}

void make_folders(const fs::path& folder) {
  std::vector<fs::path> missing;
  for (fs::path at = plain_path(folder); !fs::exists(at); at = at.parent_path())
    missing.push_back(at);
  for (; !missing.empty(); missing.pop_back()) {
    std::error_code error;
    fs::create_directory(missing.back(), error);
    check(!error, missing.back().string(), ": cannot be created: ", error.message());
    sync_to_disk(missing.back().parent_path());
  }
  check(fs::is_directory(folder), folder.string(), ": is a file, but a folder is needed");
}

void copy_file_to_disk(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  check(!error, from.string(), ": cannot be copied to ", to.string(), ": ", error.message());
  sync_to_disk(to);
  sync_to_disk(plain_path(to).parent_path());
}

void rename_on_disk(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check(!error, from.string(), ": cannot be renamed to ", to.string(), ": ", error.message());
  sync_to_disk(plain_path(to).parent_path());
}

void sync_to_disk(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(descriptor >= 0, path, ": cannot be opened: ", std::strerror(errno));
  const int failed = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  check(failed == 0, path, ": cannot be flushed to the disk: ", std::strerror(reason));
}

fs::path plain_path(const fs::path& path) {
  const fs::path canonical = fs::weakly_canonical(fs::absolute(path));
  return canonical.has_filename() ? canonical : canonical.parent_path();
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path relative = plain_path(path).lexically_relative(plain_path(folder));
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace ladder
