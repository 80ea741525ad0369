// What lighthouse and workers say about their group: a sentence without its subject, for example
// "has healed from worker 2". Called from several threads, one at a time or not.
#pragma once

#include <functional>
#include <string>
#include <utility>

namespace ladder {

class Log {
 public:
  using Write = std::function<void(const std::string& message)>;

  template <class Function>
  Log(Function write) : write_(std::move(write)) {}  // NOLINT(google-explicit-constructor)
  // Takes what happens in every round, too.
  Log(Write write, Write write_routine)
      : write_(std::move(write)), write_routine_(std::move(write_routine)) {}

  void operator()(const std::string& message) const { write_(message); }
  void routine(const std::string& message) const {
    if (write_routine_) write_routine_(message);
  }

 private:
  Write write_, write_routine_;
};

inline void say_nothing(const std::string& /*message*/) {}

}  // namespace ladder
