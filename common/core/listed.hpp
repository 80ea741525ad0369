// A list for messages.
#pragma once

#include <string>

#include "common/core/check.hpp"

namespace ladder {

// "3, 1, 2"
template <class Values>
std::string listed(const Values& values) {
  std::string text;
  for (const auto& value : values) text += concat(text.empty() ? "" : ", ", value);
  return text;
}

}  // namespace ladder
