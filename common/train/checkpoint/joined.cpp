#include "common/train/checkpoint/joined.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/model/pieces.hpp"

namespace ladder {
namespace {

// A stored tensor that is a part, and the name under which the whole is stored.
struct StoredPart {
  const TensorPart* part;
  std::string whole;
};

std::optional<StoredPart> stored_part(const std::string& name,
                                      const std::map<std::string, TensorPart>& parts) {
  const std::size_t mark = name.find('#');
  if (mark == std::string::npos) return {};
  const std::size_t suffix = std::min(name.find_first_not_of("0123456789", mark + 1), name.size());
  const auto part = parts.find(name.substr(0, suffix));
  if (part == parts.end()) return {};
  return StoredPart{&part->second, part->second.whole + name.substr(suffix)};
}

}  // namespace

StateTensors joined(const StateTensors& tensors, const std::map<std::string, TensorPart>& parts) {
  if (parts.empty()) return tensors;
  std::map<std::string, StoredTensor> wholes;
  std::map<std::string, std::vector<std::string>> leaves;  // of each whole
  for (const StoredTensor& stored : tensors.stored) {
    const auto found = stored_part(stored.name, parts);
    const std::string& whole = found ? found->whole : stored.name;
    wholes[whole] = {whole, stored.dtype, found ? found->part->shape : stored.shape};
    if (found) leaves[whole].push_back(stored.name);
  }
  StateTensors state;
  for (const auto& [name, whole] : wholes) state.stored.push_back(whole);

  state.for_each = [=](const TensorVisitor& visit) {
    struct Open {
      at::Tensor values;
      std::size_t num_missing;
    };
    std::map<std::string, Open> open;
    tensors.for_each([&](const std::string& name, const at::Tensor& values) {
      const auto found = stored_part(name, parts);
      if (!found) return visit(name, values);
      const auto [place, is_first] =
          open.try_emplace(found->whole, Open{{}, leaves.at(found->whole).size()});
      Open& whole = place->second;
      if (is_first) whole.values = at::empty(found->part->shape, values.options());
      const at::Tensor target = place_of(*found->part, whole.values);
      target.copy_(values.reshape(target.sizes()));
      if (--whole.num_missing > 0) return;
      visit(found->whole, whole.values);
      open.erase(place);
    });
  };

  state.fill = [=](const std::string& name, const TensorVisitor& read) {
    const auto own = leaves.find(name);
    if (own == leaves.end()) return tensors.fill(name, read);
    const StoredTensor& stored = wholes.at(name);
    const at::Tensor whole = at::empty(stored.shape, stored.dtype);
    read(name, whole);
    for (const std::string& leaf : own->second) {
      tensors.fill(leaf, [&](const std::string&, const at::Tensor& values) {
        values.copy_(place_of(*stored_part(leaf, parts)->part, whole).reshape(values.sizes()));
      });
    }
  };
  return state;
}

}  // namespace ladder
