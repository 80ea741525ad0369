#include "step0_single_gpu/judge/oracle.hpp"

#include "common/comm/self_communicator.hpp"
#include "step0_single_gpu/train.hpp"

namespace ladder {

FinishedRun ask_oracle(TrainOptions options, Fold fold, int num_replicas, const std::string& out) {
  const Trainer oracle = step0::trainer();
  World alone(std::make_unique<SelfCommunicator>(), Transport::kSelf);
  options.set<OracleOptions>() = {num_replicas, fold};
  options.output.out = out;
  options = options_for(oracle, options);
  return {oracle.step, oracle.train(options, alone), out};
}

}  // namespace ladder
