#include "common/train/reference.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// A run that has ended in the folder `run`, and what --save-reference makes of it.
class ReferenceFolderTest : public ::testing::Test {
 protected:
  ReferenceFolderTest() {
    fs::create_directories(folder_.path("run/checkpoints/step_000002"));
    folder_.write("run/checkpoints/step_000002/state.json", "{}");
    folder_.write("run/checkpoints/step_000002/model.safetensors", "parameters");
    folder_.write("run/report.json", "report");
    report_.losses = {2, 1};
  }

  TrainOptions options(const std::string& reference, const std::string& out = "run") const {
    TrainOptions options;
    options.output.save_reference = folder_.path(reference);
    options.output.out = out.empty() ? "" : folder_.path(out);
    return options;
  }
  std::string keep(const std::string& name) {
    return ReferenceFolder(options(name), true).keep(folder_.path("run"), report_);
  }
  void expect_refused(const std::string& reference, const std::string& why,
                      const std::string& out = "run") {
    const std::vector<std::string> before = entries();
    expect_throws<UsageError>([&] { ReferenceFolder(options(reference, out), true); },
                              {reference, why});
    EXPECT_EQ(entries(), before);
  }
  // All that lies in the folder, at any depth.
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
      names.push_back(entry.path().lexically_relative(folder_.path()).string());
    std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder folder_;
  TrainReport report_;
};

TEST_F(ReferenceFolderTest, HoldsReportAndParametersAlsoWithASlashAtTheEnd) {
  for (const std::string name : {"kept", "slash/", "new/deep/", "run/../dots", "./dot/."}) {
    EXPECT_THAT(keep(name), HasSubstr("reference: "));
    EXPECT_EQ(read_text_file(folder_.path(name) + "/report.json"), "report") << name;
    EXPECT_EQ(read_text_file(folder_.path(name) + "/model.safetensors"), "parameters") << name;
  }
  for (const std::string& entry : entries()) EXPECT_THAT(entry, Not(HasSubstr("partial")));
}

TEST_F(ReferenceFolderTest, WhatIsThereAlreadyIsRefused) {
  fs::create_directory(folder_.path("empty"));
  folder_.write("file", "");
  fs::create_symlink("nowhere", folder_.path("link"));
  for (const char* name : {"empty", "empty/", "file", "link"})
    expect_refused(name, "already exists");
}

TEST_F(ReferenceFolderTest, ItsPlaceAndTheRunsAreApart) {
  expect_refused("run", "is inside the run's own folder");
  expect_refused("new", "is inside the run's own folder", "new");
  expect_refused("new", "is inside the run's own folder", "new/");
  expect_refused("run/kept", "is inside the run's own folder");
  expect_refused("run/../run/a/b/", "is inside the run's own folder");
  expect_refused("new", "holds the run's own folder", "new/run");
  expect_refused(".", "holds the run's own folder");
  fs::create_directory_symlink("run", folder_.path("link"));
  expect_refused("link/kept", "is inside the run's own folder");
  EXPECT_THAT(keep("run2"), HasSubstr("reference: "));  // a name that only begins alike
}

TEST_F(ReferenceFolderTest, WithoutOutTheRunsFolderWillLieUnderRuns) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  expect_refused("runs", "holds the run's own folder", "");
  EXPECT_NO_THROW(ReferenceFolder(options("runs/kept", ""), true));
  fs::current_path(before);
}

TEST_F(ReferenceFolderTest, AnImpossiblePlaceIsFoundBeforeTraining) {
  folder_.write("file", "");
  EXPECT_THROW(ReferenceFolder(options("file/kept"), true), CheckError);
  EXPECT_THROW(ReferenceFolder(options("file/deep/kept"), true), CheckError);
  EXPECT_THROW(ReferenceFolder(options(std::string(255, 'x')), true), CheckError);
}

TEST_F(ReferenceFolderTest, AStoppedRunIsNotKeptAndKeptAfterItsResume) {
  report_.was_stopped = true;
  EXPECT_THAT(keep("kept"), HasSubstr("no reference was kept"));
  EXPECT_FALSE(fs::exists(folder_.path("kept")));
  report_.was_stopped = false;
  report_.first_step = 7;
  EXPECT_THAT(keep("kept"), HasSubstr("steps 8 to 9"));
}

TEST_F(ReferenceFolderTest, ARunWithoutStepsIsAnError) {
  report_.losses.clear();
  EXPECT_THROW(keep("kept"), CheckError);
}

TEST_F(ReferenceFolderTest, DeletesNothingThatItHasNotMade) {
  const std::string partial = "kept.partial", hidden = concat(".kept.partial-", ::getpid());
  for (const std::string& name : {partial, hidden}) {
    fs::create_directory(folder_.path(name));
    folder_.write(name + "/precious", "");
  }
  {
    ReferenceFolder reference(options("kept"), true);
    folder_.write("kept", "somebody else's");
    EXPECT_THROW(reference.keep(folder_.path("run"), report_), CheckError);
  }
  EXPECT_EQ(read_text_file(folder_.path("kept")), "somebody else's");
  for (const std::string& name : {partial, hidden})
    EXPECT_TRUE(fs::exists(folder_.path(name + "/precious"))) << name;
  EXPECT_FALSE(fs::exists(folder_.path(hidden + "_")));
}

TEST_F(ReferenceFolderTest, OtherRanksAndRunsWithoutTheOptionDoNothing) {
  const std::vector<std::string> before = entries();
  EXPECT_EQ(ReferenceFolder(options("run"), false).keep(folder_.path("run"), report_), "");
  EXPECT_EQ(ReferenceFolder(TrainOptions(), true).keep(folder_.path("run"), report_), "");
  EXPECT_EQ(entries(), before);
}

}  // namespace
}  // namespace ladder
