#include "step2_sharded_data/exercise/grader.hpp"

#include <algorithm>

#include "common/comm/self_communicator.hpp"
#include "common/testing/examination.hpp"

namespace ladder::step2 {
namespace {

using Samples = std::vector<std::int64_t>;

// 0, 1, … n - 1, or the same in an order in which a sample is never at its own place.
Samples sequential(std::int64_t n) {
  return epoch_order(n, 0, 0, SampleOrder::kSequential);
}

Samples shifted(std::int64_t n) {
  Samples order = sequential(n);
  std::rotate(order.begin(), order.begin() + n / 2, order.end());
  return order;
}

// "4, 0, 3": of a long list the first four and the last two.
std::string text_of(const Samples& samples) {
  if (samples.empty()) return "nothing";
  std::string text;
  const std::size_t size = samples.size();
  for (std::size_t i = 0; i < size; ++i) {
    if (size > 8 && i == 4) {
      text += ", …";
      i = size - 2;
    }
    text += concat(i == 0 ? "" : ", ", samples[i]);
  }
  return size > 8 ? concat(text, " (", size, " samples)") : text;
}

// What there is to be shared out.
struct Epoch {
  std::string what;
  Samples order;
  std::int64_t position = 0;
  int num_ranks = 1;
  Tail tail = Tail::kDrop;

  // The definition, without a formula: cut or lengthen what is left until it divides, then deal it
  // out one by one.
  std::vector<Samples> wanted() const {
    Samples left(order.begin() + position, order.end());
    const auto num_over = [&] { return left.size() % static_cast<std::size_t>(num_ranks); };
    if (tail == Tail::kDrop) left.resize(left.size() - num_over());
    for (std::size_t i = 0; num_over() != 0; ++i) left.push_back(order[i % order.size()]);
    std::vector<Samples> shares(static_cast<std::size_t>(num_ranks));
    for (std::size_t i = 0; i < left.size(); ++i) shares[i % shares.size()].push_back(left[i]);
    return shares;
  }
};

class Grade : public Examination {
 public:
  Grade(const SamplesOfRank& attempt, Communicator& comm) : Examination(comm), attempt_(attempt) {}

  void every_nth_sample() {
    deal({"20 samples", sequential(20), 0, 2});
    // The picture in data_shard.hpp.
    deal({"the order 5, 2, 7, 0, 6, 1, 4, 3", {5, 2, 7, 0, 6, 1, 4, 3}, 0, 2});
    deal({"7 samples, one rank alone", shifted(7)});
  }

  // The values of PyTorch's DistributedSampler.
  void tails() {
    deal({"103 samples", sequential(103), 0, 2, Tail::kDrop});
    deal({"103 samples", sequential(103), 0, 2, Tail::kPad});
    deal({"103 samples", sequential(103), 0, 4, Tail::kPad});
  }

  void fewer_samples_than_ranks() {
    deal({"fewer samples than ranks: 3", sequential(3), 0, 8, Tail::kDrop});
    deal({"fewer samples than ranks, so that the order is repeated more than once: 3",
          sequential(3), 0, 8, Tail::kPad});
  }

  void rest_of_an_epoch() {
    deal({"20 samples of which 8 are used up", sequential(20), 8, 3, Tail::kDrop});
    deal({"20 samples of which 13 are used up; the padding starts with the first of all 20",
          sequential(20), 13, 4, Tail::kPad});
    deal({"5 samples of which 5 are used up", shifted(5), 5, 2, Tail::kPad});
    // Half of the 7 that are left: 3. A half of 10 without a half of 3 would be 4.
    deal({"10 samples of which 3 are used up", shifted(10), 3, 2, Tail::kDrop});
  }

  // Stops at the first fault: what the named examples above did not show, one example shows.
  void all_small_epochs() {
    for (std::int64_t n = 1; n <= 9; ++n) {
      for (std::int64_t position = 0; position <= n; ++position) {
        for (int num_ranks = 1; num_ranks <= 5; ++num_ranks) {
          for (const Tail tail : {Tail::kDrop, Tail::kPad}) {
            if (!faults().empty()) return;
            deal({concat(n, " samples of which ", position, " are used up"), shifted(n), position,
                  num_ranks, tail});
          }
        }
      }
    }
  }

  void ranks_that_are_not_there() {
    for (const int rank : {-1, 2}) {
      const std::string what = concat("rank ", rank, " of 2");
      examine(what, [&](Communicator&) {
        expect_error(what + " is not there: samples_of_rank()", {},
                     [&] { attempt_(sequential(4), 0, rank, 2, Tail::kDrop); });
      });
    }
  }

 private:
  void deal(const Epoch& epoch) {
    if (has_thrown_) return;  // and would throw again
    const std::string where = concat(epoch.what, ", over ", epoch.num_ranks, " ranks, the tail ",
                                     epoch.tail == Tail::kDrop ? "dropped" : "padded");
    examine(where, [&](Communicator&) {
      has_thrown_ = true;
      const std::vector<Samples> found = shares(epoch), again = shares(epoch);
      has_thrown_ = false;
      expect_equally_long(where, found);
      const std::vector<Samples> wanted = epoch.wanted();
      if (found == wanted) return expect_samples(where + ", when asked again", again, wanted);
      expect_samples(where, found, wanted);
    });
  }

  std::vector<Samples> shares(const Epoch& epoch) const {
    std::vector<Samples> shares;
    for (int rank = 0; rank < epoch.num_ranks; ++rank) {
      shares.push_back(attempt_(epoch.order, epoch.position, rank, epoch.num_ranks, epoch.tail));
    }
    return shares;
  }

  void expect_equally_long(const std::string& where, const std::vector<Samples>& found) {
    for (std::size_t rank = 1; rank < found.size(); ++rank) {
      if (found[rank].size() == found[0].size()) continue;
      return fault(concat(where, ": rank 0 gets ", found[0].size(), " samples and rank ", rank,
                          " gets ", found[rank].size(), ": one waits for the other forever"));
    }
  }

  // One rank's samples are enough to see it.
  void expect_samples(const std::string& where, const std::vector<Samples>& found,
                      const std::vector<Samples>& wanted) {
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      if (found[rank] == wanted[rank]) continue;
      return fault(concat(where, ": rank ", rank, " gets ", text_of(found[rank]), "; not ",
                          text_of(wanted[rank])));
    }
  }

  const SamplesOfRank& attempt_;
  bool has_thrown_ = false;
};

}  // namespace

std::vector<std::string> grade(const SamplesOfRank& attempt) {
  SelfCommunicator alone;
  Grade grade(attempt, alone);
  grade.every_nth_sample();
  grade.tails();
  grade.fewer_samples_than_ranks();
  grade.rest_of_an_epoch();
  grade.ranks_that_are_not_there();
  grade.all_small_epochs();
  return grade.faults();
}

}  // namespace ladder::step2
