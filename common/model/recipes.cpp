#include "common/model/recipes.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace ladder {
namespace {

using Watched = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// Of the layer that computes on this thread. Weak: a note keeps no tensor in memory, and no other one
// can be taken for it.
using Notes = std::vector<std::pair<Watched, Recipe>>;
thread_local Notes* current_notes = nullptr;

}  // namespace

std::function<at::Tensor(const at::Tensor&)> with_recipes(const Layer& layer) {
  return [forward = layer.forward](const at::Tensor& input) {
    Notes notes;
    struct Scope {
      explicit Scope(Notes* own) : outer(std::exchange(current_notes, own)) {}
      ~Scope() { current_notes = outer; }
      Notes* outer;
    } const scope(at::GradMode::is_enabled() ? &notes : nullptr);
    return forward(input);
  };
}

at::Tensor noted(const at::Tensor& output, const Recipe& recipe) {
  if (current_notes != nullptr)
    current_notes->emplace_back(Watched(output.getIntrusivePtr()), recipe);
  return output;
}

const Recipe* recipe_of(const at::Tensor& output) {
  if (current_notes == nullptr) return nullptr;
  const auto found = std::ranges::find_if(*current_notes, [&](const auto& note) {
    return note.first._unsafe_get_target() == output.unsafeGetTensorImpl();
  });
  return found == current_notes->end() ? nullptr : &found->second;
}

}  // namespace ladder
