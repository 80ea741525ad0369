// llm.c's checkpoint of a GPT-2.
#include <ATen/ops/empty.h>

#include "common/train/pretrained/pretrained_weights.hpp"
#include "tests/fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const ladder::FuzzFile file(bytes, size);
  ladder::reads_or_refuses([&] {
    ladder::LlmCFile model(file.path());
    for (const ladder::PretrainedTensor& tensor : model.tensors())
      model.read(tensor.name, at::empty(tensor.shape, at::kFloat));
  });
  return 0;
}
