// Exercise of step 9, part 1: the average over the workers, while they go on training.
//
// Write the two bodies as step9_diloco/averager.hpp describes them, then run:
//   ./ladder exercise step9_diloco
// Part 2 is in diloco.cpp.
#include "step9_diloco/averager.hpp"

#include <utility>

#include "common/core/check.hpp"

namespace ladder {

void GroupAverager::start(at::Tensor values) {
  // One collective is enough. Which one, and when should this worker wait for it? finish() needs
  // both the values and the Work: values_ and sum_ are for them.
  static_cast<void>(comm_);
  static_cast<void>(values);
  not_implemented("step9_diloco: GroupAverager::start()");
}

std::optional<int> GroupAverager::finish() {
  // From when on may the values be divided? And what would still be in memory when all this is over?
  not_implemented("step9_diloco: GroupAverager::finish()");
}

}  // namespace ladder
