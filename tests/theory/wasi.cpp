// What the libc++ of zig lacks for wasm32-wasi (scripts/theory_to_wasm):
//
//   exceptions    what is thrown ends the program with its message, as main() would; nothing is caught
//   file streams  that of --config, of which a page has none
//
// So a page asks one question per instance: after an error, an instance is no longer of use.
#ifdef __wasi__
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <typeinfo>

#include "common/core/check.hpp"

extern "C" void* __cxa_allocate_exception(std::size_t size) noexcept {
  return std::malloc(size);
}

extern "C" void __cxa_free_exception(void* thrown) noexcept {
  std::free(thrown);
}

extern "C" [[noreturn]] void __cxa_throw(void* thrown, std::type_info* type, void (*)(void*)) {
  const bool is_usage = *type == typeid(ladder::UsageError);
  const bool is_known = is_usage || *type == typeid(ladder::CheckError);
  std::fprintf(stderr, "error: %s\n",
               is_known ? static_cast<std::runtime_error*>(thrown)->what() : type->name());
  std::exit(is_usage ? 2 : 1);
}

template class std::basic_filebuf<char>;
template class std::basic_ifstream<char>;

_LIBCPP_BEGIN_NAMESPACE_FILESYSTEM
file_status __status(const path& /*path*/, error_code* error) {
  if (error != nullptr) error->clear();
  return file_status(file_type::not_found);
}
_LIBCPP_END_NAMESPACE_FILESYSTEM
#endif
