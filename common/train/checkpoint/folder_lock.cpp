#include "common/train/checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/core/check.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

// "process 123 on node7", as the holder of a lock signs it.
std::string own_signature() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return concat("process ", ::getpid(), " on ", host);
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
  descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0 && errno == ENOENT) return false;  // the folder was deleted meanwhile
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
