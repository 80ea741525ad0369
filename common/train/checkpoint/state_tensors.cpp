#include "common/train/checkpoint/state_tensors.hpp"

#include <map>

#include "common/core/check.hpp"

namespace ladder {

StateTensors whole_tensors(const std::vector<NamedTensor>& tensors) {
  std::map<std::string, at::Tensor> by_name;
  for (const auto& [name, tensor] : tensors) {
    check(by_name.emplace(name, tensor.detach()).second, "two tensors are named '", name, "'");
  }
  StateTensors state;
  for (const auto& [name, tensor] : by_name)
    state.stored.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  state.for_each = [by_name](const TensorVisitor& visit) {
    for (const auto& [name, tensor] : by_name) visit(name, tensor);
  };
  state.fill = [by_name](const std::string& name, const TensorVisitor& read) {
    read(name, by_name.at(name));
  };
  return state;
}

StateTensors in_fp32(const StateTensors& tensors) {
  StateTensors wide = tensors;
  for (StoredTensor& stored : wide.stored) stored.dtype = at::kFloat;
  wide.for_each = [=](const TensorVisitor& visit) {
    tensors.for_each([&](const std::string& name, const at::Tensor& values) {
      visit(name, values.to(at::kFloat));
    });
  };
  wide.fill = [=](const std::string& name, const TensorVisitor& read) {
    tensors.fill(name, [&](const std::string& to, const at::Tensor& buffer) {
      const at::Tensor values = buffer.to(at::kFloat);  // itself, if it is fp32
      read(to, values);
      if (!values.is_same(buffer)) buffer.copy_(values);
    });
  };
  return wide;
}

void TensorHash::update(const std::string& name, const at::Tensor& values) {
  const at::Tensor bytes = values.detach().cpu().contiguous();
  bytes_.update(name.c_str(), name.size() + 1);
  bytes_.update(bytes.const_data_ptr(), bytes.nbytes());
}

std::string tensor_hash(const StateTensors& tensors) {
  TensorHash hash;
  std::size_t num_seen = 0;
  tensors.for_each([&](const std::string& name, const at::Tensor& values) {
    hash.update(name, values);
    ++num_seen;
  });
  return num_seen == tensors.stored.size() ? hash.digest() : "";
}

}  // namespace ladder
