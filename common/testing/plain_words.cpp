#include "common/testing/plain_words.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <regex>
#include <stdexcept>
#include <system_error>
#include <variant>
#include <vector>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// If it is about two types, it says first which of them meet: libtorch has a different sentence for
// each operation.
std::string types_that_meet(const std::string& message) {
  static const std::map<std::string, std::string> names = {
      {"BFloat16", "bf16"}, {"Half", "fp16"},     {"float", "fp32"},   {"Float", "fp32"},
      {"double", "double"}, {"Double", "double"}, {"Long", "integers"}};
  static const std::regex type("\\b(BFloat16|Half|[Ff]loat|[Dd]ouble|Long)\\b");
  std::vector<std::string> types;
  for (std::sregex_iterator at(message.begin(), message.end(), type), end; at != end; ++at) {
    const std::string& name = names.at((*at)[1]);
    if (std::count(types.begin(), types.end(), name) == 0) types.push_back(name);
  }
  if (types.size() != 2) return "";
  return concat("a tensor in ", types[0], " meets one in ", types[1],
                " where libtorch converts neither; convert one with to(), or copy_() into it. ");
}

std::string meaning_of(const c10::Error& error) {
  const std::string message = error.what_without_backtrace();
  const auto says = [&](const char* words) { return message.find(words) != std::string::npos; };
  if (says("setStorage"))
    return "a view reaches beyond the memory that it is a view of; are its shape, its start or its "
           "type too large? ";
  if (says("undefined Tensor") || says("undefined tensor") || says("UndefinedTensorImpl"))
    return "a tensor without a value is used: one that was never assigned, or the .grad of a "
           "parameter that is frozen or took no part in backward. ";
  return types_that_meet(message);
}

// What each kind of the standard library's exceptions usually means; the special ones first.
template <class Error>
bool is_a(const std::exception& error) {
  return dynamic_cast<const Error*>(&error) != nullptr;
}
const char* meaning_of(const std::exception& error) {
  if (is_a<std::length_error>(error))
    return "a container is to hold more elements than any can: is their number negative, or was it "
           "never assigned?";
  if (is_a<std::out_of_range>(error))
    return "an element is asked for that the container does not have: is the index too large, or "
           "the key unknown?";
  if (is_a<std::bad_alloc>(error))
    return "more memory is asked for than there is: is a size negative, or was it never assigned?";
  if (is_a<std::bad_function_call>(error)) return "a std::function is called that holds none";
  if (is_a<std::bad_optional_access>(error)) return "a std::optional is read that holds no value";
  if (is_a<std::bad_variant_access>(error))
    return "a std::variant is read as a type that it does not hold";
  if (is_a<std::invalid_argument>(error))
    return "a function of the standard library gets an argument that it cannot use";
  if (is_a<std::system_error>(error)) return "the operating system refuses something";
  return "the code throws an exception of its own; an error here is a CheckError, which check() "
         "throws";
}

}  // namespace

std::string in_plain_words(const std::exception& error) {
  if (is_a<CheckError>(error) || is_a<UsageError>(error)) return error.what();
  if (const auto* of_libtorch = dynamic_cast<const c10::Error*>(&error)) {
    return concat(meaning_of(*of_libtorch),
                  "libtorch says: ", of_libtorch->what_without_backtrace());
  }
  return concat(meaning_of(error), " (it says: ", error.what(), ")");
}

}  // namespace ladder
