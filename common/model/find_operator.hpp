// Looks up, by name, operators that libtorch registers but declares in no header.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>

namespace ladder {

// Returns nothing if this libtorch does not have the operator, has no kernel of it for `key`, or
// has it with another signature: an undeclared operator may change in any version.
template <class Signature>
std::optional<c10::TypedOperatorHandle<Signature>> find_operator(const std::string& name,
                                                                 c10::DispatchKey key) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  if (!found || !found->hasKernelForDispatchKey(key)) return std::nullopt;
  try {
    return found->typed<Signature>();
  } catch (const c10::Error&) {  // thrown for a different signature
    return std::nullopt;
  }
}

}  // namespace ladder
