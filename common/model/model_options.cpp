#include "common/model/model_options.hpp"

#include <algorithm>

#include "common/core/check.hpp"
#include "common/model/family.hpp"

namespace ladder {

const std::vector<NamedModel>& named_models() {
  static const std::vector<NamedModel> kModels = [] {
    std::vector<NamedModel> models;
    for (const ModelFamily family : all_families())
      models.push_back({traits_of(family).name(), family});
    for (const ModelFamily family : all_families())
      for (auto& [name, shape] : traits_of(family).models()) {
        shape.family = family;
        models.push_back({name, family, shape});
      }
    return models;
  }();
  return kModels;
}

const NamedModel& named_model(const std::string& name) {
  const auto found = std::ranges::find(named_models(), name, &NamedModel::name);
  check_usage(found != named_models().end(), "'", name, "' is no model that --model knows");
  return *found;
}

}  // namespace ladder
