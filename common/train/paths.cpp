#include "common/train/paths.hpp"

namespace ladder {

namespace fs = std::filesystem;

fs::path normalized(const fs::path& path) {
  const fs::path canonical = fs::weakly_canonical(fs::absolute(path));
  return canonical.has_filename() ? canonical : canonical.parent_path();
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path relative = normalized(path).lexically_relative(normalized(folder));
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace ladder
