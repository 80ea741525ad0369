// The keys that keep strangers out: one pair for all workers of a run, in a file that each has.
//
// With them every connection between workers is encrypted and authenticated by CURVE (ZeroMQ's use
// of Curve25519, rfc.zeromq.org/spec/26): both sides must own the pair's secret key.
#pragma once

#include <string>

namespace ladder {

struct CurveKeys {
  std::string public_key, secret_key;  // Z85 text, 40 characters each
};

// The file has two lines: public key and secret key. Throws CheckError naming the file if it cannot
// be read, is no such file, holds keys that do not belong together, or may be read by others.
CurveKeys read_curve_keys(const std::string& file);

// Writes a new pair that only the user may read. Throws CheckError if the file exists.
void write_curve_keys(const std::string& file);

}  // namespace ladder
