#include "common/testing/program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/testing/time_limit.hpp"

namespace ladder {

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> list;
  bool is_quoted = false, is_in_word = false;
  for (const char c : text) {
    if (c == '\'') is_quoted = !is_quoted;
    const bool is_gap = !is_quoted && (c == ' ' || c == '\n');
    if (!is_gap && !is_in_word) list.emplace_back();
    is_in_word = !is_gap;
    if (is_in_word && c != '\'') list.back() += c;
  }
  check(!is_quoted, "missing closing quote in: ", text);
  return list;
}

std::string one_word(const std::string& text) {
  check(text.find('\'') == std::string::npos, "cannot quote: ", text);
  return "'" + text + "'";
}

std::string mpi_launch(const std::string& mpiexec) {
  return concat("env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ", one_word(mpiexec),
                " --timeout ", static_cast<int>(120 * time_scale()),
                " --oversubscribe --bind-to none ");
}

Program::Program(const std::vector<std::string>& command, const std::string& folder) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
    command_ += argument + " ";
  }
  arguments.push_back(nullptr);
  int ends[2];
  check(::pipe2(ends, O_CLOEXEC) == 0, "cannot create a pipe: ", std::strerror(errno));
  process_ = ::fork();
  check(process_ >= 0, "cannot start a process: ", std::strerror(errno));
  if (process_ == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    if (::chdir(folder.c_str()) == 0) ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  pipe_ = ends[0];
}

Program::~Program() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  ::close(pipe_);
}

void Program::signal(int number) const {
  ::kill(process_, number);
}

std::vector<pid_t> children_of(pid_t process) {
  std::ifstream list(concat("/proc/", process, "/task/", process, "/children"));
  return {std::istream_iterator<pid_t>(list), {}};
}

bool Program::read_some() {
  char buffer[4096];
  ssize_t count = 0;
  do count = ::read(pipe_, buffer, sizeof buffer);
  while (count < 0 && errno == EINTR);
  if (count > 0) output_.append(buffer, static_cast<std::size_t>(count));
  return count > 0;
}

bool Program::wait_for_output(const std::string& text) {
  while (output_.find(text) == std::string::npos) {
    if (!read_some()) return false;
  }
  return true;
}

int Program::wait(double seconds) {
  seconds *= time_scale();
  const Timer timer;
  const auto is_in_time = [&] {  // with output to read, or at its end
    pollfd output = {.fd = pipe_, .events = POLLIN, .revents = 0};
    const double left = seconds - timer.seconds();
    return left > 0 && ::poll(&output, 1, static_cast<int>(1000 * left)) != 0;
  };
  do {
    check(is_in_time(), command_, "is still running after ", seconds, " s; the output ends with\n",
          [&] { return output_.substr(std::max<std::size_t>(output_.size(), 1000) - 1000); });
  } while (read_some());
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace ladder
