// What lighthouse and workers say about their group: a sentence without its subject, for example
// "has healed from worker 2". Called from several threads, one at a time or not.
#pragma once

#include <functional>
#include <string>

namespace ladder {

using Log = std::function<void(const std::string& message)>;

inline void say_nothing(const std::string& /*message*/) {}

}  // namespace ladder
