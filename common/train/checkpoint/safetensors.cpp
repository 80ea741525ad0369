#include "common/train/checkpoint/safetensors.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/data/mapped_file.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

constexpr std::size_t kMaxEntries = 1'000'000;
constexpr std::size_t kMaxDimensions = 64;

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

// Product of the shape and the element size; refuses negative values and those that exceed 63 bits.
std::int64_t num_bytes(const StoredTensor& tensor, const std::string& where) {
  auto bytes = static_cast<std::int64_t>(c10::elementSize(tensor.dtype));
  for (const std::int64_t extent : tensor.shape) {
    check(extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes), where, ": the shape [",
          at::IntArrayRef(tensor.shape), "] of \"", excerpt(tensor.name),
          "\" is negative or too large");
  }
  return bytes;
}

struct Entry {
  StoredTensor tensor;
  std::vector<std::int64_t> offsets;  // begin and end
};

// Interprets the JSON while it is parsed: one pass, keeping nothing that is not part of the format.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside) return enter(Place::kHeader);
    if (place_ != Place::kHeader) refuse("an object is not allowed here");
    if (name_ == "__metadata__") return enter(Place::kMetadata);
    entries.push_back({});
    entries.back().tensor.name = name_;
    seen_.clear();
    return enter(Place::kEntry);
  }
  bool end_object() override {
    if (place_ == Place::kEntry && seen_.size() < 3)
      refuse("it needs \"dtype\", \"shape\" and \"data_offsets\"");
    return enter(place_ == Place::kHeader ? Place::kOutside : Place::kHeader);
  }
  bool key(std::string& text) override {
    const bool is_name = place_ == Place::kHeader, is_member = place_ == Place::kEntry;
    if (is_name) name_ = text;
    if (is_member) member_ = text;
    if (place_ == Place::kMetadata) metadata_key_ = text;
    std::set<std::string>& known = is_name ? names_ : is_member ? seen_ : metadata_keys_;
    check(known.insert(text).second, path_, ": the key \"", excerpt(text), "\" occurs twice");
    check(known.size() <= kMaxEntries, path_, ": has more than ", kMaxEntries, " entries");
    if (is_member && text != "dtype" && text != "shape" && text != "data_offsets")
      refuse("\"" + excerpt(text) + "\" is not part of the format");
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ == Place::kEntry && member_ == "shape") return enter(Place::kShape);
    if (place_ == Place::kEntry && member_ == "data_offsets") return enter(Place::kOffsets);
    refuse("a list is not allowed here");
  }
  bool end_array() override {
    if (place_ == Place::kOffsets && entries.back().offsets.size() != 2)
      refuse("\"data_offsets\" needs two numbers");
    return enter(Place::kEntry);
  }
  bool number_unsigned(std::uint64_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      refuse(concat(value, " is negative or too large"));
    return number(static_cast<std::int64_t>(value));
  }
  bool number_integer(std::int64_t value) override {
    refuse(concat(value, " is negative or too large"));
  }
  bool number_float(double, const std::string& text) override {
    refuse(excerpt(text) + " is not a whole number that fits 63 bits");
  }
  bool string(std::string& text) override {
    if (place_ == Place::kMetadata) {
      metadata[metadata_key_] = text;
      return true;
    }
    if (place_ != Place::kEntry || member_ != "dtype") refuse("a string is not allowed here");
    const auto known =
        std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& d) { return text == d.name; });
    if (known == kDtypes.end()) refuse("unknown dtype \"" + excerpt(text) + "\"");
    entries.back().tensor.dtype = known->dtype;
    return true;
  }
  bool null() override { refuse("null is not allowed here"); }
  bool boolean(bool) override { refuse("true or false is not allowed here"); }
  bool binary(Json::binary_t&) override { refuse("bytes are not allowed here"); }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    throw CheckError(concat(path_, ": not valid JSON: ", excerpt(json_problem(error.what()))));
  }

 private:
  enum class Place { kOutside, kHeader, kMetadata, kEntry, kShape, kOffsets };

  bool enter(Place place) {
    place_ = place;
    return true;
  }
  bool number(std::int64_t value) {
    if (place_ != Place::kShape && place_ != Place::kOffsets)
      refuse("a number is not allowed here");
    const bool is_shape = place_ == Place::kShape;
    std::vector<std::int64_t>& list =
        is_shape ? entries.back().tensor.shape : entries.back().offsets;
    list.push_back(value);
    if (list.size() > (is_shape ? kMaxDimensions : 2))
      refuse("\"" + member_ + "\" has too many numbers");
    return true;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw CheckError(concat(path_, ": the entry \"", excerpt(name_), "\" is damaged: ", why));
  }

  const std::string& path_;
  Place place_ = Place::kOutside;
  std::string name_, member_, metadata_key_;            // the keys that were read last
  std::set<std::string> names_, seen_, metadata_keys_;  // those of the header, an entry, metadata
};

// The header in front of so many bytes of data.
SafetensorsHeader parse_header(const std::string& json, std::int64_t data_bytes,
                               const std::string& path) {
  HeaderReader reader(path);
  Json::sax_parse(json, &reader);
  std::vector<Entry>& entries = reader.entries;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  SafetensorsHeader header{{}, {}, std::move(reader.metadata)};
  std::int64_t covered = 0;
  for (Entry& entry : entries) {
    const std::int64_t begin = entry.offsets[0], end = entry.offsets[1];
    const std::string& name = entry.tensor.name;
    const std::int64_t needed = num_bytes(entry.tensor, path);
    check(begin == covered, path, ": the data of \"", excerpt(name), "\" starts at ", begin,
          ", but the previous one ends at ", covered);
    // Both are at least 0, so their difference cannot overflow; nothing here is added.
    check(end - begin == needed, path, ": \"", excerpt(name), "\" has ", end - begin,
          " bytes, but its shape needs ", needed);
    header.tensors.push_back(std::move(entry.tensor));
    header.offsets.push_back(begin);
    covered = end;
  }
  check(covered == data_bytes, path, ": the header describes ", covered,
        " bytes of data, but the file has ", data_bytes);
  return header;
}

constexpr std::int64_t kMaxHeaderBytes = 100'000'000;

// The JSON of a header for these tensors, whose data follow one another.
std::string header_text(const std::vector<StoredTensor>& tensors,
                        const std::map<std::string, std::string>& metadata,
                        const std::string& path) {
  std::string text = metadata.empty() ? "" : "\"__metadata__\":" + Json(metadata).dump();
  std::set<std::string> names;
  std::int64_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    check(names.insert(tensor.name).second, path, ": two tensors are named \"", tensor.name, "\"");
    const std::int64_t end = offset + num_bytes(tensor, path);
    const Json entry = {{"dtype", dtype_name(tensor.dtype)},
                        {"shape", tensor.shape},
                        {"data_offsets", {offset, end}}};
    text += concat(text.empty() ? "" : ",", Json(tensor.name).dump(), ":", entry.dump());
    offset = end;
  }
  return "{" + text + "}";
}

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

std::string type_and_shape(const StoredTensor& tensor) {
  return concat(dtype_name(tensor.dtype), " ", at::IntArrayRef(tensor.shape));
}

SafetensorsWriter::SafetensorsWriter(std::string path, const std::vector<StoredTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)), tensors_(tensors), file_(path_, std::ios::binary | std::ios::trunc) {
  std::string text = header_text(tensors_, metadata, path_);
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
  header_ = parse_header(json, file_bytes - data_start_, path_);
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
