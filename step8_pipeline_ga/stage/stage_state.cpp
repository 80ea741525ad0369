#include "step8_pipeline_ga/stage/stage_state.hpp"

#include <ATen/ops/empty.h>

#include <map>

#include "common/core/memory_ledger.hpp"
#include "common/core/torch_types.hpp"
#include "common/train/checkpoint/joined.hpp"

namespace ladder {
namespace {

constexpr int kSaveTag = 8;

// A stored tensor: its owner, and its memory on this stage, if it is here.
struct TensorPlace {
  std::vector<std::int64_t> shape;
  int owner = 0;
  at::Tensor own = {};
};

at::Tensor scratch(at::IntArrayRef shape, at::ScalarType type) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  return at::empty(shape, type);
}

// Where tensors are, by their stored names: those of the whole model's tensors, each with one of
// the suffixes.
std::map<std::string, TensorPlace> places_of(const StagePlan& plan,
                                             const std::vector<std::string>& suffixes,
                                             const std::vector<NamedTensor>& own) {
  std::map<std::string, TensorPlace> places;
  for (std::size_t i = 0; i < plan.whole.tensors.size(); ++i) {
    const FlatTensor& tensor = plan.whole.tensors[i];
    for (const std::string& suffix : suffixes)
      places[tensor.name + suffix] = {tensor.shape, plan.owners[i]};
  }
  for (const auto& [name, tensor] : own) places.at(name).own = tensor;
  return places;
}

StateTensors staged_tensors(const std::map<std::string, TensorPlace>& places, const Mesh& mesh,
                            at::ScalarType type = at::kFloat) {
  StateTensors state;
  for (const auto& [name, place] : places) state.stored.push_back({name, type, place.shape});

  state.for_each = [=](const TensorVisitor& visit) {
    if (mesh.dp_rank() != 0) return;
    Communicator& ranks = mesh.model_parallel;
    for (const auto& [name, place] : places) {
      at::Tensor values = place.own;
      if (place.owner != 0 && ranks.rank() == place.owner) {
        ranks.send(values, /*peer=*/0, kSaveTag)->wait();
      } else if (place.owner != 0 && ranks.rank() == 0) {
        values = scratch(place.shape, type);
        ranks.recv(values, place.owner, kSaveTag)->wait();
      }
      if (ranks.rank() == 0) visit(name, values);
    }
  };

  state.fill = [=](const std::string& name, const TensorVisitor& read) {
    const TensorPlace& place = places.at(name);
    read(name, place.own.defined() ? place.own : scratch(place.shape, type));
  };
  return state;
}

// As the layers have them: in parts, if layers are cut.
StateTensors parameters_of(const StagePlan& plan, const FlatModel& model, const Mesh& mesh) {
  return in_fp32(staged_tensors(places_of(plan, {""}, model.named_params()), mesh,
                                to_torch(plan.layout.precision.params)));
}

}  // namespace

StateTensors stage_parameters(const StagePlan& plan, const FlatModel& model, const Mesh& mesh) {
  return joined(parameters_of(plan, model, mesh), parts_of(plan.whole));
}

TrainState stage_state(const StagePlan& plan, const FlatModel& model, Optimizer& optimizer,
                       BatchStream& batches, const Mesh& mesh, const AddedState& added) {
  std::vector<NamedTensor> own = optimizer.named_state(model.layout());
  std::vector<std::string> suffixes;
  for (const NamedTensor& state : optimizer.state()) suffixes.push_back("." + state.name);
  for (const auto& [name, flat] : added.tensors) {
    suffixes.push_back("." + name);
    for (const NamedTensor& tensor : named_views(model.layout(), flat))
      own.push_back({tensor.name + suffixes.back(), tensor.tensor});
  }
  StateTensors parameters = parameters_of(plan, model, mesh);
  if (optimizer.masters().defined()) {
    const auto masters = named_views(model.layout(), optimizer.masters());
    parameters =
        rounded_to(parameters, staged_tensors(places_of(plan, {""}, masters), mesh), optimizer);
  }
  TrainState state = state_of(parameters, staged_tensors(places_of(plan, suffixes, own), mesh),
                              optimizer, batches, SummedModel{plan.whole, model.leaves()});
  state.reference = added.reference;
  return state;
}

}  // namespace ladder
