#include "common/train/report/report.hpp"

namespace ladder {

const std::string& own_answers() {
  static const std::string names = LADDER_OWN_ANSWERS;
  return names;
}

}  // namespace ladder
