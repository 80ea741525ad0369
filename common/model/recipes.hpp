// What is cheap to compute: a product makes its input again, instead of keeping it.
//
// A product needs its input once more, for its weight's gradient. Where a norm or an activation
// function has made that input, both ends are kept: the function keeps its own input as well. It is
// cheap to call again, so the product can do that, and keep nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "common/model/model.hpp"

namespace ladder {

// A tensor, as what it is made from: tensors that somebody keeps anyway.
struct Recipe {
  std::vector<at::Tensor> from;
  std::function<at::Tensor(const std::vector<at::Tensor>& from)> make;  // the same bits each time
};

// Returns what does what layer.forward does, in whose products recipes take the place of inputs.
std::function<at::Tensor(const at::Tensor& input)> with_recipes(const Layer& layer);

// For functions that are cheap to call: notes how they have made this output, if a layer with
// recipes is computing and there is a graph. Returns the output.
at::Tensor noted(const at::Tensor& output, const Recipe& recipe);
// For products: the recipe of this very tensor, or null. It is valid until the layer's forward ends.
const Recipe* recipe_of(const at::Tensor& output);

}  // namespace ladder
