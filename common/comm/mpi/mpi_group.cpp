#include "common/comm/mpi/mpi_group.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "common/comm/mpi/mpi_messages.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

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

}  // namespace

void check_mpi(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CheckError(concat(function, " failed: ", text));
}

std::unique_ptr<Messages> MpiGroup::new_messages(CommOp op) {
  return std::make_unique<MpiMessages>(*this, op);
}

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

}  // namespace ladder
