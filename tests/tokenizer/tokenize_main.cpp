// What Ladder's tokenizer makes of texts, for scripts/check_tokenizer. All numbers are uint32.
//
//   tokenize PATH                       texts on stdin (size, bytes); ids on stdout (count, ids), and
//                                       the text that they decode to (size, bytes)
//   tokenize PATH --seconds FILE.txt    how many tokens the file has, and the CPU time of counting
//   tokenize --corpus                   the documents of the built-in corpus, each with a 0 after it
#include <cstdio>
#include <ctime>
#include <vector>

#include "common/core/check.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/corpus/corpus.hpp"
#include "common/data/mapped_file.hpp"

namespace ladder {
namespace {

template <class List>
void write(const List& list) {
  const auto count = static_cast<std::uint32_t>(list.size());
  std::fwrite(&count, sizeof count, 1, stdout);
  std::fwrite(list.data(), sizeof(list[0]), list.size(), stdout);
}

void encode_stdin(Tokenizer& tokenizer) {
  std::uint32_t size = 0;
  while (std::fread(&size, sizeof size, 1, stdin) == 1) {
    std::string text(size, '\0');
    check(std::fread(text.data(), 1, size, stdin) == size, "stdin ends within a text");
    const std::vector<std::uint32_t> ids = tokenizer.encode(text).ids();
    write(ids);
    write(tokenizer.decode(ids));
  }
}

void time_file(const std::string& path, Tokenizer& tokenizer) {
  const MappedFile file(path);
  const std::clock_t start = std::clock();
  const std::int64_t num_tokens = tokenizer.encode(file.bytes()).size();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%lld %.6f\n", static_cast<long long>(num_tokens), seconds);
}

int run(const std::vector<std::string>& arguments) {
  check(arguments.size() == 1 || arguments.size() == 3,
        "usage: tokenize PATH [--seconds FILE.txt], or tokenize --corpus");
  if (arguments[0] == "--corpus") {
    for (const SqlDocument& document : corpus_documents(CorpusSplit::kTraining))
      std::printf("%s%c", document.text().c_str(), 0);
    return 0;
  }
  BpeTokenizer tokenizer(arguments[0]);
  if (arguments.size() == 1) {
    encode_stdin(tokenizer);
  } else {
    time_file(arguments[2], tokenizer);
  }
  return 0;
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  try {
    return ladder::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
