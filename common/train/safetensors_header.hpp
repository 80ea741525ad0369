// The header of a safetensors file: which tensors it holds, and where. A JSON object with an entry
// for each, "wte.weight": {"dtype": "F32", "shape": [258, 128], "data_offsets": [0, 132096]}, and
// perhaps one of texts, "__metadata__".
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ladder {

struct StoredTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of their data
  std::vector<std::int64_t>
      offsets;  // where the data of each begins, counted from the header's end
  std::map<std::string, std::string> metadata;
};

// Reads the JSON of a header in front of `data_bytes` bytes of data. Trusts nothing: numbers are
// whole, names unique, members those of the format and no others, and the tensors cover the data
// without gap or overlap. At most a million entries, and 64 dimensions a tensor. Takes n log n time.
// Throws CheckError with `path` (a file's name) and what is wrong.
SafetensorsHeader parse_safetensors_header(const std::string& json, std::int64_t data_bytes,
                                           const std::string& path);

// The JSON of a header for these tensors, one behind the other. Throws CheckError with `path` if two
// have one name, or if the format has no such type.
std::string safetensors_header(const std::vector<StoredTensor>& tensors,
                               const std::map<std::string, std::string>& metadata,
                               const std::string& path);

// "F32 [258, 128]", for messages.
std::string type_and_shape(const StoredTensor& tensor);

}  // namespace ladder
