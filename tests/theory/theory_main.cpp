// --dry-run N --json of any trainer, without libtorch:
//
//   theory STEP --dry-run 4 --json --model llama
//
// The words are the trainer's own, and so are the answer and the message if they are wrong. Tokens are
// bytes unless --vocab-size says how many there are: no file is opened but that of --config.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "cmake/theories.hpp"
#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/train/command_line.hpp"
#include "common/train/dry_run.hpp"
#include "common/train/finalize.hpp"

namespace ladder {
namespace {

std::string answer(int argc, const char* const* argv) {
  check_usage(argc > 1, "name a step or chapter, and give the words of its trainer");
  const std::vector<Theory> all = theories();
  const auto theory = std::ranges::find(all, argv[1], &Theory::step);
  check_usage(theory != all.end(), "'", argv[1], "' is no step or chapter that trains");
  CommandLine line = parse_command_line(argc - 1, argv + 1, *theory);
  check_usage(line.dry_run_ranks > 0 && line.is_json, "add --dry-run RANKS --json");
  finalize(line.options, {});
  return to_text(dry_run_json(line.options, *theory, line.dry_run_ranks));
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  try {
    std::printf("%s\n", ladder::answer(argc, argv).c_str());
    return 0;
  } catch (const ladder::UsageError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
