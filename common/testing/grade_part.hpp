// For the grader of an exercise in several files: one of them. Another one may not have been
// written yet.
#pragma once

#include <string>

#include "common/testing/examination.hpp"

namespace ladder {

class GradePart : public Examination {
 protected:
  // name: "part 1", the beginning of every line.
  GradePart(std::string name, std::string file, Communicator& comm)
      : Examination(comm), name_(std::move(name)), file_(std::move(file)) {}

  // Does nothing after a fault. Calls part(comm) with a Watch. `what`: in the line about an
  // exception.
  template <class Watch = LockstepCommunicator, class Part>
  void examine_part(const std::string& what, Part part) {
    if (!faults().empty()) return;
    examine<Watch>(concat(name_, ", ", what), [&](Watch& comm) {
      try {
        part(comm);
      } catch (const CheckError& error) {
        const std::string message = error.what();
        if (!message.starts_with("not implemented")) throw;
        fault(concat(name_, ", ", file_, ", is not complete yet: ", message));
      }
    });
  }

  const std::string name_;

 private:
  const std::string file_;
};

}  // namespace ladder
