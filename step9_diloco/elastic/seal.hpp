// Shows who has written a value into the store: somebody with the run's key.
//
// Each value is preceded by a MAC (message authentication code), a checksum that only the owner of
// a key can compute: HMAC-SHA512-256, libsodium's crypto_auth. It covers the name under which the
// value is stored, too. So nobody can pass off one worker's vote as another's, or an old round's
// decision as a new one's: names contain worker, quorum and the lighthouse's epoch (records.hpp).
//
// Not promised: that a value is the last one of its name, or that it is still there. Whoever
// reaches the lighthouse's port can delete values and put back old ones. That may delay rounds, or
// make them fail, but no worker adopts anything that no worker with the key has written.
//
// Without a key all use one that everybody knows: then the MAC proves nothing.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "step9_diloco/elastic/curve_keys.hpp"

namespace ladder {

class Seal {
 public:
  explicit Seal(const std::optional<CurveKeys>& keys = {});

  std::string seal(const std::string& name, const std::string& text) const;
  // The text; nothing if it was not sealed with this key, under this name.
  std::optional<std::string> open(const std::string& name, const std::string& sealed) const;

 private:
  std::array<unsigned char, 32> key_ = {};
};

}  // namespace ladder
