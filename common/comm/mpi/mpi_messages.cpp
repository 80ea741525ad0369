#include "common/comm/mpi/mpi_messages.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/core/check.hpp"

namespace ladder {

MPI_Request* MpiMessages::new_request() {
  ++num_pending_;
  return &requests_.emplace_back(MPI_REQUEST_NULL);
}

void MpiMessages::send(Channel channel, const std::byte* data, std::int64_t bytes, int peer,
                       int tag) {
  const MPI_Comm comm = group_.comm_of(channel);
  OpTraffic& traffic = (*group_.meter)[op_];
  const auto start = group_.limits.synchronous_sends ? &MPI_Issend : &MPI_Isend;
  for (std::int64_t begin = 0; begin < bytes; begin += group_.limits.message_bytes) {
    const std::int64_t piece = std::min(group_.limits.message_bytes, bytes - begin);
    check_mpi(
        start(data + begin, static_cast<int>(piece), MPI_BYTE, peer, tag, comm, new_request()),
        "MPI_Isend or MPI_Issend");
    traffic.bytes_sent += piece;
    ++traffic.messages;
  }
}

void MpiMessages::receive(Channel channel, std::byte* data, std::int64_t bytes, int peer, int tag) {
  for (std::int64_t begin = 0; begin < bytes; begin += group_.limits.message_bytes) {
    const std::int64_t piece = std::min(group_.limits.message_bytes, bytes - begin);
    MpiGroup::Line& line = group_.lines[{channel, peer, tag}];
    unmatched_.push_back({channel, data + begin, piece, peer, tag, &line, line.num_joined++});
  }
}

void MpiMessages::barrier() {
  check_mpi(MPI_Ibarrier(group_.collectives, new_request()), "MPI_Ibarrier");
}

bool MpiMessages::test() {
  std::erase_if(unmatched_, [&](const Unmatched& receive) { return try_match(receive); });
  if (num_pending_ > 0) test_requests();
  if (!error_.empty()) throw CheckError(std::exchange(error_, {}));
  return num_pending_ == 0 && unmatched_.empty();
}

// With more ranks than cores, the rank that this one waits for needs the core.
void MpiMessages::idle(double /*waited_s*/) {
  std::this_thread::yield();
}

bool MpiMessages::try_match(const Unmatched& receive) {
  if (receive.place_in_line != receive.line->num_served) return false;
  int is_here = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check_mpi(MPI_Improbe(receive.peer, receive.tag, group_.comm_of(receive.channel), &is_here,
                        &message, &status),
            "MPI_Improbe");
  if (is_here == 0) return false;
  if (++receive.line->num_served == receive.line->num_joined) {
    group_.lines.erase({receive.channel, receive.peer, receive.tag});
  }
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  std::byte* data = receive.data;
  if (bytes != receive.bytes) {
    error_ = message_prefix(group_.rank, group_.size, to_string(op_)) +
             other_length(receive.peer, bytes, receive.bytes);
    discarded_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes)));
    data = discarded_.back().get();
  }
  check_mpi(MPI_Imrecv(data, bytes, MPI_BYTE, &message, new_request()), "MPI_Imrecv");
  return true;
}

void MpiMessages::test_requests() {
  indices_.resize(requests_.size());
  int num_completed = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &num_completed,
                         indices_.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  num_pending_ -= num_completed == MPI_UNDEFINED ? num_pending_ : num_completed;
}

}  // namespace ladder
