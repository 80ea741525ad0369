// oneDNN's product, which libtorch registers for its compiler.
#pragma once

#include "common/model/find_operator.hpp"

namespace ladder {

// x [M, K] times the transpose of weight [N, K], plus bias [N].
using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&,
                                   const std::optional<at::Tensor>&, c10::string_view,
                                   c10::List<std::optional<at::Scalar>>,
                                   std::optional<c10::string_view>);

// Null if this libtorch does not have it with this signature.
const c10::TypedOperatorHandle<LinearPointwise>* onednn_linear();

}  // namespace ladder
