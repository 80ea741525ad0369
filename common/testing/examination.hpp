// What the graders of exercises share: an answer is examined check by check, and all ranks come to
// the same verdict.
//
// A check that throws has found a fault, and the next one goes on. Ranks that do not do the same are
// a fault as well, not a hang: each check is given a LockstepCommunicator. If the process dies, its
// last line names the check (current_check.hpp).
//
// Collective: examine(), with the same checks on every rank.
// Lifetime:   `comm` outlives this.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/current_check.hpp"
#include "common/testing/lockstep_communicator.hpp"

namespace ladder {

class Examination {
 public:
  explicit Examination(Communicator& comm) : comm_(comm) {}

  // What is wrong, a line each, the same on every rank. Of each check first what explains the rest:
  // what was thrown, on whichever rank; then where the ranks part; then the other lines, in the
  // order in which they were found, of the first rank that found most.
  const std::vector<std::string>& faults() const { return faults_; }

  // Calls part(comm) with a Watch: LockstepCommunicator, or made from it.
  template <class Watch = LockstepCommunicator, class Part>
  void examine(const std::string& what, Part part) {
    set_current_check(what);
    const std::unique_ptr<Communicator> agreements = comm_.split(0, comm_.rank());
    Watch comm(comm_, *agreements);
    attempt(what, [&] { part(comm); });
    attempt(what, [&] { comm.finish(); });
    conclude();
    set_current_check("");
  }

  // Inside a check, on whichever rank.
  void fault(const std::string& what);
  template <class Value>
  void expect(const std::string& what, const Value& found, const Value& wanted) {
    if constexpr (std::is_floating_point_v<Value>) {
      expect_number(what, found, wanted);
    } else {
      if (found != wanted) fault(concat(what, " is ", found, ", not ", wanted));
    }
  }
  // To the bit. Says how many elements differ, and the first of them. Here and with numbers: if the
  // two are equal up to rounding, what to look for.
  void expect(const std::string& what, const at::Tensor& found, const at::Tensor& wanted);
  // The call must throw a CheckError with all of these words in it.
  void expect_error(const std::string& what, const std::vector<std::string>& words,
                    const std::function<void()>& call);

 protected:
  Communicator& comm_;

 private:
  void attempt(const std::string& what, const std::function<void()>& act);
  void expect_number(const std::string& what, double found, double wanted);
  void conclude();

  // In the check that is running, on this rank.
  std::vector<std::string> thrown_, disagreements_, found_;
  std::vector<std::string> faults_;
};

}  // namespace ladder
