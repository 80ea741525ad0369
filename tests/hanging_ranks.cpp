// Ranks that would wait for each other forever, for hang_test: each mistake is rank 1's.
//
//   hanging_ranks MISTAKE SECONDS [THREADS]    SECONDS: of --check-collectives
#include <ATen/ops/ones.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>

#include "common/comm/checking/checking_communicator.hpp"
#include "common/comm/threads/run_as_threads.hpp"
#include "common/core/check.hpp"
#include "common/train/run_main.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kNoBufferHolds = 4 << 20;  // elements

void step(Communicator& comm) {
  comm.all_reduce(at::ones({10}))->wait();
}

void be_late(int rank, Communicator& comm) {
  while (comm.rank() == rank) ::pause();
}

struct End {};  // thrown: this rank has done its work

// A mistake is made between two steps.
using Mistake = void (*)(Communicator&);
const std::map<std::string, Mistake> kMistakes = {
    {"missing_rank",
     [](Communicator& comm) {
       if (comm.rank() != 1) step(comm);
     }},
    {"other_order",
     [](Communicator& comm) {
       const at::Tensor weight = at::ones({6}), bias = at::ones({2});
       comm.all_reduce(comm.rank() == 1 ? bias : weight)->wait();
       comm.all_reduce(comm.rank() == 1 ? weight : bias)->wait();
     }},
    {"other_size",
     [](Communicator& comm) { comm.all_reduce(at::ones({comm.rank() == 1 ? 7 : 8}))->wait(); }},
    {"other_dtype",
     [](Communicator& comm) {
       comm.all_reduce(at::ones({8}, comm.rank() == 1 ? at::kInt : at::kFloat))->wait();
     }},
    {"other_root",
     [](Communicator& comm) { comm.broadcast(at::ones({8}), comm.rank() == 1 ? 1 : 0)->wait(); }},
    {"only_rank_1",
     [](Communicator& comm) {
       if (comm.rank() == 1) all_reduce_sum(1.0, comm);
     }},
    // All ranks, in a ring.
    {"sends_first",
     [](Communicator& comm) {
       const at::Tensor own = at::ones({kNoBufferHolds}), other = at::ones({kNoBufferHolds});
       const int size = comm.size();
       comm.send(own, (comm.rank() + 1) % size, 5)->wait();
       comm.recv(other, (comm.rank() + size - 1) % size, 5)->wait();
     }},
    {"other_message",
     [](Communicator& comm) {
       if (comm.rank() == 0) comm.send(at::ones({8}), 1, 0)->wait();
       if (comm.rank() == 1) comm.recv(at::ones({9}), 0, 0)->wait();
     }},
    {"exception", [](Communicator& comm) { check(comm.rank() != 1, "sample 17 cannot be read"); }},
    {"two_groups",
     [](Communicator& comm) {
       const auto a = comm.split(0, comm.rank()), b = comm.split(0, comm.rank());
       (comm.rank() == 1 ? b : a)->all_reduce(at::ones({3}))->wait();
       (comm.rank() == 1 ? a : b)->all_reduce(at::ones({3}))->wait();
     }},
    {"late_rank_0", [](Communicator& comm) { be_late(0, comm); }},
    {"late_rank_2", [](Communicator& comm) { be_late(2, comm); }},
    // Rank 1 makes the call afterwards, so that then all ranks have made it.
    {"frozen_in_a_call",
     [](Communicator& comm) {
       std::signal(SIGALRM, [](int) { std::raise(SIGSTOP); });
       if (comm.rank() == 2) ::alarm(1);
       if (comm.rank() == 1) ::usleep(1'500'000);
     }},
    {"frozen_rank_0",
     [](Communicator& comm) {
       if (comm.rank() == 0) std::raise(SIGSTOP);
     }},
    {"killed_rank_0",
     [](Communicator& comm) {
       if (comm.rank() == 0) std::raise(SIGKILL);
     }},
    {"split_of_one",
     [](Communicator& comm) {
       if (comm.rank() == 1) comm.split(0, 0);
     }},
    // Rank 1 ends, and then the others fail.
    {"others_fail",
     [](Communicator& comm) {
       if (comm.rank() == 1) throw End();
       ::usleep(100'000);
       throw CheckError("sample 17 cannot be read");
     }},
    {"none", [](Communicator& comm) {
       const auto part = comm.split(comm.rank() % 2, -comm.rank());
       step(*part);
     }}};

int run_rank(World& world, Mistake mistake, double timeout_s) {
  return check_collectives(world, timeout_s, [&] {
    auto* const checking = find_communicator<CheckingCommunicator>(world.comm());
    if (checking != nullptr) checking->begin_step(1);
    step(world.comm());
    if (checking != nullptr) checking->begin_step(2);
    try {
      mistake(world.comm());
      step(world.comm());
    } catch (const End&) {
    }
    return 0;
  });
}

int run(Mistake mistake, double timeout_s, int num_threads) {
  if (num_threads == 0) {
    World world(Transport::kAuto);
    return run_in_world(world, [&] { return run_rank(world, mistake, timeout_s); });
  }
  try {
    run_as_threads(num_threads, [&](Communicator& comm) {
      World world(comm.split(0, 0), Transport::kThreads);
      run_rank(world, mistake, timeout_s);
    });
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int num_threads = argc > 3 ? std::atoi(argv[3]) : 0;
  return ladder::run(ladder::kMistakes.at(argv[1]), std::atof(argv[2]), num_threads);
}
