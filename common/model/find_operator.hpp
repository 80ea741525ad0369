// Operators that libtorch registers and no header declares, looked up by name.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>

namespace ladder {

// Nothing where this libtorch has no such operator, none for `key`, or one of another signature:
// what is in no header may change with any version.
template <class Signature>
std::optional<c10::TypedOperatorHandle<Signature>> find_operator(const std::string& name,
                                                                 c10::DispatchKey key) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  if (!found || !found->hasKernelForDispatchKey(key)) return std::nullopt;
  try {
    return found->typed<Signature>();
  } catch (const c10::Error&) {  // thrown for a signature that differs
    return std::nullopt;
  }
}

}  // namespace ladder
