#include "common/testing/judge_main.hpp"

#include <cstdio>
#include <fstream>
#include <iterator>
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
  void give(bool is_right) const {
    if (!file_.empty()) std::ofstream(file_) << word_ << (is_right ? " right" : " wrong");
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

int judge() {
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
    stop_time_limit();
    if (comm.rank() == 0) show(faults, comm.size());
    return faults.empty() ? kExitDone : kExitError;
  });
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  const ladder::Verdict verdict(argc, argv);
  const int code = ladder::judge();
  verdict.give(code == ladder::kExitDone);
  return code;
}
