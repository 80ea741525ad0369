// For tests: what at::empty() returns is full of NaN, for as long as this lives. Fresh memory is
// often zero by chance, which would hide that somebody forgot to write there.
#pragma once

#include <ATen/Context.h>

namespace ladder::step6 {

class UninitializedIsNan {
 public:
  UninitializedIsNan() { at::globalContext().setDeterministicAlgorithms(true, false); }
  ~UninitializedIsNan() { at::globalContext().setDeterministicAlgorithms(false, false); }
  UninitializedIsNan(const UninitializedIsNan&) = delete;
  UninitializedIsNan& operator=(const UninitializedIsNan&) = delete;
};

}  // namespace ladder::step6
