#include "common/train/checkpoint/disk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "common/core/check.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/folder_lock.hpp"
#include "common/train/checkpoint/partial_folder.hpp"
#include "common/train/reference.hpp"

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
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

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
    EXPECT_THAT([&] { make_folders(folder_.path(name)); },
                ThrowsMessage<CheckError>(HasSubstr(folder_.path("file"))));
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

TEST_F(DiskTest, AKeptReferenceIsFlushedUpToTheFolderThatWasThere) {
  make_folders(folder_.path("run/checkpoints/step_000002"));
  write_text_file(folder_.path("run/checkpoints/step_000002/model.safetensors"), "parameters");
  write_text_file(folder_.path("run/report.json"), "report");
  flushed.clear();
  TrainOptions options;
  options.output.save_reference = folder_.path("kept/here");
  options.output.out = folder_.path("run");
  TrainReport report;
  report.losses = {1};
  ReferenceFolder(options, true).keep(folder_.path("run"), report);
  const std::string partial = concat(in("kept"), "/.here.partial-", ::getpid());
  for (const std::string& path :
       {in(""), in("kept"), partial, partial + "/report.json", partial + "/model.safetensors"})
    EXPECT_THAT(flushed, Contains(path));
  EXPECT_EQ(flushed.back(), in("kept"));
}

TEST_F(DiskTest, ANewFolderGetsItsNameOnceItIsFlushed) {
  PartialFolder folder(folder_.path("new/one"), "the folder");
  write_text_file(folder.path() / "text", "all of it");
  flushed.clear();
  EXPECT_EQ(folder.complete(), in("new/one"));
  EXPECT_EQ(read_text_file(folder_.path("new/one/text")), "all of it");
  EXPECT_THAT(flushed, ElementsAre(concat(in("new"), "/.one.partial-", ::getpid()), in("new")));
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

}  // namespace
}  // namespace ladder
