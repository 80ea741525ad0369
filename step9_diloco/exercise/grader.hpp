// Grades the average over the workers and a round of DiLoCo: the reference, a learner's, or those
// that are known to be wrong.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "step9_diloco/averager.hpp"
#include "step9_diloco/diloco.hpp"

namespace ladder::step9 {

// As GroupAverager's constructor.
using MakeAverager = std::function<std::unique_ptr<Averager>(Communicator& comm)>;

// As Diloco's members. `settle`, `round` and `restore` are given to the learner: they tell what the
// others have left, and continue from there.
struct DilocoAttempt {
  std::function<void()> start_average;
  std::function<bool()> finish_round;
  std::function<void()> settle;
  std::function<Diloco::Round()> round;
  std::function<void(const Diloco::Round&)> restore;
  std::function<at::Tensor()> velocity;
};
// Of a Diloco, or of anything with these members. The functions keep it alive.
template <class SomeDiloco>
DilocoAttempt attempt_of(const std::shared_ptr<SomeDiloco>& diloco) {
  return {[diloco] { diloco->start_average(); },
          [diloco] { return diloco->finish_round(); },
          [diloco] { diloco->settle(); },
          [diloco] { return diloco->round(); },
          [diloco](const Diloco::Round& round) { diloco->restore(round); },
          [diloco] { return diloco->velocity(); }};
}
// As Diloco's constructor.
using MakeDiloco = std::function<DilocoAttempt(FlatModel& model, FlatModel& global,
                                               const DilocoOptions& options, Averager& averager)>;

// Say what is wrong, with the value found and the value wanted; nothing if all is right. Each line
// begins with its part, which stops after the first check with a fault.
//
// Collective: the same lines on every rank. Ranks that do not do the same are a fault like any
// other,
//             not a hang.
std::vector<std::string> grade_averager(const MakeAverager& attempt, Communicator& comm);  // part 1
// Part 2: with an averager that does not come from part 1.
std::vector<std::string> grade_diloco(const MakeDiloco& attempt, Communicator& comm);

// Both parts. If only one has faults, the last line says that the other is right.
std::vector<std::string> grade(const MakeAverager& averager, const MakeDiloco& diloco,
                               Communicator& comm);

}  // namespace ladder::step9
