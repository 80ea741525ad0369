// Reading and writing safetensors files: an 8-byte length, a JSON header, then the tensors' bytes.
//
// The writer takes the tensors one by one, so a caller that holds only part of a model at a time
// can stream it. The reader maps nothing and trusts nothing: it refuses a file whose header and
// length do not agree to the byte. Of the header, numbers must be whole, names unique, members those
// of the format and no others, and the tensors must cover the data without gap or overlap. At most a
// million entries, and 64 dimensions per tensor. Takes O(n log n) time. Format: https://huggingface.co/docs/safetensors
//
// The header is a JSON object with an entry for each tensor, "wte.weight": {"dtype": "F32",
// "shape": [258, 128], "data_offsets": [0, 132096]}, and optionally "__metadata__" of strings.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <fstream>
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

// "F32 [258, 128]", for messages.
std::string type_and_shape(const StoredTensor& tensor);

class SafetensorsWriter {
 public:
  // Creates the file and writes its header. Throws CheckError with the file's name if that fails.
  SafetensorsWriter(std::string path, const std::vector<StoredTensor>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  // The next tensor in the list: its dtype and shape must match.
  void write(const at::Tensor& tensor);
  void finish();  // flushes to disk; throws unless every tensor was written

 private:
  std::string path_;
  std::vector<StoredTensor> tensors_;
  std::size_t num_written_ = 0;
  std::ofstream file_;
};

class SafetensorsReader {
 public:
  // Throws CheckError with the file's name and what is wrong with it.
  explicit SafetensorsReader(std::string path);

  // The tensors, in the order of their data.
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // Copies the named tensor into `target`, which must have its shape and dtype; otherwise throws
  // CheckError with both.
  void read(const std::string& name, const at::Tensor& target);

  // Copies rows of the named tensor, from `first_row` on, into `target`, which must have its shape
  // but for the number of rows. Converts them to the type of `target`, a piece at a time.
  void read_rows(const std::string& name, std::int64_t first_row, const at::Tensor& target);

 private:
  std::size_t position_of(const std::string& name) const;  // in the header's lists

  std::string path_;
  std::ifstream file_;
  SafetensorsHeader header_;
  std::int64_t data_start_ = 0;               // in the file
  std::map<std::string, std::size_t> index_;  // name -> position in the header's lists
};

// Reads a matrix of `type` from where `file` stands into `target` [rows, columns], which may have
// any strides, type and device. Holds a MiB of the file, or a row of it, at a time. Throws
// CheckError with `path` if the file ends too early.
void read_matrix(std::istream& file, at::ScalarType type, const at::Tensor& target,
                 const std::string& path);

}  // namespace ladder
