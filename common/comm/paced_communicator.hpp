// Any communicator behind a link of given latency and bandwidth, so that a network, and what is won
// by computing while it works, can be shown on one machine.
//
// Every rank has one link, and it serves one operation after the other. An operation that makes
// this rank send b bytes in k messages (traffic_theory.hpp) has the link for
//
//   k · latency + b / bandwidth
//
// from its start, or from when the operations started before it have had theirs. It is done when
// the inner operation is done and this time has passed. What makes this rank send nothing (a
// receive, a broadcast from another rank, anything on one rank) does not wait for the link, nor
// does a barrier.
//
// Only the end of an operation is put off: the bytes themselves travel at once. So results and
// traffic are the inner communicator's, and a receiver does not see the sender's link; its receive
// may be done before the send is.
//
// wait() sleeps while the link works, as if a network card did, and wakes up now and then to move
// the inner operations on: another rank's, whose link may be faster, can depend on them.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.hpp"

namespace ladder {

struct Link {
  double latency_us = 0;  // for each message
  double gbit_per_s = 0;  // 10^9 bits

  bool is_on() const { return latency_us != 0 || gbit_per_s != 0; }
  bool operator==(const Link&) const = default;
};

// "50:1" is 50 µs and 1 Gbit/s. Throws UsageError naming --link for anything that is no such pair,
// a negative latency and no bandwidth.
Link parse_link(const std::string& text);

class PacedCommunicator final : public Communicator {
 public:
  // Throws CheckError for a link that parse_link() would refuse; ranks may have different ones.
  PacedCommunicator(std::unique_ptr<Communicator> inner, Link link);

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  WorkPtr all_reduce(at::Tensor inout) override;
  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override;
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override;
  WorkPtr broadcast(at::Tensor inout, int root) override;
  WorkPtr send(const at::Tensor& tensor, int peer, int tag) override;
  WorkPtr recv(at::Tensor tensor, int peer, int tag) override;
  void barrier() override { inner_->barrier(); }
  std::unique_ptr<Communicator> split(int color, int key) override;  // shares this group's link
  Traffic traffic() const override { return inner_->traffic(); }

 private:
  class LinkClock;
  PacedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<LinkClock> link);
  WorkPtr paced(WorkPtr inner, const OpTraffic& sent);

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<LinkClock> link_;  // of this rank, whatever the group
};

}  // namespace ladder
