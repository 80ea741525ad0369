#include "step3_naive_dp/why_does_it_hang/train.hpp"

namespace ladder::hang {

TrainReport train(const TrainOptions& options, Communicator& comm) {
  Replica replica(options, comm);
  kTrainers.at(static_cast<std::size_t>(options.get<HangOptions>().trainer - 1))(replica, comm);
  return replica.finish();
}

}  // namespace ladder::hang
