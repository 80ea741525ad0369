// A checkpoint of two small tensors, written by the real writer.
#pragma once

#include <ATen/ops/full.h>

#include <array>
#include <filesystem>
#include <vector>

#include "common/core/unit.hpp"
#include "common/train/checkpoint/checkpoint.hpp"

namespace ladder {

// The files that a fuzzer's input can replace, selected by its first byte.
inline constexpr std::array<const char*, 3> kCheckpointFiles = {"state.json", "model.safetensors",
                                                                "optimizer.safetensors"};

inline TrainState small_state() {
  const std::vector<NamedTensor> params = {{"w", at::full({2, 3}, 0.5)}, {"b", at::full({3}, 1.5)}};
  const std::vector<NamedTensor> moments = {{"w.exp_avg", at::full({2, 3}, 0.25)}};
  return {whole_tensors(params), whole_tensors(moments), 17, {2, 30}, "bytes"};
}

inline std::filesystem::path save_small_checkpoint(const std::filesystem::path& run) {
  return save_checkpoint(run, 7, small_state(), {{"steps", 9}, {"seed", 1}}).path;
}

}  // namespace ladder
