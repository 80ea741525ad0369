// Errors. A message names the value that is wrong, the option it came from and the way out.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace ladder {

// Something is wrong with the data, the files or the state of a run (exit code 1).
class CheckError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The command line asks for something that cannot be done (exit code 2).
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The parts, written one after the other as a stream writes them. Of a part that can be called, what
// it returns is written.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  const auto write = [&text](const auto& part) {
    if constexpr (std::is_invocable_v<decltype(part)>) {
      text << part();
    } else {
      text << part;
    }
  };
  (write(parts), ...);
  return text.str();
}

// Throws CheckError with the parts as its message, unless `ok`. The message is put together on
// failure only. The parts themselves are evaluated by every call, as arguments are: one that costs
// anything, or makes sense on failure only, is passed as a function.
//
//   check(num_waiting == 0, "rank ", rank, ": ", [&] { return describe_missing(); });
template <class... Parts>
void check(bool ok, const Parts&... parts) {
  if (!ok) throw CheckError(concat(parts...));
}

// The same for the command line: throws UsageError.
template <class... Parts>
void check_usage(bool ok, const Parts&... parts) {
  if (!ok) throw UsageError(concat(parts...));
}

// What an exercise's stub calls where the learner's code belongs.
[[noreturn]] inline void not_implemented(const std::string& what) {
  throw CheckError("not implemented: " + what);
}

}  // namespace ladder
