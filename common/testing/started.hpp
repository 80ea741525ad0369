// For tests: operations in flight, and what each must leave behind.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/comm/communicator.hpp"
#include "common/comm/contract/rank_values.hpp"
#include "common/core/check.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {

struct Started {
  std::string what;
  WorkPtr work;
  at::Tensor result, expected;

  void finish() const {
    work->wait();
    EXPECT_TRUE(bits_equal(result, expected)) << what;
  }
};

// An all_reduce; each seed has a length of its own.
inline Started start_sum(Communicator& comm, std::uint64_t seed) {
  const auto numel = static_cast<std::int64_t>(seed * 977 % 20011);
  const at::Tensor values = values_of(comm.rank(), numel, at::kFloat, seed);
  return {concat("all_reduce ", seed), comm.all_reduce(values), values,
          fold_of_all(comm.size(), numel, at::kFloat, seed)};
}

}  // namespace ladder
