#include "common/testing/judge_main.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <limits>
#include <string_view>

#include "common/comm/launcher_environment.hpp"
#include "common/comm/world.hpp"
#include "common/core/check.hpp"
#include "common/core/compute_threads.hpp"
#include "common/testing/current_check.hpp"
#include "common/testing/time_limit.hpp"
#include "common/train/run_main.hpp"

namespace ladder {
namespace {

// What the answer cannot say in the judge's place: the word of a file, which is gone before the
// answer runs.
class Verdict {
 public:
  // Only rank 0 has one.
  Verdict(int argc, char** argv) {
    if (argc != 3 || std::string_view(argv[1]) != "--verdict" || launched_rank() != 0) return;
    file_ = argv[2];
    std::ifstream stream(file_);
    word_.assign(std::istreambuf_iterator<char>(stream), {});
    std::remove(file_.c_str());
  }
  void give(bool is_right, const std::vector<Target>& targets) const {
    if (file_.empty()) return;
    std::ofstream stream(file_);
    stream << word_ << (is_right ? " right" : " wrong")
           << std::setprecision(std::numeric_limits<double>::max_digits10);
    for (const auto& [found, solution, naive, what, naive_is, hint] : targets) {
      stream << '\n' << found << '\t' << solution << '\t' << naive;
      for (const std::string& text : {what, naive_is, hint}) stream << '\t' << text;
    }
  }

 private:
  std::string file_, word_;
};

void show(const std::vector<std::string>& faults, int num_ranks) {
  const char* const ranks = num_ranks == 1 ? "rank" : "ranks";
  if (faults.empty()) {
    std::printf("on %d %s: right\n", num_ranks, ranks);
  } else {
    std::printf("on %d %s: wrong\n", num_ranks, ranks);
    for (const std::string& fault : faults) std::printf("  - %s\n", fault.c_str());
  }
  std::fflush(stdout);
}

// What the slowest or largest rank has made of them: the others wait for it.
std::vector<Target> worst_of_ranks(std::vector<Target> targets, Communicator& comm) {
  for (Target& target : targets) {
    std::vector<double> found(static_cast<std::size_t>(comm.size()), 0);
    found[static_cast<std::size_t>(comm.rank())] = target.found;
    all_reduce_sum(found, comm);
    target.found = *std::max_element(found.begin(), found.end());
  }
  return targets;
}

int judge(std::vector<Target>& targets) {
  ladder::set_compute_threads(1);
#ifdef LADDER_WITH_MPI
  World world(Transport::kMpi);
#else
  World world(Transport::kSelf);
#endif
  return run_in_world(world, [&] {
    Communicator& comm = world.comm();
    const std::string who = concat("rank ", comm.rank());
    name_check_on_crash(who);
    start_time_limit(60, who + ": an endless loop, or a wait for another rank: the judge");
    const std::vector<std::string> faults = judge_linked(comm);
    if (faults.empty() && measure_linked != nullptr) {
      set_current_check("the target");
      targets = worst_of_ranks(measure_linked(comm), comm);
    }
    stop_time_limit();
    if (comm.rank() == 0) show(faults, comm.size());
    return faults.empty() ? kExitDone : kExitError;
  });
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  const ladder::Verdict verdict(argc, argv);
  std::vector<ladder::Target> targets;
  const int code = ladder::judge(targets);
  verdict.give(code == ladder::kExitDone, targets);
  return code;
}
