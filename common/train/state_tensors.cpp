#include "common/train/state_tensors.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>
#include <map>
#include <memory>

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

TensorHash::TensorHash()
    : state_(XXH3_createState(),
             [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }) {
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void TensorHash::update(const std::string& name, const at::Tensor& values) {
  auto* state = static_cast<XXH3_state_t*>(state_.get());
  const at::Tensor bytes = values.detach().cpu().contiguous();
  XXH3_128bits_update(state, name.c_str(), name.size() + 1);
  XXH3_128bits_update(state, bytes.const_data_ptr(), bytes.nbytes());
}

std::string TensorHash::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_.get()));
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
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
