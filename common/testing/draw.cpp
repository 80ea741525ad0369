#include "common/testing/draw.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr const char* kVariable = "LADDER_JUDGE_SEED";
constexpr std::uint64_t kLargestSeed = 999999;  // that nobody minds typing

std::string seed_of_this_process() {
  static const std::string text = [] {
    const char* const given = std::getenv(kVariable);
    return given != nullptr ? std::string(given)
                            : std::to_string(std::random_device()() % (kLargestSeed + 1));
  }();
  return text;
}

std::uint64_t seed_of_rank_0(Communicator& comm) {
  const std::string text = all_gather_text(seed_of_this_process(), comm)[0];
  std::uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seed);
  check(error == std::errc() && stop == end && seed <= kLargestSeed, kVariable, " is '", text,
        "'; it must be a whole number from 0 to ", kLargestSeed);
  return seed;
}

}  // namespace

Draw::Draw(Communicator& comm)
    : rank_(comm.rank()), seed_(seed_of_rank_0(comm)), generator_(seed_) {}

// std::uniform_int_distribution would not do: its numbers depend on the library.
std::int64_t Draw::number(std::int64_t least, std::int64_t most) {
  return least +
         static_cast<std::int64_t>(generator_() % static_cast<std::uint64_t>(most - least + 1));
}

std::string Draw::announce(const std::string& what) const {
  const std::string name = concat("drawn at random, ", what, " (", kVariable, "=", seed_, ")");
  static std::mutex mutex;  // ranks may be threads
  static std::set<std::string> printed;
  const std::lock_guard lock(mutex);
  if (rank_ == 0 && printed.insert(name).second) {
    std::printf("  %s\n", name.c_str());
    std::fflush(stdout);
  }
  return name;
}

}  // namespace ladder
