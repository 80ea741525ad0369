#include "common/comm/mpi/mpi_communicator.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/comm/argument_checks.hpp"
#include "common/comm/messages/message_communicator.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

// Throws CheckError with MPI's own text for `code`, unless it is MPI_SUCCESS.
void check_mpi(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CheckError(concat(function, " failed: ", text));
}

// MPI counts bytes as int and guarantees tags up to MPI_TAG_UB, which is at least 32767.
MpiLimits within_mpi(MpiLimits limits, MPI_Comm comm) {
  int* largest_tag = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(comm, MPI_TAG_UB, &largest_tag, &found), "MPI_Comm_get_attr");
  const std::int64_t num_tags = found != 0 ? std::int64_t{*largest_tag} + 1 : 32768;
  constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
  check(limits.message_bytes >= 1, "MpiLimits: message_bytes is ", limits.message_bytes);
  check(limits.num_tags >= 1, "MpiLimits: num_tags is ", limits.num_tags);
  return {.message_bytes = std::min(limits.message_bytes, kMaxInt),
          .num_tags = std::min({limits.num_tags, num_tags, kMaxInt}),
          .synchronous_sends = limits.synchronous_sends};
}

// The state that the operations of one group share: MPI's handles, tags and counts.
//
// MPI errors are thrown as CheckError instead of ending the process, so that they can be reported
// with rank and operation. The handles are never freed: freeing is collective, and a destructor
// must not communicate. MPI frees them when it ends.
struct MpiGroup final : MessageGroup {
  std::unique_ptr<Messages> new_messages(CommOp op) override;
  std::shared_ptr<MessageGroup> part(int color, const std::vector<int>& members) override;
  MPI_Comm comm_of(Channel channel) const {
    return channel == Channel::kCollectives ? collectives : point_to_point;
  }

  MPI_Comm collectives = MPI_COMM_NULL;
  MPI_Comm point_to_point = MPI_COMM_NULL;  // with the caller's tags
  MpiLimits limits;

  // Messages from one sender with the same tag arrive in the order in which they were sent, so
  // their receives wait in line.
  struct Line {
    std::int64_t num_joined = 0;
    std::int64_t num_served = 0;
  };
  std::map<std::tuple<Channel, int /*peer*/, int /*tag*/>, Line> lines;
};

// Messages in flight over MPI: bytes handed to it that have not all left or arrived yet.
//
// A message longer than the group's limit travels, and counts, as several (MPI's sizes are int).
//
// A piece is first matched (MPI_Improbe) and its length checked, and only then received into the
// caller's memory. Posting a receive beforehand would be shorter, but if the sender's message is
// longer than the buffer, Open MPI 4.1 reports the truncation only after overwriting the memory
// behind it.
class MpiMessages final : public Messages {
 public:
  MpiMessages(MpiGroup& group, CommOp op) : group_(group), op_(op) {}

  void send(Channel channel, const std::byte* data, std::int64_t bytes, int peer, int tag) override;
  void receive(Channel channel, std::byte* data, std::int64_t bytes, int peer, int tag) override;
  void barrier() override;
  bool test() override;
  void idle(double waited_s) override;

 private:
  struct Unmatched {
    Channel channel;
    std::byte* data;
    std::int64_t bytes;
    int peer;
    int tag;
    MpiGroup::Line* line;
    std::int64_t place_in_line;
  };
  bool try_match(const Unmatched& receive);  // true if it is matched now
  void test_requests();
  MPI_Request* new_request();

  MpiGroup& group_;
  CommOp op_;
  std::vector<Unmatched> unmatched_;
  int num_pending_ = 0;  // of the requests
  std::vector<MPI_Request> requests_;
  std::vector<int> indices_;                             // for MPI_Testsome
  std::vector<std::unique_ptr<std::byte[]>> discarded_;  // messages of the wrong length
  std::string error_;                                    // about the last one, until thrown
};

