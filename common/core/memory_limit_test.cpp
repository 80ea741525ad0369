#include "common/core/process_memory.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/core/check.hpp"
#include "common/testing/temp_folder.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// A machine with 8 GiB, as /proc and /sys show it.
class MemoryLimit : public ::testing::Test {
 protected:
  MemoryLimit() { meminfo(0); }
  void meminfo(int swap_gib) {
    write("proc/meminfo", concat("MemTotal:        8388608 kB\nMemFree:  1 kB\nSwapTotal:   ",
                                 swap_gib * 1048576, " kB\n"));
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_.path(path)).parent_path());
    folder_.write(path, text);
  }
  std::int64_t limit(int num_processes = 1) {
    return memory_limit_bytes(num_processes, folder_.path());
  }

  TempFolder folder_;
};

TEST_F(MemoryLimit, IsTheMachinesMemoryAndItsSwap) {
  EXPECT_EQ(limit(), 8 * kGiB);
  meminfo(2);
  EXPECT_EQ(limit(), 10 * kGiB);
  EXPECT_EQ(limit(4), 10 * kGiB);
}

TEST_F(MemoryLimit, IsThatOfACgroupOrOfOneAboveIt) {
  write("proc/self/cgroup", "0::/job/step\n");
  EXPECT_EQ(limit(), 8 * kGiB);
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  EXPECT_EQ(limit(), 8 * kGiB);
  write("sys/fs/cgroup/job/memory.max", "3221225472\n");
  EXPECT_EQ(limit(), 3 * kGiB);
  meminfo(1);
  EXPECT_EQ(limit(), 4 * kGiB);
  write("sys/fs/cgroup/memory.max", "1073741824\n");
  EXPECT_EQ(limit(), 2 * kGiB);
}

// Ranks may have a cgroup each; then they share only what is above it.
TEST_F(MemoryLimit, OfSeveralProcessesIsThatOfTheGroupTheyShare) {
  const std::string launcher = concat("proc/", ::getppid(), "/cgroup");
  write("proc/self/cgroup", "0::/job/rank\n");
  write("sys/fs/cgroup/job/rank/memory.max", "1073741824\n");
  write("sys/fs/cgroup/job/memory.max", "3221225472\n");
  write(launcher, "0::/job/rank\n");
  EXPECT_EQ(limit(4), kGiB);
  write(launcher, "0::/job/mpirun\n");
  EXPECT_EQ(limit(4), 3 * kGiB);
  EXPECT_EQ(limit(), kGiB);
}

TEST_F(MemoryLimit, ReadsTheFirstVersionOfCgroups) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/\n4:hugetlb,memory:/docker/a0\n0::/\n");
  write("sys/fs/cgroup/memory/docker/a0/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(limit(), 8 * kGiB);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");  // seen in the container
  EXPECT_EQ(limit(), 2 * kGiB);
}

TEST_F(MemoryLimit, IsNoMoreThanTheAddressSpaces) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  if (before.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "this shell has set another limit";
  constexpr std::int64_t kPiB = kGiB << 20;  // more than sanitizers reserve
  rlimit limited = before;
  limited.rlim_cur = 3 * kPiB;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  write("proc/meminfo", "MemTotal: 8796093022208 kB\n");
  EXPECT_EQ(limit(), 3 * kPiB);
  EXPECT_EQ(limit(2), 6 * kPiB);
  EXPECT_EQ(limit(3), 8 * kPiB);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
}

TEST_F(MemoryLimit, ThisMachineHasOne) {
  EXPECT_GT(memory_limit_bytes(), kGiB / 4);
  EXPECT_LT(memory_limit_bytes(), std::int64_t{1} << 60);
}

}  // namespace
}  // namespace ladder
