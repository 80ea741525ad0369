// For tests: runs a real program in its own process, and can kill it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ladder {

// Splits a command line at its spaces. Text in single quotes is one word, or part of one.
std::vector<std::string> words(const std::string& text);

// Quotes the text as one word of a command line, as for paths with spaces. Throws CheckError if it
// contains a single quote.
std::string one_word(const std::string& text);

// The beginning of a command line that starts programs by `mpiexec`: as root if necessary, with
// more ranks than cores, and for at most two minutes.
std::string mpi_launch(const std::string& mpiexec);

// The processes that one has started itself, in no particular order: mpirun's ranks.
std::vector<pid_t> children_of(pid_t process);

class Program {
 public:
  // Starts command[0], searched for in PATH, with standard output and error in one pipe.
  explicit Program(const std::vector<std::string>& command, const std::string& folder = ".");
  ~Program();  // kills the process if it is still running
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const;
  std::vector<pid_t> children() const { return children_of(process_); }
  // Reads output until it contains `text` or ends; true if `text` was found.
  bool wait_for_output(const std::string& text);
  // Reads the rest of the output, waits for the end and returns the exit code, or 128 + the signal
  // that killed the process. Throws CheckError with the command and the last lines of the output if
  // that takes longer than `seconds` (times time_scale(), time_limit.hpp).
  int wait(double seconds = 600);
  const std::string& output() const { return output_; }  // all that has been read so far

 private:
  bool read_some();

  std::string command_;
  pid_t process_ = -1;
  int pipe_ = -1;
  std::string output_;
};

}  // namespace ladder
