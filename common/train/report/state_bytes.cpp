#include "common/train/report/state_bytes.hpp"

#include <nlohmann/json.hpp>

namespace ladder {

StateBytes& StateBytes::operator+=(const StateBytes& other) {
  parameters += other.parameters;
  gradients += other.gradients;
  optimizer += other.optimizer;
  communication += other.communication;
  return *this;
}

Json to_json(const StateBytes& bytes) {
  return {{"parameters", bytes.parameters},
          {"gradients", bytes.gradients},
          {"optimizer", bytes.optimizer},
          {"communication", bytes.communication}};
}

Json to_json(const Traffic& traffic) {
  Json json = Json::object();
  for (int i = 0; i < kNumCommOps; ++i) {
    const auto op = static_cast<CommOp>(i);
    json[to_string(op)] = {{"calls", traffic[op].calls},
                           {"bytes_sent", traffic[op].bytes_sent},
                           {"messages", traffic[op].messages},
                           {"outer_bytes", traffic[op].outer_bytes}};
  }
  return json;
}

}  // namespace ladder
