// What theory asks libtorch about this machine, where it is linked without libtorch. The answers are in
// no plan: --products is the default of an option, the others are for --dry-run's text and its limits.
#include "common/model/products.hpp"

namespace ladder {

Products faster_products() {
  return Products::kBlas;
}

bool has_instructions_for(NumberFormat format) {
  return !is_16_bit(format);
}

std::string cpu_capability() {
  return "not known";
}

}  // namespace ladder
