#include "common/comm/launcher_environment.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// A launcher, and the variables that it sets for each rank that it starts.
struct Variables {
  Launcher launcher;
  const char* sign;  // set by this launcher alone
  const char* size;
  const char* rank;
  const char* local_rank;
  const char* local_size;  // null: none
};

// Searched in this order, which asks for the innermost launcher first: srun or mpirun may start one
// torchrun per machine, which starts the ranks, and mpirun may itself run under srun.
//
// Size and rank alone prove little. WORLD_SIZE and RANK may be left over in a user's shell, and an
// allocation of Slurm sets SLURM_NTASKS for processes that srun did not start.
constexpr Variables kLaunchers[] = {
    {Launcher::kTorchrun, "TORCHELASTIC_RUN_ID", "WORLD_SIZE", "RANK", "LOCAL_RANK",
     "LOCAL_WORLD_SIZE"},
    {Launcher::kOpenMpi, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {Launcher::kPmi, "PMI_SIZE", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {Launcher::kSlurm, "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
     "SLURM_LOCALID", nullptr},
};

const char* text_in(const char* variable) {
  const char* const text = std::getenv(variable);
  check_usage(text != nullptr, "the launcher set the number of ranks but no ", variable);
  return text;
}

int number_in(const char* variable) {
  const std::string_view digits(text_in(variable));
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  check_usage(error == std::errc() && end == digits.data() + digits.size() && number >= 0,
              "the environment variable ", variable, " is '", digits,
              "', expected a number set by a launcher");
  return number;
}

const Variables* find_launcher() {
  for (const Variables& variables : kLaunchers) {
    if (std::getenv(variables.sign) != nullptr) return &variables;
  }
  return nullptr;
}

}  // namespace

Launcher launcher() {
  const Variables* const found = find_launcher();
  return found == nullptr ? Launcher::kNone : found->launcher;
}

int launched_ranks() {
  const Variables* const found = find_launcher();
  return found == nullptr ? 1 : number_in(found->size);
}

int launched_rank() {
  const Variables* const found = find_launcher();
  return found == nullptr ? 0 : number_in(found->rank);
}

int launched_local_rank() {
  const Variables* const found = find_launcher();
  if (found == nullptr) return 0;
  // srun --mpi=pmi2 sets PMI's variables, except for this one.
  const bool is_srun = found->launcher == Launcher::kPmi &&
                       std::getenv(found->local_rank) == nullptr &&
                       std::getenv("SLURM_LOCALID") != nullptr;
  return number_in(is_srun ? "SLURM_LOCALID" : found->local_rank);
}

int launched_local_ranks() {
  const Variables* const found = find_launcher();
  const bool is_said =
      found != nullptr && found->local_size != nullptr && std::getenv(found->local_size) != nullptr;
  return is_said ? number_in(found->local_size) : 1;
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

MeetingPoint torchrun_meeting_point() {
  check(launcher() == Launcher::kTorchrun, "torchrun did not start this process");
  const int port = number_in("MASTER_PORT");
  check_usage(port >= 1 && port <= 65535, "the environment variable MASTER_PORT is '", port,
              "', expected a port from 1 to 65535");
  const char* const has_store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  const char* const restarts = "TORCHELASTIC_RESTART_COUNT";
  return {.address = text_in("MASTER_ADDR"),
          .port = port,
          .has_store = has_store != nullptr && std::string_view(has_store) == "True",
          .num_restarts = std::getenv(restarts) == nullptr ? 0 : number_in(restarts)};
}

}  // namespace ladder
