// For exercises in several files: the checks of one of them. Another one may not have been
// written yet.
#pragma once

#include <string>
#include <vector>

#include "common/testing/examination.hpp"

namespace ladder {

// The faults of two parts that are judged separately. If only one part has any, the last line says
// that the other is right.
inline std::vector<std::string> faults_of_both(const std::vector<std::string>& part_1,
                                               const std::vector<std::string>& part_2) {
  std::vector<std::string> faults = part_1;
  faults.insert(faults.end(), part_2.begin(), part_2.end());
  if (part_1.empty() != part_2.empty())
    faults.push_back(part_1.empty() ? "part 1 is right" : "part 2 is right");
  return faults;
}

class PartChecks : public Examination {
 protected:
  // name: "part 1", the beginning of every line.
  PartChecks(std::string name, std::string file, Communicator& comm)
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
