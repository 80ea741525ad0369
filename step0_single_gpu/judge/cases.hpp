// What an answer is judged on: small trainings that together show what the covering set of the
// parity ladder shows. The smallest one comes first.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/testing/draw.hpp"
#include "common/train/options/options.hpp"

namespace ladder {

struct Case {
  std::string name;  // "three microbatches, tied embeddings"
  std::function<void(TrainOptions&)> change;
  bool resumes = false;  // the run is cut in two, and goes on from its checkpoint
};

const std::vector<Case>& cases();

// One more, drawn at random: with more microbatches than those above, and other sizes.
Case drawn_case(Draw& draw);
// What of it one may want to read: "2 steps of 7 microbatches of 3 rows, …".
std::string shape_of(const TrainOptions& options);

// Files that trainings read, in this folder.
struct CaseTexts {
  explicit CaseTexts(const std::string& folder);
  std::string windows;    // .txt
  std::string documents;  // .jsonl, so few that an epoch ends, with fewer rows, within some cases
};

// These are not finalized: a step may change its own options.
TrainOptions options_of(const Case& one, const CaseTexts& texts);

}  // namespace ladder
