#include <charconv>
#include <cstdlib>
#include <string_view>

#include "common/comm/world.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

struct Launcher {
  const char* size;
  const char* rank;
};

// Searched in this order, because mpirun may itself run under srun. SLURM_NTASKS proves nothing: an
// allocation sets it for processes that srun did not start. Only srun sets SLURM_STEP_NUM_TASKS.
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"PMI_SIZE", "PMI_RANK"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
};

int number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  check_usage(text != nullptr, "the launcher set the number of ranks but no ", variable);
  const std::string_view digits(text);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  check_usage(error == std::errc() && end == digits.data() + digits.size() && number >= 0,
              "the environment variable ", variable, " is '", digits,
              "', expected a number set by a launcher");
  return number;
}

const Launcher* find_launcher() {
  for (const Launcher& launcher : kLaunchers) {
    if (std::getenv(launcher.size) != nullptr) return &launcher;
  }
  return nullptr;
}

}  // namespace

int launched_ranks() {
  const Launcher* const launcher = find_launcher();
  return launcher == nullptr ? 1 : number_in(launcher->size);
}

int launched_rank() {
  const Launcher* const launcher = find_launcher();
  return launcher == nullptr ? 0 : number_in(launcher->rank);
}

}  // namespace ladder
