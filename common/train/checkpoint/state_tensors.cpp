#include "common/train/checkpoint/state_tensors.hpp"

#include <map>

#include "common/core/check.hpp"
#include "common/core/json.hpp"

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

void check_found(
    const std::vector<FoundTensor>& found, const StateTensors& wanted, const std::string& from,
    const std::function<bool(const StoredTensor& found, const StoredTensor& wanted)>& fits,
    const char* hint) {
  std::map<std::string, const FoundTensor*> unused;
  for (const FoundTensor& tensor : found) unused[tensor.name] = &tensor;
  for (const StoredTensor& tensor : wanted.stored) {
    const auto place = unused.find(tensor.name);
    check(place != unused.end(), from, ": holds no tensor \"", tensor.name,
          "\", which this model needs", hint);
    check(fits(*place->second, tensor), place->second->file, ": \"", tensor.name, "\" is ",
          type_and_shape(*place->second), ", the model needs ", type_and_shape(tensor), hint);
    unused.erase(place);
  }
  if (unused.empty()) return;
  const FoundTensor& extra = *unused.begin()->second;
  throw CheckError(concat(extra.file, ": holds \"", excerpt(extra.name),
                          "\", which this model has no place for", hint));
}

std::string fill_all(const StateTensors& tensors, const TensorVisitor& read) {
  TensorHash hash;
  for (const StoredTensor& tensor : tensors.stored) {
    tensors.fill(tensor.name, [&](const std::string& name, const at::Tensor& values) {
      read(name, values);
      hash.update(name, values);
    });
  }
  return hash.digest();
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
