// Wrong answers of an exercise, planted into its solution. scripts/plant makes a source in which
// each function asks which answer it is to play; the others behave like the solution.
//
// Global, because code that is judged is called by a trainer that knows nothing of it. One process
// plays one answer at a time.
#pragma once

#include <string>
#include <vector>

namespace ladder {

struct PlantedAnswer {
  std::string name;
  int num_ranks;       // that show the mistake
  std::string reason;  // part of a line of the judge's
};

// The answer that plays, counted from 1 over all sources; 0 is the solution.
int planted_answer();
void play_answer(int number);

// All that the linked sources have; number 1 is the first.
std::vector<PlantedAnswer>& planted_answers();
// For generated code: adds a source's answers, and returns the number of its first.
int add_planted_answers(const std::vector<PlantedAnswer>& answers);

}  // namespace ladder
