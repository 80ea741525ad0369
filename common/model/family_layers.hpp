// What a family's layers compute, with the parameters that family.hpp says they have.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/core/unit.hpp"
#include "common/model/family.hpp"
#include "common/model/parts.hpp"
#include "common/model/unit_shapes.hpp"

namespace ladder {

// The tensors of one layer, each made from its own random stream. Precision: that of the options.
class LayerTensors {
 public:
  LayerTensors(const LayerShape& shape, const ModelOptions& options, const Parts& parts,
               std::uint64_t seed, at::Device device);

  const Unit& unit() const { return unit_; }
  const Parts& parts() const { return parts_; }
  // This process's parts of a parameter; of one that is not cut, the parameter.
  const std::vector<at::Tensor>& own(const std::string& name) const { return own_.at(name); }
  // A parameter that all parts use.
  const at::Tensor& whole(const std::string& name) const { return own_.at(name)[0]; }

 private:
  Unit unit_;
  Parts parts_;
  std::map<std::string, std::vector<at::Tensor>> own_;
};

// Looks up tokens [...] int64 in parts of a vocabulary: [..., C]. A part has the rows of its own
// tokens, and adds zeros for others.
struct TokenEmbedding {
  std::vector<at::Tensor> weights;  // [V, C], or this process's parts of it
  VocabParts parts;
  at::Tensor operator()(const at::Tensor& tokens) const;
};
TokenEmbedding token_embedding(const Family& family, const LayerTensors& tensors);

// Layers may share what the object makes for all of them, so a model's layers come from one object.
class FamilyLayers {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor& input)>;

  // Lifetime: `family` outlives this.
  explicit FamilyLayers(const Family& family) : family_(family), options_(family.options()) {}
  virtual ~FamilyLayers() = default;

  // From tokens [B, T] int64 to [B, T, C].
  virtual Forward embedding(const LayerTensors& tensors) const = 0;
  // From [B, T, C] to [B, T, C].
  virtual Forward block(const LayerTensors& tensors, std::int64_t index) const = 0;
  virtual Forward final_norm(const LayerTensors& tensors) const = 0;

 protected:
  const Family& family_;
  const ModelOptions& options_;  // the family's
};

std::unique_ptr<FamilyLayers> layers_of(const Family& family);

}  // namespace ladder
