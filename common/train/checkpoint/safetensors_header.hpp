// The header of a safetensors file: which tensors it holds, and where. It is a JSON object with an
// entry for each tensor, "wte.weight": {"dtype": "F32", "shape": [258, 128], "data_offsets":
// [0, 132096]}, and optionally an entry "__metadata__" of strings.
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
  // Where each tensor's data begins, counted from the header's end.
  std::vector<std::int64_t> offsets;
  std::map<std::string, std::string> metadata;
};

// Reads the JSON of a header in front of `data_bytes` bytes of data. Trusts nothing: numbers must
// be whole, names unique, members those of the format and no others, and the tensors must cover the
// data without gap or overlap. At most a million entries, and 64 dimensions per tensor. Takes O(n
// log n) time. Throws CheckError with `path` (a file's name) and what is wrong.
SafetensorsHeader parse_safetensors_header(const std::string& json, std::int64_t data_bytes,
                                           const std::string& path);

// The JSON of a header for these tensors, whose data follow one another. Throws CheckError if two
// tensors have the same name or if the format has no such type.
std::string safetensors_header(const std::vector<StoredTensor>& tensors,
                               const std::map<std::string, std::string>& metadata,
                               const std::string& path);

// "F32 [258, 128]", for messages.
std::string type_and_shape(const StoredTensor& tensor);

}  // namespace ladder
