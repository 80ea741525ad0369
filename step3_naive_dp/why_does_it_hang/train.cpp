#include "step3_naive_dp/why_does_it_hang/train.hpp"

#include "step3_naive_dp/why_does_it_hang/trainers.hpp"

namespace ladder::hang {

TrainReport train(const TrainOptions& options, World& world) {
  using Train = void (*)(Replica&, Communicator&);
  constexpr Train kTrainers[kNumTrainers] = {trainer_1, trainer_2, trainer_3,
                                             trainer_4, trainer_5, trainer_6};
  Replica replica(options, world.comm());
  kTrainers[options.get<HangOptions>().trainer - 1](replica, world.comm());
  return replica.finish();
}

}  // namespace ladder::hang