// Takes over `collectives` and duplicates it for point-to-point messages. Collective over it.
std::shared_ptr<MpiGroup> make_mpi_group(MPI_Comm collectives, MpiLimits limits,
                                         std::shared_ptr<Traffic> meter) {
  auto group = std::make_shared<MpiGroup>();
  group->collectives = collectives;
  check_mpi(MPI_Comm_dup(collectives, &group->point_to_point), "MPI_Comm_dup");
  for (const MPI_Comm comm : {group->collectives, group->point_to_point}) {
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  check_mpi(MPI_Comm_rank(collectives, &group->rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(collectives, &group->size), "MPI_Comm_size");
  group->limits = within_mpi(limits, collectives);
  group->num_tags = group->limits.num_tags;
  group->meter = std::move(meter);
  return group;
}

std::unique_ptr<Messages> MpiGroup::new_messages(CommOp op) {
  return std::make_unique<MpiMessages>(*this, op);
}

// MPI_Comm_split blocks without advancing our operations: all ranks are here (message_group.hpp).
std::shared_ptr<MessageGroup> MpiGroup::part(int color, const std::vector<int>& members) {
  MPI_Comm part = MPI_COMM_NULL;
  const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
  check_mpi(MPI_Comm_split(collectives, color < 0 ? MPI_UNDEFINED : color, static_cast<int>(place),
                           &part),
            "MPI_Comm_split");
  return part == MPI_COMM_NULL ? nullptr : make_mpi_group(part, limits, meter);
}

MPI_Request* MpiMessages::new_request() {
  ++num_pending_;
  return &requests_.emplace_back(MPI_REQUEST_NULL);
}

void MpiMessages::send(Channel channel, const std::byte* data, std::int64_t bytes, int peer,
                       int tag) {
  const MPI_Comm comm = group_.comm_of(channel);
  const auto start = group_.limits.synchronous_sends ? &MPI_Issend : &MPI_Isend;
  for (std::int64_t begin = 0; begin < bytes; begin += group_.limits.message_bytes) {
    const std::int64_t piece = std::min(group_.limits.message_bytes, bytes - begin);
    check_mpi(
        start(data + begin, static_cast<int>(piece), MPI_BYTE, peer, tag, comm, new_request()),
        "MPI_Isend or MPI_Issend");
    group_.count(op_, peer, piece, 1);
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

// With more ranks than cores, the rank that this one waits for needs the core. Linux gives it a core
// that is only yielded as one of many, but all of one that sleeps.
void MpiMessages::idle(double waited_s) {
  waited_s < 1e-3 ? std::this_thread::yield()
                  : std::this_thread::sleep_for(std::chrono::microseconds(50));
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

}  // namespace

std::unique_ptr<Communicator> mpi_communicator(MpiLimits limits) {
  MPI_Comm all = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &all), "MPI_Comm_dup");
  return std::make_unique<MessageCommunicator>(
      make_mpi_group(all, limits, std::make_shared<Traffic>()));
}

MpiProcess::MpiProcess() : exceptions_at_start_(std::uncaught_exceptions()) {
  int is_running = 0;
  check_mpi(MPI_Initialized(&is_running), "MPI_Initialized");
  int level = MPI_THREAD_SINGLE;
  if (is_running != 0) {
    check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    is_ours_ = true;
  }
  // Gradient hooks run on autograd's thread, so several threads call MPI, one at a time.
  check(level >= MPI_THREAD_SERIALIZED, "this MPI provides thread level ", level,
        ", but MPI_THREAD_SERIALIZED (", MPI_THREAD_SERIALIZED, ") is required");
  MPI_Comm machine = MPI_COMM_NULL;
  check_mpi(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, /*key=*/0, MPI_INFO_NULL, &machine),
      "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(machine, &local_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(machine, &num_local_ranks_), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &first_local_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Bcast(&first_local_rank_, 1, MPI_INT, /*root=*/0, machine), "MPI_Bcast");
  check_mpi(MPI_Comm_free(&machine), "MPI_Comm_free");
}

MpiProcess::~MpiProcess() {
  // A rank that exits with an exception must not wait in MPI_Finalize for ranks that wait for it.
  if (!is_ours_ || std::uncaught_exceptions() > exceptions_at_start_) return;
  // Others may still fail. Open MPI 4.1 hangs if a rank aborts while another is in MPI_Finalize.
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}

void MpiProcess::abort(int exit_code) {
  // A pause, so that mpirun passes on what this rank has said before it speaks itself.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);  // MPI_Abort is not guaranteed to end this process
}

}  // namespace ladder
