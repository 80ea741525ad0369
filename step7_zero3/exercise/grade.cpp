// Is the linked answer right: the reference, or with -DLADDER_EXERCISE=step7_zero3 the learner's?
#include <memory>

#include "common/testing/grade_main.hpp"
#include "step7_zero3/exercise/grader.hpp"
#include "step7_zero3/sharded_model.hpp"

namespace ladder {

std::vector<std::string> grade_linked(Communicator& comm) {
  const auto linked = [](const ModelBuilder& build, int prefetch, Communicator& watched) {
    const auto model = std::make_shared<ShardedModel>(build, prefetch, watched);
    return step7::ModelAttempt{[model](const at::Tensor& tokens) { return model->forward(tokens); },
                               model->leaves(), model->plan()};
  };
  return step7::grade(linked, comm);
}

}  // namespace ladder
