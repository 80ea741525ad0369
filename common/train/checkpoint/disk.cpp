#include "common/train/checkpoint/disk.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "common/comm/launcher_environment.hpp"
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
  std::error_code ignored;
  fs::remove(partial, ignored);  // it may be a link to something else
  try {
    std::ofstream file(partial, std::ios::binary);
    file << text;
    file.close();
    check(file.good(), partial, ": cannot be written: ", std::strerror(errno));
    sync_to_disk(partial);
    rename_on_disk(partial, path);
  } catch (...) {
    fs::remove(partial, ignored);
    throw;
  }
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

namespace {

bool is_taken(const fs::path& path) {  // true also for a dangling link
  return fs::symlink_status(path).type() != fs::file_type::not_found;
}

}  // namespace

PartialFolder::PartialFolder(const fs::path& folder)
    : name_(folder.string()), folder_(plain_path(folder)) {
  check_usage(!is_taken(folder_), name_, " already exists: name a new folder, or remove this one");
  try {
    make_folders(folder_.parent_path());
  } catch (const CheckError& reason) {
    throw CheckError(concat(name_, ": cannot be created: ", reason.what()));
  }
  std::error_code error;
  fs::path partial =
      folder_.parent_path() / concat(".", folder_.filename().string(), ".partial-", ::getpid());
  while (!error && !fs::create_directory(partial, error) && !error) partial += "_";
  check(!error, name_, ": cannot be created: ", error.message());
  partial_ = partial;
}

PartialFolder::~PartialFolder() {
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
}

fs::path PartialFolder::complete() {
  sync_to_disk(partial_);
  check(!is_taken(folder_), name_, " was made by another process meanwhile");
  rename_on_disk(partial_, folder_);
  partial_.clear();
  return folder_;
}

namespace {

// "process 123 on node7", as the holder of a lock signs it.
std::string own_signature() {
  return concat("process ", ::getpid(), " on ", host_name());
}

std::string read_signature(int descriptor) {
  char text[320] = "";
  const ssize_t length = ::pread(descriptor, text, sizeof text - 1, 0);
  return length > 0 ? std::string(text, static_cast<std::size_t>(length)) : "another process";
}

// False if the file that was opened has been deleted or replaced meanwhile.
bool is_still_there(int descriptor, const fs::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder, const std::string& what)
    : folder_(plain_path(folder)), file_(folder_ / ".lock") {
  // The previous holder deletes the file before it releases the lock: the file that we lock may be
  // gone by then.
  for (int attempt = 0; !try_lock(what); ++attempt)
    check(attempt < 1000, what, ": cannot be locked: it keeps being deleted");
  const std::string signature = own_signature();
  [[maybe_unused]] const auto is_informal =
      ::pwrite(descriptor_, signature.data(), signature.size(), 0) +
      ::ftruncate(descriptor_, static_cast<off_t>(signature.size()));
}

bool FolderLock::try_lock(const std::string& what) {
  if (!fs::exists(folder_)) has_made_folder_ = true;
  try {
    make_folders(folder_);
  } catch (const CheckError& error) {
    throw CheckError(concat(what, ": cannot be created: ", error.what()));
  }
  descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0 && errno == ENOENT) return false;  // the folder was deleted meanwhile
  check(descriptor_ >= 0 || errno != ELOOP, what, ": cannot be locked: ", file_.string(),
        " is a link, and what it points to would be overwritten: remove it");
  check(descriptor_ >= 0, what, ": cannot be locked: ", std::strerror(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    const std::string holder = read_signature(descriptor_);
    ::close(descriptor_);
    check(reason == EWOULDBLOCK, what, ": cannot be locked: ", std::strerror(reason),
          "; choose a folder on another file system");
    throw CheckError(
        concat(what, " is in use by ", holder, ": wait until it ends, or choose another"));
  }
  if (is_still_there(descriptor_, file_)) return true;
  ::close(descriptor_);
  return false;
}

FolderLock::~FolderLock() {
  std::error_code ignored;
  // While it is locked, and only if it is still ours: no other process's file is deleted.
  if (is_still_there(descriptor_, file_)) fs::remove(file_, ignored);
  ::close(descriptor_);
  if (has_made_folder_) fs::remove(folder_, ignored);  // refused unless it is empty
}

}  // namespace ladder
