// Errors. A message names the wrong value, the option that it came from, and the way out.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace ladder {

// The data, the files or the state of a run are wrong (exit code 1).
class CheckError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The command line asks for something that cannot be done (exit code 2).
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Concatenates the parts as a stream would write them. A callable part is called, and its result is
// written.
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

// Throws CheckError with the parts as its message, unless `ok`. The message is built only on
// failure, but the parts, like all arguments, are evaluated in every call. Pass a part as a
// function if it is costly or makes sense only on failure.
//
//   check(num_waiting == 0, "rank ", rank, ": ", [&] { return describe_missing(); });
template <class... Parts>
void check(bool ok, const Parts&... parts) {
  if (!ok) throw CheckError(concat(parts...));
}

// Like check(), but for the command line: throws UsageError.
template <class... Parts>
void check_usage(bool ok, const Parts&... parts) {
  if (!ok) throw UsageError(concat(parts...));
}

// Called by the stubs of the exercises where the learner's code belongs.
[[noreturn]] inline void not_implemented(const std::string& what) {
  throw CheckError("not implemented: " + what);
}

}  // namespace ladder
