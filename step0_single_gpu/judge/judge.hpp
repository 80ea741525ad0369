// Judges the answer of an exercise by what it is for. The step's real trainer, with the answer in
// it, trains on small cases on all ranks, of which the last is drawn at random. Each case must end
// like step 0, which simulates all ranks in one process, to the bit; must have held and sent what
// theory says, to the byte; and must have sent gradients and parameters from where they are, not
// from copies. The ranks may not diverge, and nothing may still be on its way at the end.
//
// So the judge needs no idea of what a learner may do wrong. What no training shows, such as errors
// that must be refused, are small checks in the step's exercise/, which call examine().
//
// Collective: as Examination.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/testing/examination.hpp"
#include "common/train/trainer.hpp"
#include "step0_single_gpu/judge/cases.hpp"

namespace ladder {

// A step's trainer, and what the judge must know of it besides.
struct JudgedTrainer {
  Trainer trainer;
  // False if a library sends the gradients, from buffers of its own (category: communication).
  bool sends_in_place = true;
  // Varies options that only this step has; gets the number of the case, from 0 on. That of the
  // drawn one is cases().size(), and its options.seed is drawn as well.
  std::function<void(TrainOptions& options, int number)> vary = {};
  // True if step 0 runs the answer as well: then it is asked again for every planted answer.
  bool is_in_step_0 = false;
};

class Judge : public Examination {
 public:
  // Installs the memory ledger.
  Judge(JudgedTrainer judged, Communicator& comm);

  // Trains case by case, until there are faults. True if all cases are right.
  bool all_cases_are_right();
  // The first line says which case is wrong, and how many were right before it.
  std::vector<std::string> faults() const;

 private:
  class Watch;
  struct Trained {                     // on this rank
    std::vector<TrainReport> reports;  // two if the run was cut
    std::string folder;
  };

  void judge(const Case& one, const Draw* draw = nullptr);
  Trained train(const TrainOptions& options, bool resumes, Watch& watch);
  void expect_no_divergence(const Trained& trained);
  void compare(const Case& one, bool is_drawn, const TrainOptions& options, const Trained& trained);
  std::string new_folder();

  JudgedTrainer judged_;
  int num_right_ = -1;  // cases, so the number of the one that is judged; none has begun
  std::string what_;    // the name of that one
};

}  // namespace ladder
