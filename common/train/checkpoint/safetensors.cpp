#include "common/train/checkpoint/safetensors.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/core/check.hpp"
#include "common/data/mapped_file.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kMaxHeaderBytes = 100'000'000;

// Returns the header's JSON, after checking the length in front of it.
std::string read_header(std::ifstream& file, const std::string& path, std::int64_t file_bytes) {
  check(file_bytes >= 8, path, ": not a safetensors file: ", file_bytes, " bytes are too few");
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length),
            sizeof length);  // little-endian, like the machines we run on
  const std::string_view first(reinterpret_cast<const char*>(&length), sizeof length);
  check(length <= static_cast<std::uint64_t>(kMaxHeaderBytes), path,
        ": not a safetensors file: its header would have ", length, " bytes, the format allows ",
        kMaxHeaderBytes,
        begins_with_text(first) ? concat("; it is text that begins with '", first,
                                         "', perhaps a web page or an error in place of the file")
                                : "");
  check(static_cast<std::int64_t>(length) <= file_bytes - 8, path, ": cut off: the header has ",
        length, " bytes, the file ", file_bytes);
  std::string header(length, '\0');
  file.read(header.data(), static_cast<std::streamsize>(length));
  check(file.good() && header.starts_with('{'), path,
        ": not a safetensors file: the header does not start with {");
  return header;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path, const std::vector<StoredTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)), tensors_(tensors), file_(path_, std::ios::binary | std::ios::trunc) {
  std::string text = safetensors_header(tensors_, metadata, path_);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  file_.write(reinterpret_cast<const char*>(&length), sizeof length);
  file_ << text;
  check(file_.good(), path_, ": cannot be written: ", std::strerror(errno));
}

void SafetensorsWriter::write(const at::Tensor& tensor) {
  check(num_written_ < tensors_.size(), path_, ": more tensors than the header names");
  const StoredTensor& expected = tensors_[num_written_++];
  const StoredTensor actual{expected.name, tensor.scalar_type(), tensor.sizes().vec()};
  check(actual.dtype == expected.dtype && actual.shape == expected.shape, path_, ": \"",
        expected.name, "\" is ", type_and_shape(actual), ", the header says ",
        type_and_shape(expected));
  const at::Tensor bytes = tensor.detach().cpu().contiguous();
  file_.write(static_cast<const char*>(bytes.const_data_ptr()),
              static_cast<std::streamsize>(bytes.nbytes()));
  check(file_.good(), path_, ": cannot be written: ", std::strerror(errno));
}

void SafetensorsWriter::finish() {
  check(num_written_ == tensors_.size(), path_, ": ", num_written_, " of ", tensors_.size(),
        " tensors were written");
  file_.close();
  check(!file_.fail(), path_, ": cannot be written: ", std::strerror(errno));
  sync_to_disk(path_);
}

SafetensorsReader::SafetensorsReader(std::string path) : path_(std::move(path)) {
  std::error_code error;  // also of what has no size: to open a pipe would wait for a writer
  const auto file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path_, error));
  if (!error) file_.open(path_, std::ios::binary);
  check(!error && file_.good(), path_,
        ": cannot be opened: ", error ? error.message() : std::strerror(errno));
  refuse_lfs_pointer(path_);
  const std::string json = read_header(file_, path_, file_bytes);
  data_start_ = 8 + static_cast<std::int64_t>(json.size());
  header_ = parse_safetensors_header(json, file_bytes - data_start_, path_);
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

std::size_t SafetensorsReader::position_of(const std::string& name) const {
  const auto found = index_.find(name);
  check(found != index_.end(), path_, ": holds no tensor \"", name, "\"");
  return found->second;
}

void SafetensorsReader::read(const std::string& name, const at::Tensor& target) {
  const std::size_t position = position_of(name);
  const StoredTensor& stored = header_.tensors[position];
  const StoredTensor wanted{name, target.scalar_type(), target.sizes().vec()};
  check(stored.dtype == wanted.dtype && stored.shape == wanted.shape, path_, ": \"", name, "\" is ",
        type_and_shape(stored), " in the file, the model needs ", type_and_shape(wanted));
  at::Tensor bytes = target.is_contiguous() && target.is_cpu()
                         ? target.detach()
                         : at::empty(target.sizes(), wanted.dtype);
  file_.seekg(data_start_ + header_.offsets[position]);
  file_.read(static_cast<char*>(bytes.data_ptr()), static_cast<std::streamsize>(bytes.nbytes()));
  check(file_.good(), path_, ": cannot be read: ", std::strerror(errno));
  if (bytes.data_ptr() != target.data_ptr()) target.detach().copy_(bytes);
}

void SafetensorsReader::read_rows(const std::string& name, std::int64_t first_row,
                                  const at::Tensor& target) {
  const std::size_t position = position_of(name);
  const StoredTensor& stored = header_.tensors[position];
  std::vector<std::int64_t> wanted = stored.shape;
  check(!wanted.empty() && target.dim() > 0 && first_row >= 0 &&
            first_row + target.size(0) <= wanted[0],
        path_, ": \"", name, "\" is ", type_and_shape(stored), ": it has no ", target.size(0),
        " rows from row ", first_row, " on");
  wanted[0] = target.size(0);
  check(target.sizes() == wanted, path_, ": rows of \"", name, "\" have the shape ",
        at::IntArrayRef(wanted), ", not ", target.sizes());
  const std::int64_t columns = c10::multiply_integers(wanted.begin() + 1, wanted.end());
  const auto row_bytes = columns * static_cast<std::int64_t>(c10::elementSize(stored.dtype));
  file_.clear();
  file_.seekg(data_start_ + header_.offsets[position] + first_row * row_bytes);
  read_matrix(file_, stored.dtype, target.detach().view({wanted[0], columns}), path_);
}

void read_matrix(std::istream& file, at::ScalarType type, const at::Tensor& target,
                 const std::string& path) {
  constexpr std::int64_t kPieceBytes = 1 << 20;
  const auto row_bytes = target.size(1) * static_cast<std::int64_t>(c10::elementSize(type));
  if (row_bytes == 0) return;
  const std::int64_t most_rows = std::max<std::int64_t>(1, kPieceBytes / row_bytes);
  for (std::int64_t row = 0; row < target.size(0); row += most_rows) {
    const std::int64_t num_rows = std::min(most_rows, target.size(0) - row);
    const at::Tensor piece = at::empty({num_rows, target.size(1)}, type);
    file.read(static_cast<char*>(piece.data_ptr()),
              static_cast<std::streamsize>(num_rows * row_bytes));
    check(file.good(), path, ": cannot be read: ",
          file.eof() ? "it ends before its tensors do" : std::strerror(errno));
    target.narrow(0, row, num_rows).copy_(piece);
  }
}

}  // namespace ladder
