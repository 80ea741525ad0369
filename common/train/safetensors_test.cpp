#include "common/train/safetensors.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "common/core/check.hpp"
#include "common/core/unit.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/json.hpp"

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

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class SafetensorsTest : public ::testing::Test {
 protected:
  // A file of this header and this many bytes of data; returns its path.
  std::string file_of(const std::string& header, std::size_t data_bytes) {
    const std::uint64_t length = header.size();
    return raw_file(std::string(reinterpret_cast<const char*>(&length), 8) + header +
                    std::string(data_bytes, '\0'));
  }
  std::string raw_file(const std::string& bytes) {
    const std::string path = folder_.path("file.safetensors");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  void expect_refused(const std::string& path, const std::string& reason) {
    EXPECT_THAT([&] { SafetensorsReader reader(path); },
                ThrowsMessage<CheckError>(::testing::AllOf(HasSubstr(path), HasSubstr(reason))));
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
  const std::string good = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_NO_THROW(SafetensorsReader(file_of(good, 8)));
  expect_refused(raw_file("short"), "5 bytes are too few");
  expect_refused(file_of(good, 7), "describes");
  expect_refused(file_of(good, 9), "describes");
  expect_refused(raw_file(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)),
                 "the format allows");
  expect_refused(raw_file(std::string("\x40\0\0\0\0\0\0\0{}", 10)), "cut off");
  expect_refused(file_of("[1,2]", 0), "does not start with {");
  expect_refused(file_of("{\"x\":", 0), "not valid JSON");
  expect_refused(file_of(std::string("{\"\xff\":1}"), 0), "not valid JSON");
  expect_refused(
      file_of(
          R"({"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
          0),
      "occurs twice");
  expect_refused(file_of(R"({"x":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8),
                 "unknown dtype");
  expect_refused(file_of(R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
                 "negative or too large");
  expect_refused(
      file_of(R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8),
      "too large");
  expect_refused(file_of(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
                 "its shape needs 12");
  expect_refused(file_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
                 "starts at 4");
  expect_refused(
      file_of(
          R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          8),
      "starts at 4");
  expect_refused(file_of(R"({"x":{"shape":[2],"data_offsets":[0,8]}})", 8), "\"x\" is damaged");
  expect_refused(folder_.path("nothing"), "cannot be opened");
}

TEST_F(SafetensorsTest, RefusesAnotherShapeNamingBoth) {
  const std::string path = folder_.path("x.safetensors");
  write_safetensors(path, {{"x", at::ones({2, 3})}});
  SafetensorsReader reader(path);
  EXPECT_THAT(
      [&] {
        reader.read("x", at::zeros({3, 2}));
      },
      ThrowsMessage<CheckError>(::testing::AllOf(HasSubstr("[2, 3]"), HasSubstr("[3, 2]"))));
  EXPECT_THROW(reader.read("y", at::zeros({1})), CheckError);
}

}  // namespace
}  // namespace ladder
