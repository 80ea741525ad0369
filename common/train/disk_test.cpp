#include "common/train/checkpoint/disk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/checkpoint.hpp"

namespace {

std::vector<std::string> flushed;  // what fsync() has been called for in this program, in order

}  // namespace

// Takes the place of the C library's in this program.
extern "C" int fsync(int descriptor) {
  flushed.push_back(std::filesystem::read_symlink(std::filesystem::path("/proc/self/fd") /
                                                  std::to_string(descriptor)));
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;

class DiskTest : public ::testing::Test {
 protected:
  DiskTest() { flushed.clear(); }
  std::string in(const std::string& name) const { return plain_path(folder_.path(name)).string(); }

  TempFolder folder_;
};

TEST_F(DiskTest, AFileIsFlushedBeforeItsNameIs) {
  write_text_file(folder_.path("text"), "all of it");
  EXPECT_EQ(read_text_file(folder_.path("text")), "all of it");
  EXPECT_THAT(flushed, ElementsAre(in("text.partial"), in("")));
}

TEST_F(DiskTest, EveryNewFolderIsFlushedInTheOneAboveIt) {
  make_folders(folder_.path("a/b/c"));
  EXPECT_TRUE(fs::is_directory(folder_.path("a/b/c")));
  EXPECT_THAT(flushed, ElementsAre(in(""), in("a"), in("a/b")));
  flushed.clear();
  make_folders(folder_.path("a/./b/../b/d/"));
  EXPECT_THAT(flushed, ElementsAre(in("a/b")));
  flushed.clear();
  make_folders(folder_.path("a/b"));
  EXPECT_TRUE(flushed.empty());
}

TEST_F(DiskTest, ACopyAndARenameAreFlushed) {
  write_text_file(folder_.path("from"), "text");
  make_folders(folder_.path("new"));
  flushed.clear();
  copy_file_to_disk(folder_.path("from"), folder_.path("new/copy"));
  EXPECT_THAT(flushed, ElementsAre(in("new/copy"), in("new")));
  flushed.clear();
  rename_on_disk(folder_.path("new"), folder_.path("renamed"));
  EXPECT_THAT(flushed, ElementsAre(in("")));
  EXPECT_EQ(read_text_file(folder_.path("renamed/copy")), "text");
}

TEST_F(DiskTest, WhatFailsIsNamedWithItsReason) {
  write_text_file(folder_.path("file"), "");
  for (const char* name : {"file", "file/below"})
    expect_throws<CheckError>([&] { make_folders(folder_.path(name)); }, {folder_.path("file")});
  EXPECT_THROW(copy_file_to_disk(folder_.path("none"), folder_.path("copy")), CheckError);
  EXPECT_THROW(rename_on_disk(folder_.path("none"), folder_.path("new")), CheckError);
  EXPECT_THROW(read_text_file(folder_.path("none")), CheckError);
}

// A checkpoint in a folder that is new: its files, its own folder, and each folder above that is
// new.
TEST_F(DiskTest, ACheckpointIsFlushedUpToTheFolderThatWasThere) {
  const std::vector<NamedTensor> none;
  const TrainState state{whole_tensors(none), whole_tensors(none), 0, {}, "bytes"};
  save_checkpoint(folder_.path("runs/new"), 7, state, Json::object());
  const std::string checkpoints = in("runs/new/checkpoints");
  const std::string partial = checkpoints + "/.partial_step_000007";
  for (const std::string& path :
       {in(""), in("runs"), in("runs/new"), checkpoints, partial, partial + "/model.safetensors",
        partial + "/optimizer.safetensors", partial + "/state.json.partial"})
    EXPECT_THAT(flushed, Contains(path));
  EXPECT_EQ(flushed.back(), checkpoints);  // the last: its final name
}

TEST_F(DiskTest, ANewFolderGetsItsNameOnceItIsFlushed) {
  PartialFolder folder(folder_.path("new/one"));
  write_text_file(folder.path() / "text", "all of it");
  flushed.clear();
  EXPECT_EQ(folder.complete(), in("new/one"));
  EXPECT_EQ(read_text_file(folder_.path("new/one/text")), "all of it");
  EXPECT_THAT(flushed, ElementsAre(concat(in("new"), "/.one.partial-", ::getpid()), in("new")));
}

TEST_F(DiskTest, ANewFolderIsRefusedWhereSomethingIs) {
  fs::create_directory(folder_.path("empty"));
  write_text_file(folder_.path("file"), "");
  fs::create_symlink("nowhere", folder_.path("link"));
  for (const char* name : {"empty", "empty/", "file", "link"}) {
    expect_throws<UsageError>([&] { PartialFolder{folder_.path(name)}; },
                              {folder_.path(name) + " already exists"});
  }
  for (const std::string& name : {std::string("file/new"), std::string(255, 'x')})
    expect_throws<CheckError>([&] { PartialFolder{folder_.path(name)}; }, {"cannot be created"});
}

TEST_F(DiskTest, ANewFolderDeletesNothingThatItHasNotMade) {
  const std::string hidden = concat(".new.partial-", ::getpid());
  fs::create_directory(folder_.path(hidden));
  write_text_file(folder_.path(hidden) + "/precious", "");
  {
    PartialFolder folder(folder_.path("new"));
    write_text_file(folder_.path("new"), "somebody else's");
    EXPECT_THROW(folder.complete(), CheckError);
  }
  EXPECT_EQ(read_text_file(folder_.path("new")), "somebody else's");
  EXPECT_TRUE(fs::exists(folder_.path(hidden) + "/precious"));
  EXPECT_FALSE(fs::exists(folder_.path(hidden + "_")));
}

TEST_F(DiskTest, PathsAreComparedWithoutLinksAndDots) {
  fs::create_directories(folder_.path("a/b"));
  fs::create_directory_symlink("a", folder_.path("link"));
  EXPECT_TRUE(lies_in(folder_.path("a/b"), folder_.path("a/")));
  EXPECT_TRUE(lies_in(folder_.path("link/b/new"), folder_.path("a")));
  EXPECT_TRUE(lies_in(folder_.path("a"), folder_.path("a/b/..")));
  EXPECT_FALSE(lies_in(folder_.path("ab"), folder_.path("a")));
  EXPECT_FALSE(lies_in(folder_.path("a"), folder_.path("a/b")));
  EXPECT_TRUE(lies_in("new/one", fs::absolute("new")));
}

TEST(FolderLock, ASecondOneIsToldWhoHoldsTheFolder) {
  const TempFolder folder;
  const std::string path = folder.path("run");
  std::optional<FolderLock> first(std::in_place, path, "--out run");
  expect_throws<CheckError>([&] { FolderLock(folder.path("run/../run/"), "--out run"); },
                            {"--out run is in use by process ", std::to_string(::getpid())});
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

TEST(FolderLock, ALinkIsNotFollowed) {
  const TempFolder folder;
  const std::string precious = folder.write("precious", "do not overwrite");
  fs::create_symlink(precious, folder.path(".lock"));
  expect_throws<CheckError>([&] { FolderLock(folder.path(), "--out run"); },
                            {"--out run", ".lock is a link"});
  EXPECT_EQ(read_text_file(precious), "do not overwrite");
  EXPECT_TRUE(fs::is_symlink(folder.path(".lock")));
  fs::create_symlink(precious, folder.path("text.partial"));
  write_text_file(folder.path("text"), "new");
  EXPECT_EQ(read_text_file(precious), "do not overwrite");
  EXPECT_EQ(read_text_file(folder.path("text")), "new");
}

TEST(FolderLock, AnImpossibleFolderIsNamed) {
  const TempFolder folder;
  folder.write("file", "");
  expect_throws<CheckError>([&] { FolderLock(folder.path("file/run"), "--out file/run"); },
                            {"--out file/run: cannot be created"});
}

}  // namespace
}  // namespace ladder
