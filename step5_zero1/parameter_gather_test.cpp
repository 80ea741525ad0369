// On 1, 2, 3 and 4 ranks: when a layer runs, and what it runs with. That a trainer's parameters are
// those of one process: parity_ladder_test.
#include "step5_zero1/parameter_gather.hpp"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/testing/rank_test.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step5_zero1/exercise/hostile_model.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;

// A model whose layers note, each time they run, how many gathers have been waited for, and whether
// their own unit is whole.
class ParameterGatherTest : public RankTest {
 protected:
  ParameterGatherTest() { comm_of_test_.set_network(Network::kSlow); }

  Model noting_model() {
    Model model;
    for (const FlatUnit& unit : flat_.layout().units) {
      const at::Tensor values = flat_.params().narrow(0, unit.start, unit.numel);
      model.layers.push_back({{unit.name, {}}, [=, this](const at::Tensor& input) {
                                waited_for_.push_back(comm_of_test_.recording().num_waited_for);
                                are_whole_.push_back(is_whole(values));
                                return input;
                              }});
    }
    return model;
  }

  // Every rank writes its number, and the round, into its slice of each unit, as an update would.
  void update() {
    ++round_;
    for (const FlatUnit& unit : flat_.layout().units) {
      const std::int64_t numel = unit.numel / size_;
      flat_.params().narrow(0, unit.start, unit.numel).fill_(-1);
      flat_.params().narrow(0, unit.start + rank_ * numel, numel).fill_(10 * round_ + rank_);
    }
  }

  bool is_whole(const at::Tensor& unit) const {
    const std::int64_t numel = unit.numel() / size_;
    for (int rank = 0; rank < size_; ++rank) {
      const at::Tensor slice = unit.narrow(0, rank * numel, numel);
      if (!slice.eq(10 * round_ + rank).all().item<bool>()) return false;
    }
    return true;
  }

  void forward() {
    waited_for_.clear(), are_whole_.clear();
    model_.forward(at::zeros({1}));
  }

  FlatModel flat_{step5::hostile_units(), shard_multiple(size_)};
  Model model_ = noting_model();
  std::unique_ptr<Communicator> agreements_ = comm_.split(0, rank_);
  RecordingCommunicator comm_of_test_{comm_, *agreements_};
  ParameterGather gather_{flat_, model_, comm_of_test_};
  int round_ = 0;
  std::vector<int> waited_for_;
  std::vector<bool> are_whole_;
};

// Of five units, the third one is frozen, and the fourth is empty.
TEST_ON_RANKS(ParameterGatherTest, EachLayerWaitsForItsOwnUnitOnly) {
  for (int step = 0; step < 2; ++step) {
    update();
    comm_of_test_.forget();
    gather_.start();
    forward();
    EXPECT_THAT(waited_for_, ElementsAre(1, 2, 2, 2, 3));
    EXPECT_THAT(are_whole_, ElementsAre(true, true, size_ == 1, true, true));
    forward();  // of another microbatch
    EXPECT_THAT(waited_for_, ElementsAre(3, 3, 3, 3, 3));
  }
  EXPECT_EQ(comm_of_test_.recording().num_dropped, 0);
}

TEST_ON_RANKS(ParameterGatherTest, CompleteLeavesNothingOnItsWay) {
  update();
  gather_.complete();
  EXPECT_EQ(comm_of_test_.recording().num_on_their_way(), 0);
  forward();
  EXPECT_THAT(are_whole_, ElementsAre(true, true, size_ == 1, true, true));
}

// A rank that waits only for the first unit would leave the others where they are.
TEST_ON_RANKS(ParameterGatherTest, WaitingLetsTheOthersMakeProgress) {
  update();
  gather_.start();
  forward();
  EXPECT_EQ(comm_of_test_.recording().num_tests,
            2 + 1 + 1 + 1);  // of what is left after each layer
}

TEST_ON_RANKS(ParameterGatherTest, ForwardWithoutAGatherRunsAsItIs) {
  forward();
  EXPECT_THAT(waited_for_, ElementsAre(0, 0, 0, 0, 0));
}

}  // namespace
}  // namespace ladder
