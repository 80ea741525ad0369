// What a GPT-2 takes by the formulas of its papers. The cost cards and the trainers share their plans
// (layout_of, plan_buckets, …): a plan that pads twice as much, or sends a range twice, changes both
// alike. These share nothing with them but the model's options.
#pragma once

#include "common/comm/communicator.hpp"
#include "common/model/gpt.hpp"
#include "common/train/report.hpp"

namespace ladder {

// Holds what a run has found against Ψ parameters of e = 4 bytes, on N ranks:
//
//   held, by a rank     e·Ψ of parameters and of gradients, 2e·Ψ of AdamW's moments; where ZeRO cuts them,
//                       1/N of it, to the byte with the padding: tensors to 64 bytes, units to N·4 KiB
//   sent, by all ranks  2e·Ψ·(N − 1) a step at least, as any all-reduce must; at most that of the padded
//                       buffers, and a few numbers. Step 6 sends half of it anew for each microbatch,
//                       step 7 all of it, and the blocks' parameters a second time
//
// Collective: every rank calls it with its own report.
void expect_closed_form(const GptOptions& model, const std::string& step, const TrainReport& report,
                        Communicator& comm);

}  // namespace ladder
