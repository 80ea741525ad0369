#include "common/comm/mpi_messages.hpp"

#include <algorithm>

#include "common/core/check.hpp"

namespace ladder {

void MpiMessages::send(MPI_Comm comm, const std::byte* data, std::int64_t bytes, int peer,
                       int tag) {
  OpTraffic& traffic = group_.traffic[op_];
  for (std::int64_t begin = 0; begin < bytes; begin += group_.limits.message_bytes) {
    const std::int64_t piece = std::min(group_.limits.message_bytes, bytes - begin);
    check_mpi(MPI_Isend(data + begin, static_cast<int>(piece), MPI_BYTE, peer, tag, comm,
                        &requests_.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Isend");
    expected_.push_back({peer, piece, /*is_receive=*/false});
    ++num_pending_;
    traffic.bytes_sent += piece;
    ++traffic.messages;
  }
}

void MpiMessages::receive(MPI_Comm comm, std::byte* data, std::int64_t bytes, int peer, int tag) {
  for (std::int64_t begin = 0; begin < bytes; begin += group_.limits.message_bytes) {
    const std::int64_t piece = std::min(group_.limits.message_bytes, bytes - begin);
    check_mpi(MPI_Irecv(data + begin, static_cast<int>(piece), MPI_BYTE, peer, tag, comm,
                        &requests_.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Irecv");
    expected_.push_back({peer, piece, /*is_receive=*/true});
    ++num_pending_;
  }
}

void MpiMessages::barrier(MPI_Comm comm) {
  check_mpi(MPI_Ibarrier(comm, &requests_.emplace_back(MPI_REQUEST_NULL)), "MPI_Ibarrier");
  expected_.push_back({group_.rank, 0, /*is_receive=*/false});
  ++num_pending_;
}

bool MpiMessages::test() {
  if (num_pending_ == 0) return true;
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int num_completed = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(),
                                &num_completed, indices_.data(), statuses_.data());
  if (code != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testsome");
  if (num_completed == MPI_UNDEFINED) num_completed = num_pending_;  // no request is active
  num_pending_ -= num_completed;
  for (int i = 0; i < num_completed; ++i) {
    const auto request = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
    const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    // Only MPI_ERR_IN_STATUS sets the field of each status.
    check_completed(expected_[request], code == MPI_SUCCESS ? MPI_SUCCESS : status.MPI_ERROR,
                    status);
  }
  return num_pending_ == 0;
}

void MpiMessages::check_completed(const Expected& expected, int code,
                                  const MPI_Status& status) const {
  const auto fail = [&](const auto&... what) {
    throw CheckError(concat("rank ", group_.rank, " of ", group_.size, ": ", to_string(op_), ": ",
                            what...));
  };
  if (!expected.is_receive) {
    if (code != MPI_SUCCESS) fail("sending ", expected.bytes, " bytes to rank ", expected.peer, " failed");
    return;
  }
  int error_class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
  if (error_class == MPI_ERR_TRUNCATE) {
    fail("rank ", expected.peer, " sent more than the ", expected.bytes,
         " bytes expected here; all ranks must pass the same dtype and numel");
  }
  if (error_class != MPI_SUCCESS) {
    fail("receiving ", expected.bytes, " bytes from rank ", expected.peer, " failed");
  }
  int received = 0;
  MPI_Get_count(&status, MPI_BYTE, &received);
  if (received != expected.bytes) {
    fail("rank ", expected.peer, " sent ", received, " bytes where ", expected.bytes,
         " were expected; all ranks must pass the same dtype and numel");
  }
}

}  // namespace ladder
