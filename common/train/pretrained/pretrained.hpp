// The start of a run from a model that there is already.
//
//   --init-from FOLDER      a Hugging Face folder: config.json, and weights as .safetensors
//   --init-from FILE.bin    llm.c's checkpoint of a GPT-2
//   --init-from RUN         a checkpoint of ours, which checkpoint.hpp reads; here, only its shape
//
// The model's shape comes from there, so the options of the shape need not be given; those that are
// given must agree. All ranks read the files, each for itself, and keep their part. Table of what
// is read and what is refused: docs/hugging_face.md.
#pragma once

#include <string>

#include "common/train/checkpoint/state_tensors.hpp"
#include "common/train/options/options.hpp"

namespace ladder {

// Whether --init-from names a model of another program. False if it names nothing at all.
bool starts_from_pretrained(const TrainOptions& options);
// Whether it names any of these.
bool starts_with_shape(const TrainOptions& options);

// Throws if --init-from names nothing that a run can start from, so that no other option is asked
// for what it would have told: UsageError if it does not exist, or if it has no tokenizer and the
// data are text that nobody says how to read; CheckError if it holds no model.
void check_start(const TrainOptions& options);

// Takes the model's shape from what --init-from names. The context is --context; else that of our
// run, or the longest of a GPT-2, whose positions are learned. Throws UsageError if an option was
// given that contradicts it, or if the data have more token ids than the model; CheckError naming
// the file, if that is damaged or its model is none of ours.
void take_shape(TrainOptions& options);

// Reads the parameters, one at a time; of a longer context only the first positions. Checks first,
// before any tensor changes, that all are there, in their shapes, and no others. Throws CheckError
// naming file and tensor. Returns the hash that they would have in a checkpoint.
std::string load_pretrained(const TrainOptions& options, const StateTensors& parameters);

// Where the run starts, for the console: "models/smol, a Hugging Face folder (llama)".
std::string describe_pretrained(const TrainOptions& options);

}  // namespace ladder
