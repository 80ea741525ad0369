#include "common/model/attention.hpp"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace ladder {
namespace {

// The CPU has two of them.
TEST(AttentionBackend, IsWhatLibtorchTakes) {
  const ModelOptions model;
  EXPECT_EQ(attention_backend(model, at::kCPU), "flash");
  at::globalContext().setSDPUseFlash(false);
  EXPECT_EQ(attention_backend(model, at::kCPU), "math");
  at::globalContext().setSDPUseFlash(true);
}

}  // namespace
}  // namespace ladder
