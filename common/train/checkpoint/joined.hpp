// A checkpoint stores whole tensors, also of a model whose layers are cut into parts.
#pragma once

#include <map>
#include <string>

#include "common/core/unit.hpp"
#include "common/train/checkpoint/state_tensors.hpp"

namespace ladder {

// The same tensors, each of them whole that is there in parts: `parts` says of which tensor each is
// a part, by its name. A stored name is a tensor's, perhaps with a suffix such as ".exp_avg". A whole
// is in memory from its first part to its last one. Collective where for_each() of `tensors` is.
StateTensors joined(const StateTensors& tensors, const std::map<std::string, TensorPart>& parts);

}  // namespace ladder
