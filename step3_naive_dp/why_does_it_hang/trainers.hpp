// Seven trainers, each of which is step 3's loop with one thing more. In the folder's own trainers.cpp
// each has one wrong line; a learner's file has them mended.
//
// Collective: every rank of the group calls the same trainer, with a replica of its own.
#pragma once

#include <array>

#include "step3_naive_dp/why_does_it_hang/replica.hpp"

namespace ladder::hang {

// In every step, rank 0 shows the loss over all ranks' rows.
void trainer_1(Replica& replica, Communicator& comm);

// All ranks start with the parameters of rank 0.
void trainer_2(Replica& replica, Communicator& comm);

// The gradients are summed one tensor after the other, the largest tensor first.
void trainer_3(Replica& replica, Communicator& comm);

// Training stops after the first step whose loss, over all ranks' rows, is above that of the step
// before it.
void trainer_4(Replica& replica, Communicator& comm);

// After every step, each rank compares its parameters with those of the rank before it (rank 0 with
// those of the last), in order to find replicas that have drifted apart.
void trainer_5(Replica& replica, Communicator& comm);

// As trainer 1, but the loss is summed in a group of its own.
void trainer_6(Replica& replica, Communicator& comm);

// After the steps that --eval-every divides, and after the last one, all ranks record the validation
// loss, per target. Of the validation data, rank r of N evaluates microbatches r, r + N, r + 2N, ….
void trainer_7(Replica& replica, Communicator& comm);

using Train = void (*)(Replica& replica, Communicator& comm);
inline constexpr std::array<Train, 7> kTrainers = {trainer_1, trainer_2, trainer_3, trainer_4,
                                                   trainer_5, trainer_6, trainer_7};

}  // namespace ladder::hang
