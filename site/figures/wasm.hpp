// What a live figure's C++ exports to its page. Each figure includes this once, and defines
//
//   std::string answer_to(const std::string& request);   a query such as "stages=4&schedule=1f1b"; JSON
//
// wasm.js writes the request to the address that room_for() returns, calls answer(), and reads the
// text at the address that this returns, up to its zero.
//
// WebAssembly as zig compiles it can throw an exception, but not catch one. So a throw leaves its
// message where complaint() finds it, and ends the instance: wasm.js starts a fresh one and reports
// the message as an error.
#pragma once

#include <cstdlib>
#include <exception>
#include <string>
#include <typeinfo>

#include "common/core/check.hpp"

#define LADDER_EXPORT(name) extern "C" __attribute__((export_name(#name)))

std::string answer_to(const std::string& request);

namespace {
std::string request_, answer_, complaint_;
}

LADDER_EXPORT(room_for) char* room_for(std::size_t num_bytes) {
  request_.resize(num_bytes);
  return request_.data();
}
LADDER_EXPORT(answer) const char* answer() {
  answer_ = answer_to(request_);
  return answer_.c_str();
}
LADDER_EXPORT(complaint) const char* complaint() {
  return complaint_.c_str();
}

// The C++ ABI's names for the parts of a throw.
extern "C" void* __cxa_allocate_exception(std::size_t num_bytes) noexcept {
  return std::malloc(num_bytes);
}
extern "C" void __cxa_free_exception(void* thrown) noexcept {
  std::free(thrown);
}
extern "C" [[noreturn]] void __cxa_throw(void* thrown, std::type_info* type, void (*)(void*)) {
  const bool is_ours = *type == typeid(ladder::CheckError) || *type == typeid(ladder::UsageError);
  complaint_ = is_ours ? static_cast<std::runtime_error*>(thrown)->what() : type->name();
  __builtin_trap();
}
