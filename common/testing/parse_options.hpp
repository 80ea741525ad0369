// The command line and options of a trainer, for tests.
#pragma once

#include <vector>

#include "common/testing/expect_throws.hpp"
#include "common/train/command_line.hpp"
#include "common/train/start.hpp"

namespace ladder {

// What these words say, the program's name left out.
inline CommandLine parse_words(const Theory& theory, std::vector<const char*> words) {
  words.insert(words.begin(), "program");
  CommandLine line = parse_command_line(static_cast<int>(words.size()), words.data(), theory);
  finalize(line);
  return line;
}

// Options of a step that mean this for its batches.
struct GivenShape {
  BatchShape given;
  void shape_batch(BatchShape& batch) const { batch = given; }
};

// Expects a UsageError whose message has all these parts.
inline void expect_refused(const Theory& theory, const std::vector<const char*>& words,
                           const std::vector<std::string>& parts,
                           const std::source_location& where = std::source_location::current()) {
  expect_throws<UsageError>([&] { parse_words(theory, words); }, parts, where);
}

}  // namespace ladder
