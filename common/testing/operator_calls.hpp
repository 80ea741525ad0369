// How often each of libtorch's operators is called, as the hooks of its profiler see it.
#pragma once

#include <ATen/record_function.h>

#include <map>
#include <memory>
#include <string>

namespace ladder {

using OperatorCalls = std::map<std::string, int>;  // by the operator's name

// The calls of this thread while `body` runs.
template <class Body>
OperatorCalls operator_calls_of(const Body& body) {
  static thread_local OperatorCalls* calls;
  OperatorCalls found;
  calls = &found;
  const at::CallbackHandle listener = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        ++(*calls)[function.name()];
        return nullptr;
      }));
  body();
  at::removeCallback(listener);
  return found;
}

}  // namespace ladder
