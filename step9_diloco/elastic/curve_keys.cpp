#include "step9_diloco/elastic/curve_keys.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/core/check.hpp"

namespace ladder {

CurveKeys read_curve_keys(const std::string& file) {
  struct stat status = {};
  check(::stat(file.c_str(), &status) == 0, "--elastic-key: cannot read ", file, ": ",
        [] { return std::strerror(errno); });
  check((status.st_mode & 077) == 0, "--elastic-key: others may read ", file, ": chmod 600 ", file);
  CurveKeys keys;
  std::ifstream(file) >> keys.public_key >> keys.secret_key;
  char wanted[41] = {};
  check(keys.secret_key.size() == 40 && zmq_curve_public(wanted, keys.secret_key.c_str()) == 0 &&
            keys.public_key == wanted,
        "--elastic-key: ", file,
        " is no pair of keys: elastic_lighthouse --make-key FILE writes one");
  return keys;
}

void write_curve_keys(const std::string& file) {
  char public_key[41], secret_key[41];
  check(zmq_curve_keypair(public_key, secret_key) == 0, "this libzmq has no CURVE keys");
  const std::string text = concat(public_key, "\n", secret_key, "\n");
  const int fd = ::open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  check(fd >= 0, "cannot write ", file, ": ", [] { return std::strerror(errno); });
  const bool is_written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  check(is_written, "cannot write ", file);
}

}  // namespace ladder
