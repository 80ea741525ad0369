// Paths that options name, in a form that can be compared.
#pragma once

#include <filesystem>

namespace ladder {

// Absolute, and without links, dots or a slash at the end. The path need not exist.
std::filesystem::path normalized(const std::filesystem::path& path);

// Whether `path` is the folder itself or lies below it.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace ladder
