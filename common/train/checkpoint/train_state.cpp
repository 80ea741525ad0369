#include "common/train/checkpoint/train_state.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/joined.hpp"

namespace ladder {

namespace {

Json contents_of(const Dataset& data) {
  return {
      {"samples", data.num_samples()}, {"tokens", data.num_tokens()}, {"hash", data.source_hash()}};
}

}  // namespace

TrainState full_state(const FlatModel& model, Optimizer& optimizer, BatchStream& batches) {
  return state_of(stored_parameters(model, optimizer),
                  whole_tensors(optimizer.named_state(model.layout())), optimizer, batches,
                  SummedModel{model.layout(), model.leaves()});
}

StateTensors stored_parameters(const FlatModel& model, Optimizer& optimizer) {
  const StateTensors parameters = whole_tensors(model.named_params());
  if (!optimizer.masters().defined()) return in_fp32(parameters);
  return rounded_to(parameters, whole_tensors(optimizer.updated_model(model).named_params()),
                    optimizer);
}

StateTensors rounded_to(const StateTensors& parameters, const StateTensors& masters,
                        Optimizer& optimizer) {
  StateTensors both = masters;
  both.for_each = [=, &optimizer](const TensorVisitor& visit) {
    optimizer.start_masters();  // saved before the first step
    masters.for_each(visit);
  };
  both.fill = [=, &optimizer](const std::string& name, const TensorVisitor& read) {
    optimizer.start_masters();  // from here on, they no longer follow the parameters
    masters.fill(name, [&](const std::string& to, const at::Tensor& values) {
      read(to, values);
      parameters.fill(name,
                      [&](const std::string&, const at::Tensor& buffer) { buffer.copy_(values); });
    });
  };
  return both;
}

TrainState state_of(const StateTensors& parameters, const StateTensors& optimizer_tensors,
                    Optimizer& optimizer, BatchStream& batches, std::optional<SummedModel> summed) {
  const auto parts = summed ? parts_of(summed->whole) : std::map<std::string, TensorPart>();
  TrainState state = {joined(parameters, parts),
                      joined(optimizer_tensors, parts),
                      optimizer.num_steps(),
                      batches.position(),
                      batches.training_data().tokenizer(),
                      [&optimizer, &batches](const LoadedCheckpoint& loaded) {
                        optimizer.set_num_steps(loaded.optimizer_steps);
                        batches.seek(loaded.data);
                      },
                      &batches};
  state.data_contents =
      std::make_shared<Json>(Json{{"training", contents_of(batches.training_data())},
                                  {"validation", contents_of(batches.validation_data())}});
  state.summed = std::move(summed);
  return state;
}

}  // namespace ladder
