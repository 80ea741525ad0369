// What a model needs according to the papers' formulas. The cost cards and the trainers share their
// plans (layout_of, plan_buckets, …), so a plan that pads twice as much, or sends a range twice,
// would change both. These formulas share only the model's options with them.
#pragma once

#include "common/comm/communicator.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/report.hpp"

namespace ladder {

// Compares a run's report with Ψ parameters of e = 4 bytes, on N ranks:
//
//   held, by a rank     e·Ψ for parameters and for gradients, 2e·Ψ for AdamW's moments; 1/N of it
//                       if ZeRO cuts them; to the byte, padding tensors to 64 B, units to N·4 KiB
//   sent, by all ranks  per step at least 2e·Ψ·(N − 1), as in any all-reduce; at most that of the
//                       padded buffers, plus a few numbers. Per microbatch, step 6 sends half of it
//                       again, step 7 all of it, and the blocks' parameters a second time
//
// Step 9 holds another 4 bytes per parameter of each global one and its outer momentum, and sends
// what step 3 does once in sync_every steps. For step 8, on p stages and N replicas, and for windows
// (rows of T tokens, all of them full):
//
//   held, by the stages of a replica   together what a single process holds; with a tied embedding on
//                                      two stages, that of V·C parameters twice
//   sent between stages, by all ranks  2·e·T·C bytes per row and boundary between chunks, in two
//                                      messages per microbatch
//
// Collective: every rank calls it with its own report.
void expect_closed_form(const TrainOptions& options, const TrainReport& report, Communicator& comm);

}  // namespace ladder
