#include "common/train/json.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "common/core/check.hpp"

namespace ladder {

Json parse_json(const std::string& text, const std::string& origin) {
  std::vector<std::set<std::string>> open_objects;
  const auto refuse_duplicates = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto key = value.get<std::string>();
      check(open_objects.back().insert(key).second, origin, ": the key \"", key, "\" occurs twice");
    }
    return true;
  };
  try {
    return Json::parse(text, refuse_duplicates);
  } catch (const Json::exception& error) {
    throw CheckError(concat(origin, ": not valid JSON: ", error.what()));
  }
}

std::string to_text(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  check(file.good(), path, ": cannot be opened: ", std::strerror(errno));
  text << file.rdbuf();
  check(!file.bad(), path, ": cannot be read: ", std::strerror(errno));
  return text.str();
}

void write_text_file(const std::string& path, const std::string& text) {
  const std::string partial = path + ".partial";
  {
    std::ofstream file(partial, std::ios::binary);
    file << text;
    file.flush();
    check(file.good(), partial, ": cannot be written: ", std::strerror(errno));
  }
  sync_to_disk(partial);
  std::filesystem::rename(partial, path);
}

void sync_to_disk(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(descriptor >= 0, path, ": cannot be opened: ", std::strerror(errno));
  const int failed = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  check(failed == 0, path, ": cannot be flushed to the disk: ", std::strerror(reason));
}

}  // namespace ladder
