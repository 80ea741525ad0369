// For tests: runs a real program as a process of its own, and kills it if asked.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ladder {

// A command line cut at its spaces. What stands between single quotes is one word, or part of one.
std::vector<std::string> words(const std::string& text);

// The text as one word of a command line: paths may have spaces. It has no single quote itself.
std::string one_word(const std::string& text);

// What stands in front of the programs that `mpiexec` is to start: as root if need be, with more ranks
// than cores, ended after two minutes.
std::string mpi_launch(const std::string& mpiexec);

class Program {
 public:
  // Starts it, with standard output and error into one pipe. `command[0]` is the program (looked
  // for in PATH).
  explicit Program(const std::vector<std::string>& command, const std::string& folder = ".");
  ~Program();  // kills it if it still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const;
  // The processes that it has started itself, in no order: the ranks, for mpirun.
  std::vector<pid_t> children() const;
  // Reads output until it holds `text` or ends; true if it was found.
  bool wait_for_output(const std::string& text);
  // Reads the rest of the output and waits for the end: the exit code, or 128 + the signal that
  // killed it.
  int wait();
  const std::string& output() const { return output_; }  // as far as it has been read

 private:
  bool read_some();

  pid_t process_ = -1;
  int pipe_ = -1;
  std::string output_;
};

// Runs a program to its end.
struct ProgramResult {
  int exit_code = 0;
  std::string output;
};
ProgramResult run_program(const std::vector<std::string>& command, const std::string& folder = ".");

}  // namespace ladder
