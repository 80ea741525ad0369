// ./ladder ask: what a trained model answers to questions of the corpus that it has not seen.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "common/core/check.hpp"
#include "common/core/compute_threads.hpp"
#include "common/core/json.hpp"
#include "common/data/corpus/corpus.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/train/build_model.hpp"
#include "common/train/checkpoint/train_state.hpp"
#include "common/train/run_main.hpp"
#include "common/train/start.hpp"
#include "step9_diloco/text_to_sql/greedy_answers.hpp"

namespace {

using namespace ladder;

struct Asked {
  std::string run;
  std::string prompt;
  std::int64_t num_questions = 300;
};

// Those of the validation split, in its order. No training sees them.
std::vector<SqlDocument> unseen_documents(std::int64_t number) {
  std::vector<SqlDocument> documents = corpus_documents(CorpusSplit::kValidation);
  check_usage(number <= std::ssize(documents), "--questions is ", number, "; the corpus has ",
              documents.size(), " unseen ones");
  documents.resize(static_cast<std::size_t>(number));
  return documents;
}

// One line of JSON for each question.
void ask(const Asked& asked) {
  set_compute_threads(1);
  check_usage(std::filesystem::exists(asked.run), "there is no ", asked.run,
              ": name a run, a checkpoint, or a Hugging Face folder");
  TrainOptions options;
  options.output.init_from = asked.run;
  Start(asked.run).check_can_begin(options);
  finalize(options);
  FlatModel flat(layout_of(options));
  const Model model = build_model(options, flat);
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options.data);
  TrainState state;
  state.parameters = whole_tensors(flat.leaves());
  state.tokenizer = tokenizer->name();
  state.model = options.model;
  options.start->load(state, options.model.tie_embeddings);

  std::vector<SqlDocument> documents;
  if (asked.prompt.empty())
    documents = unseen_documents(asked.num_questions);
  else
    documents.push_back({.question = asked.prompt});
  std::vector<std::string> prompts;
  for (const SqlDocument& document : documents)
    prompts.push_back((asked.prompt.empty() ? document.prompt() : asked.prompt) + '\n');
  const std::vector<std::string> answers =
      greedy_answers([&](const at::Tensor& tokens) { return model.forward(tokens); }, *tokenizer,
                     prompts, {.context = options.model.context},
                     [&](std::size_t number) {
                       if (::isatty(STDERR_FILENO) == 0) return;
                       std::fprintf(stderr, "\r%zu of %zu questions%s", number, prompts.size(),
                                    number == prompts.size() ? "\r\033[K" : "");
                     });
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const Json line = {{"context", documents[i].context},
                       {"question", documents[i].question},
                       {"wanted", documents[i].answer},
                       {"answer", answers[i]}};
    std::printf("%s\n", to_text(line).c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  Asked asked;
  CLI::App app(
      "Asks a trained model questions in English, and prints one line of JSON for each: the "
      "question, the query that the corpus has for it, and the model's. ./ladder ask judges them.",
      "ladder_ask");
  app.add_option("RUN", asked.run, "a run, a checkpoint, or a Hugging Face folder")->required();
  app.add_option("--questions", asked.num_questions,
                 "how many of the corpus's, none of which is trained on")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--prompt", asked.prompt,
                 "instead, this text: CREATE TABLE …, a new line, and a question")
      ->type_name("TEXT");
  return run_command(app, argc, argv, [&] {
    ask(asked);
    return kExitDone;
  });
}
