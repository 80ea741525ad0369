#include <ATen/Version.h>

#include "common/model/modules.hpp"
#include "common/model/onednn_linear.hpp"

namespace ladder {

const c10::TypedOperatorHandle<LinearPointwise>* onednn_linear() {
  static const auto handle =
      find_operator<LinearPointwise>("mkldnn::_linear_pointwise", c10::DispatchKey::CPU);
  return handle ? &*handle : nullptr;
}

Products faster_products() {
  static const bool is_onednn_faster =
      onednn_linear() != nullptr && at::get_cpu_capability() == "AVX512";
  return is_onednn_faster ? Products::kOneDnn : Products::kBlas;
}

}  // namespace ladder
