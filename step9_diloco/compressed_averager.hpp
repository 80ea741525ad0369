// An average whose values travel in fewer bytes, and are the same bits on every worker
// nevertheless.
//
// Worker r is responsible for slice r of the values, as in the all-reduce of
// message_communicator.hpp, but what travels is encoded (wire_format.hpp):
//
//   start()            every worker encodes slice q and sends it to worker q, for every q
//   poll(), finish()   once all have arrived, worker q decodes what it got, adds it up in fp32, in the
//                      order of tree_sum.hpp, divides, encodes the mean and sends it to all
//   finish()           everybody decodes the means of all slices
//
// All workers decode the same bytes, also worker q its own mean: it knows a better one, but is
// alone with it, and global parameters that differ never meet again. It also decodes its own part
// of the sum before it adds it. That costs a rounding that could have been avoided, but no worker's
// values count differently from the others', whichever slice they are in.
//
// A value is rounded twice, on its way to the sum and as the mean. So the mean is off by at most e
// + e', where e is the mean of the workers' errors and e' that of encoding the mean. In fp32 both
// are 0, and the result is GroupAverager's, to the bit.
//
// Workers reach the second half at different times, between other operations of the group. So the
// means travel in sends and receives, which need no common order; broadcasts would.
#pragma once

#include <memory>
#include <vector>

#include "step9_diloco/averager.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "step9_diloco/wire_format.hpp"

namespace ladder {

// Collective: start() and finish(); poll() may be called at any time, by any worker.
// Lifetime: the communicator outlives it.
// Memory: in the first half about twice the encoded values, in the second about once; in between also
//         log2 of the number of workers, rounded up, decoded slices (category: communication).
class CompressedAverager final : public Averager {
 public:
  CompressedAverager(Communicator& comm, WireFormat format) : comm_(comm), format_(format) {}
  void start(at::Tensor values) override;  // encodes and returns; what it has sent is on its way
  void poll() override;
  std::optional<int> finish() override;

 private:
  at::Tensor slice_of_worker(int worker) const;  // a view of the values
  void average_own_slice();                      // overwrites it
  void share_mean();                             // the second half; waits for the first

  Communicator& comm_;
  WireFormat format_;
  at::Tensor values_;
  std::vector<at::Tensor> pieces_;  // of this worker's slice: all workers' bytes, in their order
  std::vector<at::Tensor> means_;   // of all slices, in the second half
  std::vector<WorkPtr> on_their_way_;
};

// The averager that a run's options ask for. In fp32 it is GroupAverager, which needs one all-reduce,
// or ExactAverager. Lifetime: the communicator outlives it.
std::unique_ptr<Averager> make_averager(const TrainOptions& options, Communicator& comm);

}  // namespace ladder
