// main() of GoogleTest programs that run on several ranks: under MPI, or with --threads N as so
// many threads of one process (rank_test.hpp). With --staged, messages pass through memory that
// stands for the host's, as those of tensors on a GPU do (staged_communicator.hpp); with --store,
// through a store that rank 0 serves, as those of ranks that torchrun starts do
// (store_communicator.hpp). With --checked, all calls are compared (checking_communicator.hpp);
// with --paced, they take a link's time (paced_communicator.hpp); with --machines, two ranks share
// each (machines.hpp); --self is one rank (self_communicator.hpp).
//
// Under MPI, rank 0 prints as usual; the others print only failures, prefixed with their rank.
// Every rank exits with 1 if a test failed on any rank. An exception that escapes a test ends all
// ranks at once, and so does a test longer than 120 s (time_limit.hpp), because then some rank
// waits for another. A build without MPI has one rank, or threads.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/comm/checking/checking_communicator.hpp"
#include "common/comm/messages/message_communicator.hpp"
#include "common/comm/nccl/staged_communicator.hpp"
#include "common/comm/paced_communicator.hpp"
#include "common/comm/self_communicator.hpp"
#include "common/comm/store/key_value_store.hpp"
#include "common/comm/store/store_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/compute_threads.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/time_limit.hpp"
#ifdef LADDER_SANITIZE_THREAD
#include "common/model/modules.hpp"
#endif

namespace ladder {
namespace {

class FailurePrinter final : public ::testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

  void OnTestStart(const ::testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  // GoogleTest holds its lock here, so asking it for the current test would wait forever.
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* const file = result.file_name();
    std::fprintf(stderr, "[rank %d] %s\n[rank %d] %s:%d: %s\n", rank_, test_.c_str(), rank_,
                 file != nullptr ? file : "unknown file", result.line_number(), result.message());
  }

 private:
  int rank_;
  std::string test_ = "outside a test";
};

class TimeLimit final : public ::testing::EmptyTestEventListener {
 public:
  explicit TimeLimit(const std::string& who) : who_(who) {}

  void OnTestStart(const ::testing::TestInfo& test) override {
    start_time_limit(120, concat("[", who_, "] a rank waits for another: ", test.test_suite_name(),
                                 ".", test.name()));
  }
  void OnTestEnd(const ::testing::TestInfo& /*test*/) override { stop_time_limit(); }

 private:
  std::string who_;
};

int run_tests(World& the_world) {
  use_processes(the_world);
  const int rank = the_world.comm().rank();
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
    listeners.Append(new FailurePrinter(rank));  // gtest owns its listeners
  }
  listeners.Append(new TimeLimit(concat("rank ", rank)));
  const int result = RUN_ALL_TESTS();
  return all_reduce_sum(result, the_world.comm()) > 0 ? 1 : 0;
}

// What carries the messages of all tests: the launcher's transport, or one around or beside it.
using Group = std::unique_ptr<Communicator>;
using Carry = Group (*)(Group of_launcher);
const std::map<std::string_view, Carry> kCarriers = {
    {"--staged",
     [](Group group) -> Group {
       return std::make_unique<StagedCommunicator>(std::move(group),
                                                   StagedCommunicator::Staged::kEverything);
     }},
    {"--checked",
     [](Group group) -> Group {
       return std::make_unique<CheckingCommunicator>(std::move(group), /*timeout_s=*/60);
     }},
    {"--paced",
     [](Group group) -> Group {
       return std::make_unique<PacedCommunicator>(std::move(group), Link{1, 100});
     }},
    {"--machines",
     [](Group group) -> Group {
       place_on(machines_of(group->size(), 2), *group);
       return group;
     }},
    {"--self", [](Group) -> Group { return std::make_unique<SelfCommunicator>(); }},
    {"--store", [](Group group) {
       return store_communicator(shared_store(*group, 60), "test/", group->rank(), group->size(),
                                 /*timeout_s=*/60);
     }}};

int run_in_world(Carry carry) {
#ifdef LADDER_WITH_MPI
  World the_world(Transport::kMpi);
#else
  World the_world(Transport::kSelf);
#endif
  try {
    if (carry == nullptr) return run_tests(the_world);
    World carried(carry(the_world.comm().split(0, 0)), the_world.transport());
    const int result = run_tests(carried);
    the_world.comm().barrier();  // rank 0 may serve the others until they have read everything
    return result;
  } catch (const std::exception& error) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::fprintf(stderr, "[rank %d] an exception escaped %s.%s: %s\n", the_world.comm().rank(),
                 test != nullptr ? test->test_suite_name() : "-",
                 test != nullptr ? test->name() : "-", error.what());
  }
  the_world.abort(1);
}

// The N of --threads N; 0 without this option, -1 for anything else.
int read_num_threads(int argc, char** argv) {
  if (argc == 1) return 0;
  int num_threads = -1;
  if (argc == 3 && std::string_view(argv[1]) == "--threads") {
    const std::string_view text = argv[2];
    const char* const end = text.data() + text.size();
    if (std::from_chars(text.data(), end, num_threads).ptr != end) return -1;
  }
  return num_threads >= 1 ? num_threads : -1;
}

// Leaves out all tests but those that can run on threads.
void select_tests_on_ranks() {
  const auto& tests = *::testing::UnitTest::GetInstance();
  std::string others;
  for (int i = 0; i < tests.total_test_suite_count(); ++i) {
    const auto& suite = *tests.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const std::string name = concat(suite.name(), ".", suite.GetTestInfo(j)->name());
      if (!tests_on_ranks().contains(name)) others += concat(":", name);
    }
  }
  const std::string wanted = GTEST_FLAG_GET(filter);
  const bool has_minus = wanted.find('-') != std::string::npos;
  GTEST_FLAG_SET(filter, wanted + (has_minus ? "" : "-") + others);
}

#ifdef LADDER_SANITIZE_THREAD
// oneDNN makes its cache at the first product. Another thread sees that it is made in libtorch,
// which the sanitizer does not watch, so that the cache's lock would look like a race.
void make_the_cache_of_onednn() {
  const Linear linear = {at::ones({8, 8}), at::ones({8})};
  linear(at::ones({2, 8}));
}
#endif

int run_on_threads(int num_threads) {
#ifdef LADDER_SANITIZE_THREAD
  make_the_cache_of_onednn();
#endif
  if (tests_on_ranks().empty()) {
    std::fprintf(stderr, "no test of this program is a TEST_ON_RANKS: none can run on threads\n");
    return 1;
  }
  select_tests_on_ranks();
  use_threads(num_threads);
  ::testing::UnitTest::GetInstance()->listeners().Append(
      new TimeLimit(concat(num_threads, " threads")));
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();  // needs no other rank
  ladder::set_compute_threads(1);
  const auto carrier = ladder::kCarriers.find(argc == 2 ? argv[1] : "");
  const bool is_carried = carrier != ladder::kCarriers.end();
  const int num_threads = is_carried ? 0 : ladder::read_num_threads(argc, argv);
  if (num_threads < 0) {
    std::fprintf(
        stderr,
        "usage: %s [--threads N | --staged | --checked | --paced | --machines | --self | --store] "
        "[--gtest_filter=PATTERN]\n",
        argv[0]);
    return 2;
  }
  if (num_threads > 0) return ladder::run_on_threads(num_threads);
  GTEST_FLAG_SET(catch_exceptions, false);  // run_in_world() catches them and ends all ranks
  return ladder::run_in_world(is_carried ? carrier->second : nullptr);
}
