// Linked into every program of GPU tests, whatever its main(): without a usable GPU the program
// ends before the first test, with the exit code that ctest lists as "Skipped". Where there must be
// a GPU, LADDER_REQUIRE_GPU=1 makes that a failure.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/core/cuda_device.hpp"

namespace ladder {
namespace {

bool has_gpu() {
  const std::string problem = cuda_problem();
  if (problem.empty()) return true;
  const bool must = std::getenv("LADDER_REQUIRE_GPU") != nullptr;
  std::fprintf(stderr, "%s: %s\n", must ? "error" : "skipped", problem.c_str());
  std::exit(must ? 1 : 77);
}

[[maybe_unused]] const bool kHasGpu = has_gpu();

}  // namespace
}  // namespace ladder
