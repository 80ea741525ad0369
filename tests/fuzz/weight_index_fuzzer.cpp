// model.safetensors.index.json of a Hugging Face folder.
#include <string>

#include "common/train/pretrained/pretrained_weights.hpp"
#include "tests/fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  ladder::reads_or_refuses([&] {
    const std::filesystem::path folder = "folder";
    for (const auto& [file, tensors] : ladder::parse_weight_index(text, "index.json"))
      ladder::must_hold(!tensors.empty() &&
                        (folder / file).lexically_normal().parent_path() == folder);
  });
  return 0;
}
