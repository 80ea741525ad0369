// A test that runs the linked ShardedGpt: the reference, or with -DLADDER_EXERCISE=step7_zero3 the
// learner's.
//
// Once ExerciseIsRight (sharded_gpt_test.cpp) has failed, on all ranks, and has said why, the others
// are skipped. Without the grader's watch a wrong answer might read memory that is gone, or ranks
// might wait for each other for ever.
#pragma once

#include <gtest/gtest.h>

#include "common/core/memory_ledger.hpp"

namespace ladder::step7 {

class AnswerTest : public ::testing::Test {
 protected:
  static inline bool is_answer_wrong_ = false;
  void SetUp() override {
    if (is_answer_wrong_) GTEST_SKIP() << "first make ExerciseIsRight pass";
    install_memory_ledger();
  }
};

}  // namespace ladder::step7
