#include "common/comm/traffic_theory.hpp"

#include "common/comm/messages/message_group.hpp"
#include "common/comm/slice.hpp"

namespace ladder {
namespace {

// One call of a rank, round by round.
class Rounds {
 public:
  Rounds(std::int64_t numel, std::int64_t element_bytes, int size, int rank,
         const Machines& machines)
      : numel_(numel),
        element_bytes_(element_bytes),
        size_(size),
        rank_(rank),
        machines_(machines),
        grid_(machines.grid(size)) {}

  // Slice q goes to rank q: within the machine those of all ranks with q's place, which that rank
  // adds up and passes on.
  Rounds& scatter() {
    for_others_here([&](int place) { send_slices_of(place, place); });
    for_others_outside([&](int peer) { send(peer, numel_of(peer)); });
    return *this;
  }
  // The rank's own slice goes to all others, in the reverse order.
  Rounds& gather() {
    for_others_outside([&](int peer) { send(peer, numel_of(rank_)); });
    for_others_here([&](int place) { send_slices_of(grid_.place_of(rank_), place); });
    return *this;
  }
  Rounds& broadcast(int root) {
    for (int peer = 0; rank_ == root && peer < size_; ++peer) {
      if (peer != root) send(peer, numel_);
    }
    end_round();
    return *this;
  }
  Rounds& message(bool is_outside) {
    send(numel_, is_outside);
    end_round();
    return *this;
  }
  Sent of(CommOp op) {
    sent_.calls = 1;
    Sent sent = {.traffic = {}, .links = links_};
    sent.traffic[op] = sent_;
    return sent;
  }

 private:
  template <class Act>
  void for_others_here(const Act& act) {
    for (int place = 0; place < grid_.per_machine; ++place) {
      if (place != grid_.place_of(rank_)) act(place);
    }
    end_round();
  }
  template <class Act>
  void for_others_outside(const Act& act) {
    for (int machine = 0; machine < grid_.num_machines; ++machine) {
      if (machine != grid_.machine_of(rank_)) act(grid_.rank_of(machine, grid_.place_of(rank_)));
    }
    end_round();
  }
  std::int64_t numel_of(int rank) const { return slice_of(numel_, size_, rank).numel; }

  // Those of the ranks with this place on all machines, to the one that has `receiver` here.
  void send_slices_of(int place, int receiver) {
    const int peer = grid_.rank_of(grid_.machine_of(rank_), receiver);
    for (int machine = 0; machine < grid_.num_machines; ++machine)
      send(peer, numel_of(grid_.rank_of(machine, place)));
  }
  void send(int peer, std::int64_t numel) { send(numel, machines_.are_apart(rank_, peer)); }
  void send(std::int64_t numel, bool is_outside) {
    const std::int64_t bytes = numel * element_bytes_;
    sent_.bytes_sent += bytes;
    sent_.messages += (bytes + kLongestMessageBytes - 1) / kLongestMessageBytes;
    sent_.outer_bytes += is_outside ? bytes : 0;
    (is_outside ? in_round_.outside : in_round_.inside).bytes += bytes;
  }
  void end_round() {
    add(in_round_.inside, links_.inside);
    add(in_round_.outside, links_.outside);
    in_round_ = {};
  }
  static void add(const LinkUse& round, LinkUse& sum) {
    sum.bytes += round.bytes;
    sum.rounds += round.bytes > 0 ? 1 : 0;
  }

  std::int64_t numel_, element_bytes_;
  int size_, rank_;
  const Machines& machines_;
  MachineGrid grid_;
  OpTraffic sent_;
  LinksUse links_, in_round_;
};

}  // namespace

Sent sent_by(CommOp kind, std::int64_t numel, std::int64_t element_bytes, int world_size, int rank,
             int peer, const Machines& machines) {
  Rounds call(numel, element_bytes, world_size, rank, machines);
  switch (kind) {
    case CommOp::kAllReduce:
      return call.scatter().gather().of(kind);
    case CommOp::kReduceScatter:
      return call.scatter().of(kind);
    case CommOp::kAllGather:
      return call.gather().of(kind);
    case CommOp::kBroadcast:
      return call.broadcast(peer).of(kind);
    case CommOp::kSend:
      return call.message(machines.are_apart(rank, peer)).of(kind);
    case CommOp::kRecv:
    case CommOp::kBarrier:
      break;
  }
  return call.of(kind);
}

Traffic all_reduce_traffic(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank,
                           const Machines& machines) {
  return sent_by(CommOp::kAllReduce, numel, element_bytes, world_size, rank, 0, machines).traffic;
}

Traffic reduce_scatter_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                               int rank, const Machines& machines) {
  return sent_by(CommOp::kReduceScatter, full_numel, element_bytes, world_size, rank, 0, machines)
      .traffic;
}

Traffic all_gather_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                           int rank, const Machines& machines) {
  return sent_by(CommOp::kAllGather, full_numel, element_bytes, world_size, rank, 0, machines)
      .traffic;
}

Traffic broadcast_traffic(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank,
                          int root, const Machines& machines) {
  return sent_by(CommOp::kBroadcast, numel, element_bytes, world_size, rank, root, machines)
      .traffic;
}

Traffic send_traffic(std::int64_t numel, std::int64_t element_bytes, bool is_outside) {
  return Rounds(numel, element_bytes, 1, 0, {}).message(is_outside).of(CommOp::kSend).traffic;
}

}  // namespace ladder
