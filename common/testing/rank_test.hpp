// Tests that run on every rank, be the ranks processes or threads.
//
//   class Sums : public RankTest {};
//
//   TEST_ON_RANKS(Sums, AddUp) { EXPECT_EQ(all_reduce_sum(1.0, comm_), size_); }
//
// For test programs with RANKS or THREADS in CMake: under mpirun each process is a rank; with the
// option --threads N, each test starts N threads, and each of them is a rank. A failure on a thread
// is reported with its rank.
//
// With --threads, only these tests run. Others, and those that need a process per rank, for example
// because they measure its memory, run under mpirun:
//
//   TEST_ON_PROCESSES(Sums, NeedNoMemory) { … }
//
// Before and between collectives, use EXPECT instead of ASSERT: if a process leaves a test early,
// the others wait for it until the time limit of mpi_main.cpp ends them all.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "common/comm/world.hpp"

namespace ladder {

World& test_world();  // of all ranks, as this rank sees it; call it inside a TEST_ON_RANKS
// Whether each rank is a process. Only then has it a memory ledger of its own.
bool ranks_are_processes();

// Another World of all ranks, in which a send is done only when its receiver has started to receive
// (MpiLimits::synchronous_sends). A program that is correct in it does not rely on the transport to
// buffer its messages. Collective.
World synchronous_world();

// A fixture for TEST_ON_RANKS. One object for each rank and test.
class RankTest {
 protected:
  Communicator& comm_ = test_world().comm();
  const int rank_ = comm_.rank();
  const int size_ = comm_.size();
  const int next_ = (rank_ + 1) % size_, previous_ = (rank_ + size_ - 1) % size_;  // in a ring
};

// What this rank sends while it acts.
template <class Act>
Traffic sent_in(Communicator& comm, const Act& act) {
  const Traffic before = comm.traffic();
  act();
  Traffic sent = comm.traffic();
  return sent -= before;
}

// Runs `body` as a rank: here, or on each of the threads.
void on_every_rank(const std::function<void()>& body);

// For main(). The ranks are processes, of which this is one; or so many threads.
void use_processes(World& world);
void use_threads(int num_threads);

// The names of all tests that are a TEST_ON_RANKS, as "Fixture.Name".
const std::set<std::string>& tests_on_ranks();
bool add_test_on_ranks(const std::string& name);

}  // namespace ladder

#define TEST_ON_PROCESSES(Fixture, Name)                                \
  class Fixture##_##Name##_OnRank : public Fixture {                    \
   public:                                                              \
    void run();                                                         \
  };                                                                    \
  TEST(Fixture, Name) {                                                 \
    ::ladder::on_every_rank([] { Fixture##_##Name##_OnRank().run(); }); \
  }                                                                     \
  void Fixture##_##Name##_OnRank::run()

#define TEST_ON_RANKS(Fixture, Name)                                  \
  [[maybe_unused]] static const bool Fixture##_##Name##_is_on_ranks = \
      ::ladder::add_test_on_ranks(#Fixture "." #Name);                \
  TEST_ON_PROCESSES(Fixture, Name)
