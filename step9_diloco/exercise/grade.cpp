// Is the linked answer right: the reference, or with -DLADDER_EXERCISE=step9_diloco the learner's?
#include <memory>

#include "common/testing/grade_main.hpp"
#include "step9_diloco/exercise/grader.hpp"

namespace ladder {

std::vector<std::string> grade_linked(Communicator& comm) {
  const step9::MakeAverager make_averager = [](Communicator& workers) {
    return std::make_unique<GroupAverager>(workers);
  };
  const step9::MakeDiloco make_diloco = [](FlatModel& model, FlatModel& global,
                                           const DilocoOptions& options, Averager& averager) {
    return step9::attempt_of(std::make_shared<Diloco>(model, global, options, averager));
  };
  return step9::grade(make_averager, make_diloco, comm);
}

}  // namespace ladder
