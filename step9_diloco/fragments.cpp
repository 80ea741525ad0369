#include "step9_diloco/fragments.hpp"

#include "common/core/check.hpp"

namespace ladder {

std::vector<Fragment> plan_fragments(const FlatLayout& layout, std::int64_t num_fragments) {
  const auto num_tensors = static_cast<std::int64_t>(layout.tensors.size());
  check_usage(num_fragments <= num_tensors, "--fragments ", num_fragments, " is more than the ",
              num_tensors, " tensors of the model: a fragment has at least one");
  const auto start_of = [&](std::int64_t tensor) {
    return tensor == num_tensors ? layout.numel
                                 : layout.tensors[static_cast<std::size_t>(tensor)].start;
  };
  std::vector<Fragment> fragments;
  std::int64_t first = 0;
  for (std::int64_t k = 1; k <= num_fragments; ++k) {
    const std::int64_t goal = layout.numel * k / num_fragments;
    const std::int64_t most = num_tensors - (num_fragments - k);  // leaves one for each to come
    std::int64_t end = first + 1;
    while (end < most && start_of(end + 1) - goal <= goal - start_of(end)) ++end;  // comes closer
    fragments.push_back({start_of(first), start_of(end) - start_of(first)});
    first = end;
  }
  return fragments;
}

}  // namespace ladder
