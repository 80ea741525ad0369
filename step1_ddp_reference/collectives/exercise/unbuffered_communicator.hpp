// A Communicator for the judge whose messages show the mistakes that a fast transport hides.
//
//   no buffers    a send is done only once its receiver has called recv: behind every message
//                 comes an acknowledgement
//   no luck       what is received appears when its wait() is called (or test() is true), and never
//                 before; until then the elements are NaN
//   no hang       what is not done after kPatienceSeconds, times time_scale(), throws a CheckError
//                 that names both ranks, from wait() or test()
//   no overlap    elements that a message on its way reads or writes may not be received into, and
//                 what is being sent may not change before it has been waited for
//   no collective, no split and no tag but 0 and 1
//
// An answer that fails leaves nothing behind: messages have a group of their own for each check, and
// finish() sends what others still wait for, and receives what nobody has received. Its own
// memory is kOther.
//
// Collective: the constructor and finish().
// Lifetime:   `inner` and `agreements` outlive this, and its Works.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/forwarding_communicator.hpp"

namespace ladder::collectives {

class UnbufferedCommunicator final : public ForwardingCommunicator {
 public:
  static constexpr double kPatienceSeconds = 2;
  static constexpr std::int64_t kLongestBytes = 8 << 10;  // of a message

  UnbufferedCommunicator(Communicator& inner, Communicator& agreements);

  WorkPtr start(const Operation& operation) override;
  std::unique_ptr<Communicator> split(int color, int key) override;

  // What the answer has sent, without acknowledgements and what finish() sends.
  Traffic traffic() const override { return traffic_; }
  int num_never_waited_for() const;
  void finish();

 private:
  struct Message;
  class MessageWork;

  void post(Message& message, const at::Tensor& envelope);
  void check_overlap(const Operation& operation) const;
  void post_what_is_missing();
  std::string log() const;

  Communicator& agreements_;
  std::unique_ptr<Communicator> messages_, acknowledgements_;
  std::vector<std::shared_ptr<Message>> all_;
  Traffic traffic_;
};

}  // namespace ladder::collectives
