// Argument structs: sampling. See abi.h.
#pragma once

// ---- sample.hip ------------------------------------------------------------------------------------------------
struct SampleCount {
  u32              id;
  u32              count;            // how often it was generated; 0: it is in the prompt alone
};
struct SampleBias {
  u32              id;
  float            bias;
};
// How one row's id is chosen: engine/sampler.rs SamplingParams, with what the row's answer has so far.
struct SampleParams {
  PTR(const SampleCount) history;    // [history_count], every id once
  PTR(const SampleBias) bias;        // [bias_count], every id once
  PTR(const u32)   mask;             // [vocabulary / 32], rounded up: bit id % 32 of word id / 32 allows it; null: all
  u64              seed;
  u64              step;             // counts the row's draws
  u32              history_count;
  u32              bias_count;
  float            temperature;      // 0: the greatest logit, whatever the filters
  u32              top_k;            // 0: all
  float            top_p;            // 1: all
  float            min_p;            // 0: all
  float            repetition_penalty;  // 1: off
  float            presence_penalty;
  float            frequency_penalty;
  u32              top_count;        // most likely ids wanted with their log-probabilities, at most 20
};
struct SampleResult {
  u32              id;               // the chosen one; of a row with a NaN the first such id
  u32              status;           // 0: chosen, 1: a logit is not a number, 2: every logit is minus infinity
};
// Groups of 256 consecutive ids; a key orders numbers as an integer (sample.h).
struct SampleAdjustArgs {
  PTR(float)       adjusted;         // [rows, vocabulary]
  PTR(u32)         adjusted_maxima;  // [rows, groups], greatest key
  PTR(u32)         maxima;           // [rows, groups], greatest key of the logits as they are
  PTR(float)       sums;             // [rows, groups], sum of exp(logit - greatest of the group)
  PTR(const float) logits;           // [rows, vocabulary]
  PTR(const SampleParams) params;    // [rows]; null: maxima and sums only
  u32              vocabulary;       // a multiple of 4, at most 262,144
  u32              unused;
};
struct SampleDrawArgs {
  PTR(SampleResult) results;         // [rows]
  PTR(const float) logits;           // [rows, vocabulary], adjusted
  PTR(const u32)   maxima;           // [rows, groups] of them
  PTR(const SampleParams) params;    // [rows]; not read by sample_argmax
  u32              vocabulary;
  u32              unused;
};
struct SampleLogprobsArgs {
  PTR(float)       chosen;           // [rows]
  PTR(u32)         top_ids;          // [rows, 20], the first min(top_count, vocabulary) are written
  PTR(float)       top;              // [rows, 20], alike
  PTR(const SampleResult) results;   // [rows]
  PTR(const float) logits;           // [rows, vocabulary], as they are
  PTR(const u32)   maxima;           // [rows, groups] of them
  PTR(const float) sums;             // [rows, groups]
  PTR(const SampleParams) params;    // [rows]
  u32              vocabulary;
  u32              unused;
};
