#include "common/train/safetensors.hpp"

#include <ATen/ops/empty.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "common/core/check.hpp"
#include "common/train/json.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kMaxHeaderBytes = 100'000'000;

struct DtypeName {
  at::ScalarType dtype;
  const char* name;
};
constexpr std::array<DtypeName, 10> kDtypes = {{{at::kFloat, "F32"},
                                                {at::kDouble, "F64"},
                                                {at::kHalf, "F16"},
                                                {at::kBFloat16, "BF16"},
                                                {at::kLong, "I64"},
                                                {at::kInt, "I32"},
                                                {at::kShort, "I16"},
                                                {at::kChar, "I8"},
                                                {at::kByte, "U8"},
                                                {at::kBool, "BOOL"}}};

std::string dtype_name(at::ScalarType dtype) {
  for (const auto& known : kDtypes) {
    if (known.dtype == dtype) return known.name;
  }
  throw CheckError(
      concat("safetensors: tensors of type ", c10::toString(dtype), " cannot be stored"));
}

at::ScalarType parse_dtype(const std::string& name, const std::string& where) {
  for (const auto& known : kDtypes) {
    if (name == known.name) return known.dtype;
  }
  throw CheckError(concat(where, ": unknown dtype \"", name, "\""));
}

// Product of the shape and the element size; refuses what is negative or does not fit 63 bits.
std::int64_t num_bytes(const StoredTensor& tensor, const std::string& where) {
  auto bytes = static_cast<std::int64_t>(c10::elementSize(tensor.dtype));
  for (const std::int64_t extent : tensor.shape) {
    check(extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes), where, ": the shape [",
          at::IntArrayRef(tensor.shape), "] of \"", tensor.name, "\" is negative or too large");
  }
  return bytes;
}

std::string shape_text(const StoredTensor& tensor) {
  return concat(dtype_name(tensor.dtype), " ", at::IntArrayRef(tensor.shape));
}

struct Entry {
  StoredTensor tensor;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Entry parse_entry(const std::string& name, const Json& value, const std::string& path) {
  try {
    Entry entry;
    entry.tensor = {name, parse_dtype(value.at("dtype").get<std::string>(), path),
                    value.at("shape").get<std::vector<std::int64_t>>()};
    const auto offsets = value.at("data_offsets").get<std::array<std::int64_t, 2>>();
    entry.begin = offsets[0];
    entry.end = offsets[1];
    return entry;
  } catch (const Json::exception& error) {
    throw CheckError(concat(path, ": the entry \"", name, "\" is damaged: ", error.what()));
  }
}

// The header's JSON, once the length in front of it is known to make sense.
std::string read_header(std::ifstream& file, const std::string& path, std::int64_t file_bytes) {
  check(file_bytes >= 8, path, ": not a safetensors file: ", file_bytes, " bytes are too few");
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length),
            sizeof length);  // little-endian, as are the machines we run on
  check(length <= static_cast<std::uint64_t>(kMaxHeaderBytes), path,
        ": not a safetensors file: its header would have ", length, " bytes, the format allows ",
        kMaxHeaderBytes);
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
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const StoredTensor& tensor : tensors_) {
    check(!header.contains(tensor.name), path_, ": two tensors are named \"", tensor.name, "\"");
    const std::int64_t end = offset + num_bytes(tensor, path_);
    header[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  file_.write(reinterpret_cast<const char*>(&length), sizeof length);
  file_ << text;
  check(file_.good(), path_, ": cannot be written: ", std::strerror(errno));
}

void SafetensorsWriter::write(const at::Tensor& tensor) {
  check(num_written_ < tensors_.size(), path_, ": one tensor more than the header names");
  const StoredTensor& expected = tensors_[num_written_++];
  const StoredTensor actual{expected.name, tensor.scalar_type(), tensor.sizes().vec()};
  check(actual.dtype == expected.dtype && actual.shape == expected.shape, path_, ": \"",
        expected.name, "\" is ", shape_text(actual), ", the header says ", shape_text(expected));
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

SafetensorsReader::SafetensorsReader(std::string path)
    : path_(std::move(path)), file_(path_, std::ios::binary) {
  std::error_code error;
  const auto file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path_, error));
  check(!error && file_.good(), path_,
        ": cannot be opened: ", error ? error.message() : std::strerror(errno));
  const std::string header = read_header(file_, path_, file_bytes);
  const std::int64_t data_start = 8 + static_cast<std::int64_t>(header.size());
  std::vector<Entry> entries;
  const Json json = parse_json(header, path_);
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      try {
        metadata_ = value.get<std::map<std::string, std::string>>();
      } catch (const Json::exception& fault) {
        throw CheckError(concat(path_, ": __metadata__ is damaged: ", fault.what()));
      }
    } else {
      entries.push_back(parse_entry(name, value, path_));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t offset = 0;
  for (const Entry& entry : entries) {
    check(entry.begin == offset, path_, ": the data of \"", entry.tensor.name, "\" starts at ",
          entry.begin, ", the one before ends at ", offset);
    check(entry.end - entry.begin == num_bytes(entry.tensor, path_), path_, ": \"",
          entry.tensor.name, "\" has ", entry.end - entry.begin, " bytes, its shape needs ",
          num_bytes(entry.tensor, path_));
    file_offsets_[entry.tensor.name] = data_start + entry.begin;
    tensors_.push_back(entry.tensor);
    offset = entry.end;
  }
  check(data_start + offset == file_bytes, path_, ": the header describes ", data_start + offset,
        " bytes, the file has ", file_bytes);
}

void SafetensorsReader::read(const std::string& name, const at::Tensor& target) {
  const auto stored =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
  check(stored != tensors_.end(), path_, ": holds no tensor \"", name, "\"");
  const StoredTensor wanted{name, target.scalar_type(), target.sizes().vec()};
  check(stored->dtype == wanted.dtype && stored->shape == wanted.shape, path_, ": \"", name,
        "\" is ", shape_text(*stored), " in the file, the model needs ", shape_text(wanted));
  at::Tensor bytes = target.is_contiguous() && target.is_cpu()
                         ? target.detach()
                         : at::empty(target.sizes(), wanted.dtype);
  file_.seekg(file_offsets_.at(name));
  file_.read(static_cast<char*>(bytes.data_ptr()), static_cast<std::streamsize>(bytes.nbytes()));
  check(file_.good(), path_, ": cannot be read: ", std::strerror(errno));
  if (bytes.data_ptr() != target.data_ptr()) target.detach().copy_(bytes);
}

}  // namespace ladder
