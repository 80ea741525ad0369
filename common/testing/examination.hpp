// What all exercises share: examines an answer check by check, with the same verdict on all ranks.
//
// A check that throws has found a fault, and the next check still runs; that something is "not
// implemented" is said once. Ranks that call different collectives are a fault as well, not a hang,
// because each check gets a LockstepCommunicator. If the process dies, its last line names the check
// (current_check.hpp).
//
// Collective: examine(), with the same checks on every rank.
// Lifetime:   `comm` must outlive this.
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

  // The faults, one per line, the same on every rank. For each check, the lines that explain the
  // rest come first: exceptions on any rank; then where the ranks diverge; then all other lines of
  // the first of the ranks that found most, in the order in which they were found.
  const std::vector<std::string>& faults() const { return faults_; }

  // Calls part(comm) with a Watch: a LockstepCommunicator or a class derived from it.
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

  // For use inside a check, on any rank.
  void fault(const std::string& what);
  template <class Value>
  void expect(const std::string& what, const Value& found, const Value& wanted) {
    if constexpr (std::is_floating_point_v<Value>) {
      expect_number(what, found, wanted);
    } else {
      if (found != wanted) fault(concat(what, " is ", found, ", not ", wanted));
    }
  }
  // Compares to the bit, and reports the first element that differs and how many do. If tensors or
  // numbers are equal up to rounding, the fault says what to look for.
  void expect(const std::string& what, const at::Tensor& found, const at::Tensor& wanted);
  // The call must throw a CheckError whose message contains all of these words.
  void expect_error(const std::string& what, const std::vector<std::string>& words,
                    const std::function<void()>& call);

 protected:
  Communicator& comm_;

 private:
  void attempt(const std::string& what, const std::function<void()>& act);
  void expect_number(const std::string& what, double found, double wanted);
  void conclude();

  // Lines of the running check on this rank.
  std::vector<std::string> thrown_, disagreements_, found_;
  std::vector<std::string> faults_;
};

}  // namespace ladder
