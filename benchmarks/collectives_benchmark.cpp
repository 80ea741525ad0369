// The speed of the collectives, compared with Open MPI's own.
//
//   mpirun -n 2 --bind-to none build/benchmarks/collectives_benchmark
//
// Prints one row per operation and size; `mpi_…` rows are Open MPI's own calls on the same float32
// data. The time is the slowest rank's. algbw is bytes over time; busbw is what a link would carry
// if the algorithm were a ring, both as defined by nccl-tests (PERFORMANCE.md). Bytes are those of
// the full tensor.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX  // Open MPI's old C++ classes need a separate library
#endif
#include <mpi.h>

#include <algorithm>
#include <functional>
#include <string>

#include "benchmarks/training_process.hpp"
#include "common/core/timer.hpp"

namespace ladder {
namespace {

struct Tensors {
  at::Tensor full;
  at::Tensor shard;
  float* full_data() const { return full.mutable_data_ptr<float>(); }
  float* shard_data() const { return shard.mutable_data_ptr<float>(); }
  int full_numel() const { return static_cast<int>(full.numel()); }
  int shard_numel() const { return static_cast<int>(shard.numel()); }
};

struct Collective {
  std::string name;
  int num_passes;  // around a ring, each of which leaves 1/N out; 0: a broadcast, which leaves nothing
  std::function<void(Communicator&, const Tensors&)> run;
};

std::vector<Collective> collectives() {
  return {
      {"all_reduce", 2,
       [](Communicator& comm, const Tensors& t) { comm.all_reduce(t.full)->wait(); }},
      {"mpi_all_reduce", 2,
       [](Communicator&, const Tensors& t) {
         MPI_Allreduce(MPI_IN_PLACE, t.full_data(), t.full_numel(), MPI_FLOAT, MPI_SUM,
                       MPI_COMM_WORLD);
       }},
      {"reduce_scatter", 1,
       [](Communicator& comm, const Tensors& t) { comm.reduce_scatter(t.full, t.shard)->wait(); }},
      {"mpi_reduce_scatter", 1,
       [](Communicator&, const Tensors& t) {
         MPI_Reduce_scatter_block(t.full_data(), t.shard_data(), t.shard_numel(), MPI_FLOAT,
                                  MPI_SUM, MPI_COMM_WORLD);
       }},
      {"all_gather", 1,
       [](Communicator& comm, const Tensors& t) { comm.all_gather(t.shard, t.full)->wait(); }},
      {"mpi_all_gather", 1,
       [](Communicator&, const Tensors& t) {
         MPI_Allgather(t.shard_data(), t.shard_numel(), MPI_FLOAT, t.full_data(), t.shard_numel(),
                       MPI_FLOAT, MPI_COMM_WORLD);
       }},
      {"broadcast", 0,
       [](Communicator& comm, const Tensors& t) { comm.broadcast(t.full, 0)->wait(); }},
      {"mpi_broadcast", 0,
       [](Communicator&, const Tensors& t) {
         MPI_Bcast(t.full_data(), t.full_numel(), MPI_FLOAT, 0, MPI_COMM_WORLD);
       }},
  };
}

// Every rank runs the same number of rounds, because the number is fixed and not measured.
std::int64_t num_rounds(std::int64_t bytes) {
  return std::clamp<std::int64_t>((std::int64_t{256} << 20) / bytes, 5, 200);
}

void measure(benchmark::State& state, const Collective& collective, Communicator& comm) {
  const std::int64_t shard_numel = state.range(0) / 4 / comm.size();
  const Tensors tensors{at::zeros({shard_numel * comm.size()}), at::zeros({shard_numel})};
  collective.run(comm, tensors);  // the first call sets up pages and connections
  double total_s = 0;
  for (auto _ : state) {
    comm.barrier();
    const Timer timer;
    collective.run(comm, tensors);
    double slowest_s = timer.seconds();
    MPI_Allreduce(MPI_IN_PLACE, &slowest_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    state.SetIterationTime(slowest_s);
    total_s += slowest_s;
  }
  const double algbw = static_cast<double>(tensors.full.nbytes()) *
                       static_cast<double>(state.iterations()) / total_s;
  state.counters["algbw_GB/s"] = algbw / 1e9;
  const double share = (comm.size() - 1.0) / comm.size();
  state.counters["busbw_GB/s"] =
      algbw / 1e9 * (collective.num_passes == 0 ? 1 : collective.num_passes * share);
}

void add_all(World& world) {
  Communicator& comm = world.comm();
  for (std::int64_t bytes = 4 << 10; bytes <= 64 << 20; bytes *= 4) {
    for (const Collective& collective : collectives()) {
      benchmark::RegisterBenchmark(
          (collective.name + "/ranks:" + std::to_string(comm.size()) + "/bytes").c_str(),
          [collective, &comm](benchmark::State& state) { measure(state, collective, comm); })
          ->Arg(bytes)
          ->Iterations(num_rounds(bytes))
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_benchmarks_on_ranks(argc, argv, ladder::Transport::kMpi, ladder::add_all);
}
