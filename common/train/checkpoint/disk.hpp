// Files and folders of a run, written so that they survive a power failure: when a function here
// returns, what it made is on disk, and so is the entry in the folder above.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ladder {

// Throws CheckError with the name and the reason.
std::string read_text_file(const std::string& path);

// The same for a file of others: it must be an ordinary one of at most so many bytes.
std::string read_text_file(const std::string& path, std::uintmax_t most_bytes);

// Writes the file under another name, flushes it and renames it into place: after a crash a reader
// finds the old file or the new one. Throws CheckError with the name and the reason.
void write_text_file(const std::string& path, const std::string& text);

// Makes the folder and any missing folders above it. Throws CheckError with the name and the
// reason.
void make_folders(const std::filesystem::path& folder);

// Copies a file; `to` must not exist. Throws CheckError with the name and the reason.
void copy_file_to_disk(const std::filesystem::path& from, const std::filesystem::path& to);

// Renames, within one file system. Throws CheckError with both names and the reason.
void rename_on_disk(const std::filesystem::path& from, const std::filesystem::path& to);

// Flushes a file, or the entries of a folder. Throws CheckError with the name and the reason.
void sync_to_disk(const std::string& path);

// The absolute path without links, dots or a trailing slash, so that it has a name and can be
// compared. The path need not exist.
std::filesystem::path plain_path(const std::filesystem::path& path);

// True for paths inside the folder and for the folder itself. Neither need exist.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace ladder
