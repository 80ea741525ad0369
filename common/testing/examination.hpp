// What the graders of exercises share: an answer is examined part by part, and all ranks come to
// the same verdict.
//
// A part that throws has found a fault, and the next part goes on. Ranks that do not do the same
// are a fault as well, not a hang: each part is given a LockstepCommunicator.
//
// Collective: examine(), with the same parts on every rank.
// Lifetime:   `comm` outlives this.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/lockstep_communicator.hpp"

namespace ladder {

class Examination {
 public:
  explicit Examination(Communicator& comm) : comm_(comm) {}

  // What is wrong, a line each, the same on every rank: of each part the lines of the rank that
  // found most, the first of these.
  const std::vector<std::string>& faults() const { return faults_; }

  // Calls part(comm) with a Watch: LockstepCommunicator, or made from it.
  template <class Watch = LockstepCommunicator, class Part>
  void examine(const std::string& what, Part part) {
    const std::unique_ptr<Communicator> agreements = comm_.split(0, comm_.rank());
    Watch comm(comm_, *agreements);
    attempt(what, [&] { part(comm); });
    attempt(what, [&] { comm.finish(); });
    conclude();
  }

  // Inside a part, on whichever rank.
  void fault(const std::string& what);
  template <class Value>
  void expect(const std::string& what, const Value& found, const Value& wanted) {
    if (found != wanted) fault(concat(what, " is ", found, ", not ", wanted));
  }
  // To the bit. Says how many elements differ, and the first of them.
  void expect(const std::string& what, const at::Tensor& found, const at::Tensor& wanted);
  // The call must throw a CheckError with all of these words in it.
  void expect_error(const std::string& what, const std::vector<std::string>& words,
                    const std::function<void()>& call);

 protected:
  Communicator& comm_;

 private:
  void attempt(const std::string& what, const std::function<void()>& act);
  void conclude();

  std::vector<std::string> found_;  // in the part that is examined, on this rank
  std::vector<std::string> faults_;
};

}  // namespace ladder
