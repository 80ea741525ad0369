// One rank of a group of any size, without the others: a simulated world.
//
// The rank runs its real code in one process. Each operation checks its arguments, counts what it
// sends, and is answered as if every other rank held what this one holds:
//
//   all_reduce, reduce_scatter   its own values, times size()
//   all_gather                   its own shard in every slot
//   broadcast                    what the tensor holds already
//   recv                         zeros
//
// So plans, bytes, messages and memory are those of this rank in a real run. Values are not, and
// what is trained on them means nothing.
//
// Time is simulated, too. Computing takes as long as this rank's thread has the CPU, so that other
// programs do not slow it down. An operation occupies the links (paced_communicator.hpp) as long as
// on the rank that sends most, after those that were started before it; a message that is received
// takes its own time from the start of recv. wait() does not sleep: it moves the rank's clock to the
// end of the operation. So what is computed meanwhile hides communication as in a real run. A link
// that is off takes no time.
#pragma once

#include <memory>

#include "common/comm/communicator.hpp"
#include "common/comm/link.hpp"

namespace ladder {

class SimulatedClock;

class SimulatedCommunicator final : public Communicator {
 public:
  // Throws CheckError unless 0 <= rank < size.
  SimulatedCommunicator(int rank, int size, const Links& links = {}, Machines machines = {});

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  WorkPtr start(const Operation& operation) override;
  // Throws CheckError: there is nobody to ask for the other ranks' colors. split_by() needs nobody.
  std::unique_ptr<Communicator> split(int color, int key) override;
  std::unique_ptr<Communicator> split_by(const ColorOfRank& color_of) override;
  Traffic traffic() const override;
  Machines machines() const override { return machines_; }
  bool runs_in_order(const at::Tensor& /*tensor*/) const override { return true; }
  std::optional<double> simulated_wait_s() const override;

 private:
  SimulatedCommunicator(int rank, int size, Machines machines,
                        std::shared_ptr<SimulatedClock> clock);
  LinksUse sent_by_slowest(const Operation& operation) const;

  int rank_, size_;
  Machines machines_;
  std::shared_ptr<SimulatedClock> clock_;  // with the meter; shared by split groups
};

}  // namespace ladder
