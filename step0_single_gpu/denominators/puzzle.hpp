// Five runs, each right or wrong: their reports, and grades for answers about them.
//
// Each report holds the same training four times, in four cuts of the same rows, so it can be
// judged alone. Every report has data and initial weights of its own. SOLUTION.md explains how to
// find the mistakes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "step0_single_gpu/denominators/laboratory.hpp"

namespace ladder::lab {

inline constexpr std::string_view kRuns = "abcde";

// What the runs of the puzzle with this seed do. A mistake may occur several times, or never.
std::vector<Mistake> hidden_mistakes(std::uint64_t seed);

// The report of one run, as JSON, without the name of its mistake. Numbers have six digits. Trains
// four times.
std::string puzzle_report(char run, Mistake mistake, std::uint64_t seed);

// Grades a text of lines such as "a: right"; '#' starts a comment. Returns a line for each fault;
// nothing if the text says of every run what it does.
std::vector<std::string> grade_answers(const std::string& text, std::uint64_t seed);

}  // namespace ladder::lab
