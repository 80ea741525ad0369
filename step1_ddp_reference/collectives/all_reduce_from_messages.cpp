#include "step1_ddp_reference/collectives/all_reduce_from_messages.hpp"

#include <ATen/ops/empty_like.h>

#include <vector>

#include "common/comm/tree_fold.hpp"

namespace ladder {

void all_reduce_from_messages(const at::Tensor& inout, Communicator& comm) {
  const int rank = comm.rank(), size = comm.size();
  const at::Tensor flat = inout.view(-1);
  const auto slice = [&](int of_rank) {
    const ElementRange range = slice_of(flat.numel(), size, of_rank);
    return flat.narrow(0, range.begin, range.numel);
  };
  // Each rank starts with its successor, so that no rank hears from all others at once.
  std::vector<int> peers;
  for (int i = 1; i < size; ++i) peers.push_back((rank + i) % size);
  std::vector<WorkPtr> started;
  const auto wait_for_all = [&started] {
    for (const WorkPtr& work : started) work->wait();
    started.clear();
  };

  const at::Tensor own = slice(rank);
  std::vector<at::Tensor> pieces(static_cast<std::size_t>(size));  // of the own slice, by rank
  const auto piece = [&](int of_rank) -> at::Tensor& {
    return pieces[static_cast<std::size_t>(of_rank)];
  };
  piece(rank) = own;
  for (const int peer : peers) piece(peer) = at::empty_like(own);
  for (const int peer : peers) started.push_back(comm.recv(piece(peer), peer, /*tag=*/0));
  for (const int peer : peers) started.push_back(comm.send(slice(peer), peer, /*tag=*/0));
  wait_for_all();

  // Neighbors in pairs, then neighboring pairs, and so on. The left one of two has their sum.
  for (int half = 1; half < size; half *= 2) {
    for (int left = 0; left + half < size; left += 2 * half) piece(left).add_(piece(left + half));
  }
  own.copy_(piece(0));

  for (const int peer : peers) started.push_back(comm.recv(slice(peer), peer, /*tag=*/1));
  for (const int peer : peers) started.push_back(comm.send(own, peer, /*tag=*/1));
  wait_for_all();
}

}  // namespace ladder
