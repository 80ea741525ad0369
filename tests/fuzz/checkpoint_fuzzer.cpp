// The first byte selects a file of a valid checkpoint; the others replace its content.
#include <fstream>

#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/small_checkpoint.hpp"

namespace {

void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const ladder::TempFolder folder;
  static const std::filesystem::path checkpoint = ladder::save_small_checkpoint(folder.path());
  if (size == 0) return 0;
  const std::filesystem::path path =
      checkpoint / ladder::kCheckpointFiles[bytes[0] % ladder::kCheckpointFiles.size()];
  const std::string good = ladder::read_text_file(path);
  write_bytes(path, std::string(reinterpret_cast<const char*>(bytes) + 1, size - 1));
  ladder::TrainState state = ladder::small_state();
  ladder::reads_or_refuses([&] {
    const ladder::LoadedCheckpoint loaded = ladder::load_checkpoint(checkpoint, state);
    ladder::must_hold(loaded.step >= 0 && state.optimizer_steps >= 0 && state.data.epoch >= 0 &&
                      state.data.samples >= 0 && loaded.config.is_object());
  });
  ladder::reads_or_refuses([&] { ladder::load_parameters(checkpoint, state); });
  write_bytes(path, good);
  return 0;
}
