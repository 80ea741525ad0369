#include "common/testing/rank_test.hpp"

#ifdef LADDER_WITH_MPI
#include "common/comm/mpi/mpi_communicator.hpp"
#endif
#include "common/comm/threads/run_as_threads.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

std::set<std::string>& names_of_tests_on_ranks() {
  static std::set<std::string> names;  // filled before main()
  return names;
}

int num_test_threads = 0;  // none: the ranks are processes
World* process_world = nullptr;
thread_local World* thread_world = nullptr;

}  // namespace

World& test_world() {
  World* const world = num_test_threads > 0 ? thread_world : process_world;
  check(world != nullptr, "this thread is no rank: is the test a TEST_ON_RANKS?");
  return *world;
}

bool ranks_are_processes() {
  return num_test_threads == 0;
}

World synchronous_world() {
#ifdef LADDER_WITH_MPI
  if (num_test_threads == 0) {
    return World(mpi_communicator({.synchronous_sends = true}), Transport::kMpi);
  }
#endif
  return World(test_world().comm().split(0, 0), test_world().transport());  // threads never buffer
}

void use_processes(World& world) {
  process_world = &world;
}

void use_threads(int num_threads) {
  num_test_threads = num_threads;
}

const std::set<std::string>& tests_on_ranks() {
  return names_of_tests_on_ranks();
}

bool add_test_on_ranks(const std::string& name) {
  return names_of_tests_on_ranks().insert(name).second;
}

void on_every_rank(const std::function<void()>& body) {
  if (num_test_threads == 0) {
    body();
    return;
  }
  run_as_threads(num_test_threads, [&](Communicator& comm) {
    const ::testing::ScopedTrace trace(
        "on a thread", 0, concat("rank ", comm.rank(), " of ", comm.size(), " threads"));
    World world(comm.split(0, 0), Transport::kThreads);
    thread_world = &world;
    body();
    thread_world = nullptr;
  });
}

}  // namespace ladder
