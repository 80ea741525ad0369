// What all exercises share: examines an answer check by check, with the same verdict on all ranks.
//
// A check that throws has found a fault, and the next check still runs; that something is "not
// implemented" is said once. Ranks that call different collectives are a fault as well, not a hang,
// because each check gets a LockstepCommunicator. If the process dies, its last line names the check
// (current_check.hpp).
//
// An exercise in several files has an examination of each, for another file may not have been written
// yet.
//
// Collective: examine(), with the same checks on every rank.
// Lifetime:   `comm` must outlive this.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/current_check.hpp"
#include "common/testing/lockstep_communicator.hpp"

namespace ladder {

class Examination {
 public:
  explicit Examination(Communicator& comm) : comm_(comm) {}
  // Examines one of several files. part: "part 1"; every fault begins with it, and with what is
  // examined. After a fault, nothing more is examined.
  Examination(Communicator& comm, std::string part, std::string file)
      : comm_(comm), part_(std::move(part)), file_(std::move(file)) {}

  // The faults, one per line, the same on every rank. For each check, the lines that explain the
  // rest come first: exceptions on any rank; then where the ranks diverge; then all other lines of
  // the first of the ranks that found most, in the order in which they were found.
  const std::vector<std::string>& faults() const { return faults_; }

  // Calls part(comm) with a Watch: a LockstepCommunicator or a class derived from it.
  template <class Watch = LockstepCommunicator, class Part>
  void examine(const std::string& what, Part part) {
    if (!part_.empty() && !faults_.empty()) return;
    const std::string name = begin(what);
    const std::unique_ptr<Communicator> agreements = comm_.split(0, comm_.rank());
    Watch comm(comm_, *agreements);
    attempt(name, [&] { part(comm); });
    attempt(name, [&] { comm.finish(); });
    conclude();
    set_current_check("");
  }

  // Examines by a method of the class that is derived from this.
  template <class Checks>
  void examine(const std::string& what, void (Checks::*part)()) {
    examine(what, [&](Communicator&) { (static_cast<Checks&>(*this).*part)(); });
  }
  template <class Checks, class Watch>
  void examine(const std::string& what, void (Checks::*part)(Watch&)) {
    examine<Watch>(what, [&](Watch& comm) { (static_cast<Checks&>(*this).*part)(comm); });
  }

  // Examines nothing after a fault.
  template <class Part>
  void examine_next(const std::string& what, Part part) {
    if (faults_.empty()) examine(what, part);
  }

  // Every fault from here on begins so; for an examination without parts.
  void begin_faults_with(const std::string& text) { beginning_ = text; }
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
  // The bytes of tensors that `act` holds at any moment, on top of those before it. `hint`: what it
  // may be if there are more.
  void expect_takes_at_most(const std::string& who, std::int64_t most, const std::string& hint,
                            const std::function<void()>& act);

 protected:
  // From here on, only the first fault of each check is said: those after it follow from it.
  void say_only_first() { says_only_first_ = true; }

  Communicator& comm_;
  std::string prefix_;  // of the running check's faults

 private:
  std::string begin(const std::string& what);  // returns its name
  void attempt(const std::string& what, const std::function<void()>& act);
  void expect_number(const std::string& what, double found, double wanted);
  void conclude();

  // Lines of the running check on this rank.
  std::vector<std::string> thrown_, disagreements_, found_;
  std::vector<std::string> faults_;
  bool says_only_first_ = false;
  std::string beginning_;  // of every fault
  const std::string part_, file_;
};

// Joins the faults of groups of some of the ranks, which may differ: what the first rank has found
// whose group has found anything, on every rank. Collective over `comm`, the group of all.
std::vector<std::string> faults_of_groups(const std::vector<std::string>& own, Communicator& comm);

// What a lesson has come to, of a long exercise: some of the checks, under a name. (A stage is one of
// step 8's pipeline, and a part of an exercise is one of its files.)
struct Level {
  std::string name;
  std::function<std::vector<std::string>()> faults;  // collective
};

// Judges level after level, until one has faults. These begin with "level 2 of 5, overlap: ".
std::vector<std::string> faults_in_levels(const std::vector<Level>& levels);

}  // namespace ladder
