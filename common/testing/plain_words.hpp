// Says in a learner's words what a library has thrown: "vector::reserve" says to nobody what went
// wrong.
#pragma once

#include <exception>
#include <string>

namespace ladder {

// The message of a CheckError or a UsageError as it is. Otherwise a sentence on what such an error
// usually means, and then what the library says. Without the stack trace of a c10::Error.
std::string in_plain_words(const std::exception& error);

}  // namespace ladder
