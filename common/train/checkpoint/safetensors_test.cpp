#include "common/train/checkpoint/safetensors.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/core/timer.hpp"
#include "common/core/unit.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

// All tensors of a list at once.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::vector<StoredTensor> list;
  for (const auto& [name, tensor] : tensors)
    list.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  SafetensorsWriter writer(path, list);
  for (const NamedTensor& named : tensors) writer.write(named.tensor);
  writer.finish();
}

class SafetensorsTest : public ::testing::Test {
 protected:
  // A file of this header and this many bytes of data; returns its path.
  std::string file_of(const std::string& header, std::size_t data_bytes) {
    const std::uint64_t length = header.size();
    return raw_file(std::string(reinterpret_cast<const char*>(&length), 8) + header +
                    std::string(data_bytes, '\0'));
  }
  // A header of one tensor.
  static std::string entry(const std::string& shape, const std::string& offsets) {
    return R"({"x":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  }
  std::string raw_file(const std::string& bytes) {
    const std::string path = folder_.path("file.safetensors");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static void expect_refused(const std::string& path, const std::string& reason,
                             const std::source_location& where = std::source_location::current()) {
    expect_throws<CheckError>([&] { SafetensorsReader reader(path); }, {path + ": ", reason},
                              where);
  }

  TempFolder folder_;
};

TEST_F(SafetensorsTest, RoundTripKeepsEveryBit) {
  const std::string path = folder_.path("all.safetensors");
  const std::vector<NamedTensor> tensors = {{"b", at::randn({3, 5})},
                                            {"a", at::randn({7}, at::kDouble)},
                                            {"empty", at::empty({0, 4})},
                                            {"scalar", at::tensor(2.5F)},
                                            {"half", at::randn({3}).to(at::kBFloat16)},
                                            {"ids", at::arange(9, at::kLong)}};
  write_safetensors(path, tensors);
  EXPECT_EQ(read_text_file(path).find('{'), 8u);
  SafetensorsReader reader(path);
  ASSERT_EQ(reader.tensors().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    at::Tensor copy = at::zeros_like(tensor);
    reader.read(name, copy);
    EXPECT_TRUE(copy.equal(tensor)) << name;
  }
  at::Tensor transposed = at::zeros({5, 3}).t();  // a target that is not contiguous
  reader.read("b", transposed);
  EXPECT_TRUE(transposed.equal(tensors[0].tensor));
}

TEST_F(SafetensorsTest, HeaderIsAlignedAndCarriesMetadata) {
  const std::string path = folder_.path("m.safetensors");
  SafetensorsWriter writer(path, {{"x", at::kFloat, {2}}}, {{"format", "pt"}});
  EXPECT_THROW(writer.finish(), CheckError);  // a tensor is still missing
  EXPECT_THROW(SafetensorsWriter(path, {{"x", at::kFloat, {2}}}).write(at::zeros({3})), CheckError);
  SafetensorsWriter again(path, {{"x", at::kFloat, {2}}}, {{"format", "pt"}});
  again.write(at::ones({2}));
  again.finish();
  std::uint64_t length = 0;
  std::memcpy(&length, read_text_file(path).data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(SafetensorsReader(path).metadata().at("format"), "pt");
}

TEST_F(SafetensorsTest, RefusesDamagedFiles) {
  const std::string good = entry("[2]", "[0,8]");
  EXPECT_NO_THROW(SafetensorsReader(file_of(good, 8)));
  expect_refused(raw_file("short"), "5 bytes are too few");
  expect_refused(raw_file("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n"),
                 "git lfs pull");
  expect_refused(raw_file("<!DOCTYPE html>\n<html>"), "text that begins with '<!DOCTYP'");
  expect_refused(file_of(good, 7), "describes");
  expect_refused(file_of(good, 9), "describes");
  expect_refused(raw_file(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)),
                 "the format allows");
  expect_refused(raw_file(std::string("\x40\0\0\0\0\0\0\0{}", 10)), "cut off");
  expect_refused(file_of("[1,2]", 0), "does not start with {");
  expect_refused(file_of("{\"x\":", 0), "not valid JSON: line 1, column 6: ");
  expect_refused(file_of(std::string("{\"\xff\":1}"), 0), "not valid JSON");
  expect_refused(
      file_of(
          R"({"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
          0),
      "occurs twice");
  expect_refused(file_of(R"({"x":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8),
                 "unknown dtype");
  expect_refused(file_of(entry("[-2]", "[0,8]"), 8), "negative or too large");
  expect_refused(file_of(entry("[4611686018427387904,4]", "[0,8]"), 8), "too large");
  expect_refused(file_of(entry("[3]", "[0,8]"), 8), "its shape needs 12");
  expect_refused(file_of(entry("[1]", "[4,8]"), 8), "starts at 4");
  expect_refused(
      file_of(
          R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          8),
      "starts at 4");
  expect_refused(file_of(R"({"x":{"shape":[2],"data_offsets":[0,8]}})", 8), "\"x\" is damaged");
  expect_refused(folder_.path("nothing"), "cannot be opened");
}

TEST_F(SafetensorsTest, DoesNotWaitForAPipe) {
  const std::string pipe = folder_.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_refused(pipe, "cannot be opened");
}

// Legal JSON that is not a header.
TEST_F(SafetensorsTest, RefusesWhatTheFormatDoesNotSay) {
  for (const char* shape : {"[2.0]", "[2.9]", "[2e0]", "[1e400]", "[18446744073709551616]"})
    expect_refused(file_of(entry(shape, "[0,8]"), 8), shape[1] == '1' ? "" : "not a whole number");
  for (const char* offsets : {"[0.0,8]", "[0,8.2]", "[0.9,8]", "[-0.1,8]"})
    expect_refused(file_of(entry("[2]", offsets), 8), "not a whole number");
  expect_refused(file_of(entry("[9223372036854775808]", "[0,8]"), 8), "too large");
  expect_refused(file_of(entry("[2]", "[0,-9223372036854775808]"), 8), "negative or too large");
  expect_refused(file_of(entry("[2]", "[0,18446744073709551615]"), 8), "too large");
  // A shape and offsets that agree, so that the position of the data's end would overflow.
  expect_refused(file_of(entry("[2305843009213693951]", "[0,9223372036854775804]"), 8),
                 "the file has 8");
  expect_refused(file_of(entry("[2]", "[8,0]"), 8), "starts at 8");
  for (const char* offsets : {"[]", "[0]", "[0,8,8]", "8", "{}", "null", "\"0,8\"", "[[0],8]"})
    expect_refused(file_of(entry("[2]", offsets), 8), "is damaged");
  for (const char* shape : {"2", "{}", "null", "[true]", "[\"2\"]", "[[2]]", "[{}]"})
    expect_refused(file_of(entry(shape, "[0,8]"), 8), "is damaged");
  for (const char* text :
       {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", R"({"x":[]})",
        R"({"x":5})", R"({"x":"F32"})", R"({"x":null})", R"({"x":{"dtype":4}})", R"({"x":{}})",
        R"({"__metadata__":{"x":{}}})", R"({"__metadata__":{"x":5}})", R"({"__metadata__":[]})"})
    expect_refused(file_of(text, 8), "is damaged");
  expect_refused(file_of(R"({"__metadata__":{"x":"","x":""}})", 0), "occurs twice");
  expect_refused(file_of(R"({"x":{"dtype":"F32","dtype":"F32"}})", 0), "occurs twice");
  expect_refused(file_of("{} {}", 0), "not valid JSON: line 1, column 4: ");
}

TEST_F(SafetensorsTest, DepthAndCountsAreBounded) {
  expect_refused(file_of(R"({"x":)" + std::string(1'000'000, '['), 0), "is damaged");
  std::string shape = "1";
  for (int i = 1; i < 64; ++i) shape += ",1";
  const auto with = [&](const std::string& text) {
    return file_of(R"({"x":{"dtype":"U8","shape":[)" + text + R"(],"data_offsets":[0,1]}})", 1);
  };
  EXPECT_EQ(SafetensorsReader(with(shape)).tensors()[0].shape.size(), 64u);
  expect_refused(with(shape + ",1"), "\"shape\" has too many numbers");
  std::string metadata = R"({"__metadata__":{"0":"")";
  for (int i = 1; i <= 1'000'000; ++i) metadata += ",\"" + std::to_string(i) + "\":\"\"";
  expect_refused(file_of(metadata + "}}", 0), "more than 1000000 entries");
}

// This thread's processor time, which other programs do not change, to write a file of this many empty
// tensors, open it, and read them all.
double seconds_for_tensors(int count, const std::string& path) {
  std::vector<StoredTensor> tensors;
  for (int i = 0; i < count; ++i) tensors.push_back({concat("h.", i, ".weight"), at::kFloat, {0}});
  const at::Tensor empty = at::empty({0});
  const CpuTimer timer;
  SafetensorsWriter writer(path, tensors);
  for (int i = 0; i < count; ++i) writer.write(empty);
  writer.finish();
  SafetensorsReader reader(path);
  for (const StoredTensor& tensor : tensors) reader.read(tensor.name, empty);
  return timer.seconds();
}

// Eight times the tensors take about eight times as long; with quadratic time it would be 64.
TEST_F(SafetensorsTest, TimeGrowsWithTheTensorsAndNotWithTheirSquare) {
  const std::string path = folder_.path("many.safetensors");
  double few = 1e9, many = 1e9;
  for (int attempt = 0; attempt < 2; ++attempt) {
    few = std::min(few, seconds_for_tensors(5'000, path));
    many = std::min(many, seconds_for_tensors(40'000, path));
  }
  EXPECT_LT(many, 24 * few);
}

TEST_F(SafetensorsTest, RefusesAnotherShapeNamingBoth) {
  const std::string path = folder_.path("x.safetensors");
  write_safetensors(path, {{"x", at::ones({2, 3})}});
  SafetensorsReader reader(path);
  expect_throws<CheckError>([&] { reader.read("x", at::zeros({3, 2})); }, {"[2, 3]", "[3, 2]"});
  EXPECT_THROW(reader.read("y", at::zeros({1})), CheckError);
}

}  // namespace
}  // namespace ladder
