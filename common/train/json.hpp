// JSON as Ladder reads and writes it: doubles come back to the same bits, what is not finite is
// null, a file with a key twice is refused.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ladder {

// Keys keep the order in which they are written.
using Json = nlohmann::ordered_json;

// Throws CheckError with `origin` (a file's name) and the place of the fault.
Json parse_json(const std::string& text, const std::string& origin);

// As text, on one line or indented. Bytes that are not UTF-8 (a sample of a byte model may hold
// some) become U+FFFD.
std::string to_text(const Json& json, int indent = -1);

// Throws CheckError with the name and the reason.
std::string read_text_file(const std::string& path);

// Writes the file, flushes it to the disk and renames it into place: a reader sees the old file or
// the new one.
void write_text_file(const std::string& path, const std::string& text);

// Flushes a file, or the entries of a folder, to the disk.
void sync_to_disk(const std::string& path);

}  // namespace ladder
