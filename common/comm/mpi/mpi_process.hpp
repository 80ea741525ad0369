// MPI's start and end in this process.
#pragma once

namespace ladder {

class MpiProcess {
 public:
  MpiProcess();   // starts MPI unless it is running. Collective. Throws CheckError.
  ~MpiProcess();  // ends MPI if this object started it and no exception is unwinding the stack
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  int local_rank() const { return local_rank_; }
  int num_local_ranks() const { return num_local_ranks_; }  // on this machine
  [[noreturn]] static void abort(int exit_code);

 private:
  bool is_ours_ = false;
  int exceptions_at_start_ = 0;
  int local_rank_ = 0;
  int num_local_ranks_ = 1;
};

}  // namespace ladder
