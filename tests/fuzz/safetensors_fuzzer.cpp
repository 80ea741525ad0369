// The bytes are a .safetensors file.
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include "common/train/checkpoint/safetensors.hpp"
#include "tests/fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const ladder::FuzzFile file(bytes, size);
  ladder::reads_or_refuses([&] {
    ladder::SafetensorsReader reader(file.path());
    std::size_t num_bytes = 0;
    for (const ladder::StoredTensor& stored : reader.tensors()) {
      const bool is_empty =
          std::find(stored.shape.begin(), stored.shape.end(), 0) != stored.shape.end();
      if (is_empty) continue;  // libtorch itself refuses some of these shapes
      const at::Tensor tensor = at::empty(stored.shape, stored.dtype);
      reader.read(stored.name, tensor);
      num_bytes += tensor.nbytes();
    }
    ladder::must_hold(num_bytes <= size);
  });
  return 0;
}
