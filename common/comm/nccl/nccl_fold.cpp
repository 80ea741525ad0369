#include "common/comm/nccl/nccl_fold.hpp"

#include "common/comm/nccl/fold_kernel.hpp"
#include "common/comm/nccl/nccl_calls.hpp"

namespace ladder {
namespace {

// As one group of NCCL's, in which neither a send nor a receive has to come first.
template <class Sent, class Received>
void exchange_with_peers(const RankSlices& slices, Sent sent_to, Received received_from,
                         ncclComm_t comm, cudaStream_t stream) {
  check_nccl(ncclGroupStart(), "ncclGroupStart");
  try {
    for (int peer = 0; peer < slices.size(); ++peer) {
      if (peer == slices.rank()) continue;
      const RankSlices::Bytes out = sent_to(peer), in = received_from(peer);
      if (!out.empty())
        check_nccl(ncclSend(out.data(), out.size(), ncclUint8, peer, comm, stream), "ncclSend");
      if (!in.empty())
        check_nccl(ncclRecv(in.data(), in.size(), ncclUint8, peer, comm, stream), "ncclRecv");
    }
  } catch (...) {
    ncclGroupEnd();  // NCCL aborts no communicator inside a group
    throw;
  }
  check_nccl(ncclGroupEnd(), "ncclGroupEnd");
}

}  // namespace

void scatter_and_fold(const RankSlices& slices, std::byte* target, ncclComm_t comm,
                      cudaStream_t stream) {
  exchange_with_peers(
      slices, [&](int peer) { return slices.slice(peer); },
      [&](int peer) { return slices.arriving(peer); }, comm, stream);
  fold_on_gpu(slices.pieces(), target, slices.dtype(), slices.own_numel(), stream);
}

void gather(const RankSlices& slices, ncclComm_t comm, cudaStream_t stream) {
  exchange_with_peers(
      slices, [&](int /*peer*/) { return slices.own(); },
      [&](int peer) { return slices.slice(peer); }, comm, stream);
}

}  // namespace ladder
