// Says in a learner's words what a library has thrown: "vector::reserve" says to nobody what went
// wrong.
#pragma once

#include <exception>
#include <string>

#include "common/core/check.hpp"

namespace ladder {

// The message of a CheckError or a UsageError as it is. Otherwise a sentence on what such an error
// usually means, and then what the library says. Without the stack trace of a c10::Error.
std::string in_plain_words(const std::exception& error);

// Calls act(). What libraries throw in it becomes a CheckError with such a message: for threads,
// whose errors are passed on without their type.
template <class Act>
void throw_in_plain_words(const Act& act) {
  try {
    act();
  } catch (const CheckError&) {
    throw;
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {
    throw CheckError(in_plain_words(error));
  }
}

}  // namespace ladder
