// Simulates links of given latency and bandwidth in front of any communicator, so that one machine
// can show a network and the gain from computing while it is busy.
//
// Every rank has two links, to ranks on the same machine and to those on others (machines.hpp).
// Each serves one operation after the other. An operation for which this rank sends b bytes over a
// link, in k rounds (traffic_theory.hpp), occupies it for
//
//   k · latency + b / bandwidth
//
// from its start, or from when the link is done with all earlier operations: messages of one round
// are on their way together, and share the latency. An operation passes the inner link first, and
// then the outer one. On each rank it is done when the inner operation is done and these ranks'
// links have sent their part of it:
//
//   send                                    this rank's
//   recv                                    the sender's
//   broadcast                               the root's
//   all_reduce, reduce_scatter, all_gather  those of all ranks: the slowest one decides
//
// So a receive does not wait for this rank's own links. A barrier, an empty tensor, and anything on
// one rank wait for no link.
//
// Only the completion of an operation is delayed; the bytes themselves are sent at once. Right
// after them, through the same inner communicator, the sender sends the time at which its links
// will be done, 8 bytes that take no link and are not in traffic(). So results and traffic are the
// inner communicator's.
//
// Collective: as Communicator; all ranks of the group pace it. They must be on one machine, whose
//             steady clock (CLOCK_MONOTONIC) is the same for all of its processes.
//
// wait() sleeps while a link is busy, as if a network card did the work, and wakes up regularly to
// advance the inner operations: other ranks, whose links may be faster, can depend on them.
#pragma once

#include <memory>

#include "common/comm/forwarding_communicator.hpp"
#include "common/comm/link.hpp"

namespace ladder {

class PacedCommunicator final : public ForwardingCommunicator {
 public:
  // Throws CheckError for a link that parse_link() would refuse, and if both are off. Links may
  // differ between ranks.
  PacedCommunicator(std::unique_ptr<Communicator> inner, const Links& links);

  WorkPtr start(const Operation& operation) override;
  std::unique_ptr<Communicator> split(int color, int key) override;  // shares this group's links
  Traffic traffic() const override;

 private:
  class LinkClocks;
  PacedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<LinkClocks> links);

  std::shared_ptr<LinkClocks> links_;  // this rank's, shared by all its groups
};

}  // namespace ladder
