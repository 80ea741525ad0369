#include "common/comm/world.hpp"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/comm/launcher_environment.hpp"
#include "common/comm/members.hpp"
#include "common/comm/nccl/nccl_communicator.hpp"
#include "common/comm/nccl/staged_communicator.hpp"
#include "common/comm/paced_communicator.hpp"
#include "common/comm/self_communicator.hpp"
#include "common/comm/store/store_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#ifdef LADDER_WITH_MPI
#include <mpi.h>

#include "common/comm/mpi/mpi_communicator.hpp"
#endif

namespace ladder {
namespace {

Transport resolve(Transport transport, int num_ranks) {
  const bool is_torchrun = launcher() == Launcher::kTorchrun;
  const bool is_open = transport == Transport::kAuto || transport == Transport::kNccl;
  if (is_open) {  // NCCL starts over it
    return num_ranks == 1 ? Transport::kSelf : is_torchrun ? Transport::kStore : Transport::kMpi;
  }
  // Each of its processes would become an MPI job of its own, of one rank, and train alone.
  check_usage(transport != Transport::kMpi || !is_torchrun || num_ranks == 1,
              "--transport mpi: torchrun started ", num_ranks, " ranks without MPI; leave ",
              "--transport out, and a store carries their messages, or start them with mpirun or ",
              "srun (docs/cluster.md), or unset TORCHELASTIC_RUN_ID if torchrun did not");
  check_usage(
      transport != Transport::kStore || is_torchrun,
      "--transport store is for ranks that torchrun starts, because it tells them where to ",
      "meet: scripts/cluster/torchrun.sh --ranks-per-node N STEP; leave --transport out ",
      "with every other launcher, and without one");
  check_usage(transport != Transport::kSelf || num_ranks == 1,
              "--transport self is for one rank, but the launcher started ", num_ranks,
              "; leave --transport out or start one process");
  check(transport != Transport::kThreads, "a World starts no threads: run_as_threads() does");
  check(transport != Transport::kSimulated, "a simulated World is given its communicator");
  return transport;
}

std::unique_ptr<Communicator> make_nccl(std::unique_ptr<Communicator> control,
                                        const NcclOptions& options) {
#ifdef LADDER_WITH_CUDA
  return NcclCommunicator::create(std::move(control), options);
#else
  throw CheckError(concat("NCCL for ", control->size(), " ranks with a time-out of ",
                          options.timeout_s, " s: ", cuda_problem()));
#endif
}

#ifdef LADDER_WITH_MPI
bool mpi_is_running() {  // whether or not this World started it
  int is_started = 0, is_ended = 0;
  MPI_Initialized(&is_started);
  MPI_Finalized(&is_ended);
  return is_started != 0 && is_ended == 0;
}
#endif

}  // namespace

struct World::Process {
  Transport transport = Transport::kSelf;
  int local_rank = 0;
  int num_local_ranks = 1;
  int first_local_rank = 0;  // the lowest rank on this machine
#ifdef LADDER_WITH_MPI
  std::optional<MpiProcess> mpi;
#endif
  std::optional<StoreProcess> store;
  std::unique_ptr<Communicator> comm;  // destroyed before MPI ends

  // Gives this rank its GPU, and its communicator the way there.
  void place_on_gpu(Transport asked, const Links& links, const NcclOptions& nccl) {
    const int num_gpus = num_cuda_devices();
    check_usage(num_gpus > 0, "there is no GPU: ", cuda_problem());
    use_cuda_device(local_rank % num_gpus);
    // Counting GPUs would not tell: the launcher may show each rank only its own.
    const std::vector<std::string> gpus = all_gather_text(current_gpu_id(), *comm);
    const bool has_own = std::set(gpus.begin(), gpus.end()).size() == gpus.size();
    const bool is_auto = asked == Transport::kAuto && !links.is_on();  // no link slows NCCL down
    const bool is_nccl = asked == Transport::kNccl || (is_auto && has_own && comm->size() > 1);
    if (is_nccl) {
      transport = Transport::kNccl;
      comm = make_nccl(std::move(comm), nccl);
    } else if (comm->size() > 1) {
      comm = std::make_unique<StagedCommunicator>(std::move(comm));
    }
  }

