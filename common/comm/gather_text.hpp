// Text between ranks: reports, options.
#pragma once

#include <string>
#include <vector>

#include "common/comm/communicator.hpp"

namespace ladder {

// Every rank's text, on every rank, in rank order. Collective, blocking.
std::vector<std::string> all_gather_text(const std::string& text, Communicator& comm);

}  // namespace ladder
