#include "step9_diloco/elastic/seal.hpp"

#include <sodium.h>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::string_view kPurpose = "ladder: records of elastic workers";
constexpr std::size_t kMacBytes = crypto_auth_BYTES;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string named(const std::string& name, std::string_view text) {  // no name contains a zero
  return concat(name, '\0', text);
}

}  // namespace

Seal::Seal(const std::optional<CurveKeys>& keys) {
  static_assert(crypto_auth_KEYBYTES == 32 && crypto_generichash_BYTES == 32);
  check(sodium_init() >= 0, "libsodium cannot be used");
  if (!keys) return;
  // A key of its own, from which nobody can tell the pair's secret key.
  crypto_generichash(key_.data(), key_.size(), bytes_of(kPurpose), kPurpose.size(),
                     bytes_of(keys->secret_key), keys->secret_key.size());
}

std::string Seal::seal(const std::string& name, const std::string& text) const {
  const std::string covered = named(name, text);
  std::string mac(kMacBytes, '\0');
  crypto_auth(reinterpret_cast<unsigned char*>(mac.data()), bytes_of(covered), covered.size(),
              key_.data());
  return mac + text;
}

std::optional<std::string> Seal::open(const std::string& name, const std::string& sealed) const {
  if (sealed.size() < kMacBytes) return {};
  const std::string covered = named(name, std::string_view(sealed).substr(kMacBytes));
  if (crypto_auth_verify(bytes_of(sealed), bytes_of(covered), covered.size(), key_.data()) != 0)
    return {};
  return sealed.substr(kMacBytes);
}

}  // namespace ladder