  void join_store() {
    store.emplace();
    local_rank = launched_local_rank();
    num_local_ranks = launched_local_ranks();
    first_local_rank = launched_rank() - local_rank;  // torchrun fills one machine after the other
    comm = store->communicator();
  }

  void start_mpi() {
#ifdef LADDER_WITH_MPI
    mpi.emplace();
    local_rank = mpi->local_rank();
    num_local_ranks = mpi->num_local_ranks();
    first_local_rank = mpi->first_local_rank();
    comm = mpi_communicator();
    check_usage(launched_ranks() == 1 || comm->size() == launched_ranks(), "the launcher started ",
                launched_ranks(), " ranks, but MPI sees ", comm->size(),
                ": does mpirun belong to a different MPI than this program was built with?");
#else
    throw UsageError(concat("the launcher started ", launched_ranks(),
                            " ranks or --transport mpi was given, but this build has no MPI; "
                            "configure with -DLADDER_MPI=ON, or let torchrun start the ranks"));
#endif
  }
};

World::World(Transport transport, const Links& links, at::Device device, const NcclOptions& nccl)
    : process_(std::make_unique<Process>()) {
  check_usage(transport != Transport::kNccl || device.is_cuda(),
              "--transport nccl carries tensors on GPUs: give --device cuda as well");
  process_->transport = resolve(transport, launched_ranks());
  if (process_->transport == Transport::kMpi) {
    process_->start_mpi();
  } else if (process_->transport == Transport::kStore) {
    process_->join_store();
  } else {
    process_->comm = std::make_unique<SelfCommunicator>();
  }
  if (device.is_cuda()) process_->place_on_gpu(transport, links, nccl);
  if (links.is_on()) {
    const int num_ranks = process_->comm->size();
    check_usage(process_->num_local_ranks == num_ranks,
                "--link simulates a network on one machine, but only ", process_->num_local_ranks,
                " of the ", num_ranks, " ranks are on this one; start all of them here, or leave ",
                "--link out and use the network that is there");
    process_->comm = std::make_unique<PacedCommunicator>(std::move(process_->comm), links);
  }
}

World::World(std::unique_ptr<Communicator> comm, Transport transport)
    : process_(std::make_unique<Process>()) {
  check(comm != nullptr, "a world needs a communicator");
  check(transport != Transport::kAuto, "a world of a given group needs to know its transport");
  process_->transport = transport;
  if (transport == Transport::kThreads) process_->local_rank = comm->rank();
  process_->num_local_ranks = comm->size();
  process_->comm = std::move(comm);
}

World::~World() = default;

Communicator& World::comm() {
  return *process_->comm;
}
void World::decorate(
    const std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>& wrap) {
  process_->comm = wrap(std::move(process_->comm));
  check(process_->comm != nullptr, "a world needs a communicator");
}
Transport World::transport() const {
  return process_->transport;
}
int World::local_rank() const {
  return process_->local_rank;
}
std::vector<int> World::machine_of_rank() {
  const int num_ranks = comm().size();
  if (process_->num_local_ranks == num_ranks) return std::vector<int>(num_ranks, 0);
  const std::vector<int> first_of_rank = members_of(comm(), process_->first_local_rank);
  const std::set machines(first_of_rank.begin(), first_of_rank.end());
  std::vector<int> machine_of_rank;
  for (const int first : first_of_rank) {
    machine_of_rank.push_back(
        static_cast<int>(std::distance(machines.begin(), machines.find(first))));
  }
  return machine_of_rank;
}

void World::abort(int exit_code) {
  std::cout.flush();
  std::fflush(nullptr);
#ifdef LADDER_WITH_MPI
  if (mpi_is_running()) MpiProcess::abort(exit_code);
#endif
  if (process_->store) process_->store->announce_failure();
  std::_Exit(exit_code);
}

}  // namespace ladder
