#include "common/train/checkpoint/folder_lock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(FolderLock, ASecondOneIsToldWhoHoldsTheFolder) {
  const TempFolder folder;
  const std::string path = folder.path("run");
  std::optional<FolderLock> first(std::in_place, path, "--out run");
  EXPECT_THAT([&] { FolderLock(folder.path("run/../run/"), "--out run"); },
              ThrowsMessage<CheckError>(AllOf(HasSubstr("--out run is in use by process "),
                                              HasSubstr(std::to_string(::getpid())))));
  EXPECT_NO_THROW(FolderLock(folder.path("other"), "--out other"));
  first.reset();
  EXPECT_NO_THROW(FolderLock(path, "--out run"));
}

TEST(FolderLock, LeavesNothingThatItHasMadeAndAllElse) {
  const TempFolder folder;
  { const FolderLock lock(folder.path("new"), "--out new"); }
  EXPECT_FALSE(fs::exists(folder.path("new")));
  fs::create_directory(folder.path("empty"));
  { const FolderLock lock(folder.path("empty"), "--out empty"); }
  EXPECT_TRUE(fs::is_empty(folder.path("empty")));
  {
    const FolderLock lock(folder.path("used"), "--out used");
    write_text_file(folder.path("used/report.json"), "");
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path("used")), {}), 1);
}

// A killed process leaves its file, which is no longer a lock.
TEST(FolderLock, AFileThatNobodyHoldsIsNoLock) {
  const TempFolder folder;
  folder.write(".lock", "process 1 on nowhere");
  EXPECT_NO_THROW(FolderLock(folder.path(), "--out here"));
}

// The holder deletes the file; a process that opened it before must not take that for a lock of the
// folder.
TEST(FolderLock, ADeletedFileIsNoLock) {
  const TempFolder folder;
  std::optional<FolderLock> first(std::in_place, folder.path(), "--out here");
  fs::remove(folder.path(".lock"));  // as if the folder had been cleaned by hand
  const FolderLock second(folder.path(), "--out here");
  EXPECT_TRUE(fs::exists(folder.path(".lock")));
  EXPECT_THROW(FolderLock(folder.path(), "--out here"), CheckError);
}

// A process that opens the file while its holder deletes it must not take it for the lock.
TEST(FolderLock, NeverHasTwoHolders) {
  const TempFolder folder;
  std::atomic<int> num_holders = 0, num_taken = 0, num_shared = 0;
  const auto take_often = [&] {
    for (int i = 0; i < 2000; ++i) {
      try {
        const FolderLock lock(folder.path(), "--out here");
        ++num_taken;
        if (++num_holders > 1) ++num_shared;
        std::this_thread::yield();
        --num_holders;
      } catch (const CheckError&) {  // another thread has it
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(take_often);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_taken, 0);
  EXPECT_EQ(num_shared, 0);
}

TEST(FolderLock, AnImpossibleFolderIsNamed) {
  const TempFolder folder;
  folder.write("file", "");
  EXPECT_THAT([&] { FolderLock(folder.path("file/run"), "--out file/run"); },
              ThrowsMessage<CheckError>(HasSubstr("--out file/run: cannot be created")));
}

}  // namespace
}  // namespace ladder
