#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/contract/refused_operations.hpp"
#include "common/core/check.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

class Errors : public RankTest {
 protected:
  template <class Call>
  void expect_error(Call call, const std::string& op, const std::string& part) const {
    const std::string start = concat("rank ", rank_, " of ", size_, ": ", op, ": ");
    EXPECT_THAT(call, ThrowsMessage<CheckError>(AllOf(StartsWith(start), HasSubstr(part))));
  }
};

TEST_ON_RANKS(Errors, NameRankOperationAndValues) {
  const Traffic before = comm_.traffic();
  for (const RefusedOperation& refused : refused_operations(rank_, size_)) {
    expect_error([&] { comm_.start(refused.operation); }, to_string(refused.operation.kind),
                 refused.why);
  }
  EXPECT_EQ(comm_.traffic(), before) << "what is refused is not counted";
}

TEST_ON_RANKS(Errors, MessagesOfAnotherLengthAreFound) {
  if (size_ == 1) return;
  for (const std::int64_t sent_numel : {1, 3, 5000, 100000}) {
    if (rank_ == 0) comm_.send(at::ones({sent_numel}), 1, 0)->wait();
    if (rank_ == 1) {
      const at::Tensor memory = at::zeros({200000});
      const WorkPtr work = comm_.recv(memory.narrow(0, 0, 2), 0, 0);
      expect_error([&] { work->wait(); }, "recv",
                   concat("rank 0 sent ", sent_numel * 4, " bytes where 8 were expected"));
      EXPECT_TRUE(bits_equal(memory, at::zeros({200000}))) << "no memory is overrun";
    }
    comm_.barrier();
  }
}

TEST_ON_RANKS(Errors, RanksThatDisagreeOnTheSizeAreFound) {
  if (size_ == 1) return;
  const auto comm = comm_.split(0, 0);
  const at::Tensor tensor = at::ones({rank_ == 0 ? 8 : 6});
  const WorkPtr work = comm->broadcast(tensor, 0);
  if (rank_ == 0) {
    EXPECT_NO_THROW(work->wait());
  } else {
    expect_error([&] { work->wait(); }, "broadcast", "must pass the same dtype and numel");
  }
  comm_.barrier();
}

}  // namespace
}  // namespace ladder
