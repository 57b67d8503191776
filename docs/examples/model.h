/* SPDX-License-Identifier: Apache-2.0
 *
 * What the trainings of docs/examples learn: the mean of a few words' embeddings goes through a
 * hidden layer of tanh to one number, which is to be that of the words. No libparallax in it; C and
 * C++. The same in Python: bindings/python/examples/model.py. */
#ifndef PARALLAX_DOCS_EXAMPLES_MODEL_H_
#define PARALLAX_DOCS_EXAMPLES_MODEL_H_

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  kWords = 64,
  kWidth = 8,
  kHidden = 16,
  kBag = 4,    /* words of a sample */
  kBatch = 16, /* samples of a step, of all ranks together */
  kSteps = 40,
  kNumbers = kBatch * kBag * kWidth /* that any variable, or what a batch uses of it, has at most */
};
static const float kRate = 0.5f;
static const float kInitial = 0.5f; /* initial values lie from -kInitial to kInitial */

enum { kEmbedding, kWeights, kBias, kOutput, kVariables };
static const struct {
  const char* name;
  uint32_t rows, row_elements;
  uint32_t rows_max; /* rows that a batch touches; 0: all */
} kVariable[kVariables] = {{"embedding", kWords, kWidth, kWords},
                           {"weights", kWidth, kHidden, 0},
                           {"bias", 1, kHidden, 0},
                           {"output", kHidden, 1, 0}};

/* The words of a sample, and the number it is to give. Returns that. */
static inline float sample_of(int step, int sample, int64_t words[kBag]) {
  float wanted = 0;
  for (int i = 0; i < kBag; ++i) {
    const uint32_t number = (uint32_t)((step * kBatch + sample) * kBag + i);
    words[i] = (number * 2654435761u >> 8) % kWords;
    wanted += (float)(words[i] % 3 - 1) / (float)kBag;
  }
  return wanted;
}

/* An initial value as the library makes them, where a framework holds the variable: UNIFORM of
 * parallax.h, with the variable's number as seed. */
static inline float initial(uint64_t seed, uint64_t row, uint64_t column) {
  uint64_t z = seed + 0x9e3779b97f4a7c15u * (row + 1);
  for (int i = 0; i < 2; ++i) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z = (z ^ z >> 31) + (i == 0 ? column : 0);
  }
  return -kInitial + 2 * kInitial * ((float)(z >> 40) * 0x1p-24f);
}

/* Values and gradients of each variable; of the embedding, kBag rows a sample. */
typedef struct model {
  float values[kVariables][kNumbers];
  float gradients[kVariables][kNumbers];
} model;

/* Gradients of `count` samples, each weighing 1 / kBatch. Returns their loss. */
static inline float learn(model* m, const float* wanted, int count) {
  const float *weights = m->values[kWeights], *output = m->values[kOutput];
  float loss = 0;
  memset(m->gradients, 0, sizeof m->gradients);
  for (int sample = 0; sample < count; ++sample) {
    const float* rows = m->values[kEmbedding] + sample * kBag * kWidth;
    float* rows_gradient = m->gradients[kEmbedding] + sample * kBag * kWidth;
    float mean[kWidth] = {0}, hidden[kHidden], given = 0;
    for (int i = 0; i < kBag * kWidth; ++i) mean[i % kWidth] += rows[i] / (float)kBag;
    for (int h = 0; h < kHidden; ++h) {
      hidden[h] = m->values[kBias][h];
      for (int k = 0; k < kWidth; ++k) hidden[h] += mean[k] * weights[k * kHidden + h];
      hidden[h] = tanhf(hidden[h]);
      given += hidden[h] * output[h];
    }
    const float miss = given - wanted[sample];
    loss += miss * miss / (float)kBatch;
    for (int h = 0; h < kHidden; ++h) {
      const float slope = 2 * miss / (float)kBatch * output[h] * (1 - hidden[h] * hidden[h]);
      m->gradients[kOutput][h] += 2 * miss / (float)kBatch * hidden[h];
      m->gradients[kBias][h] += slope;
      for (int k = 0; k < kWidth; ++k) {
        m->gradients[kWeights][k * kHidden + h] += slope * mean[k];
        for (int i = 0; i < kBag; ++i) {
          rows_gradient[i * kWidth + k] += slope * weights[k * kHidden + h] / (float)kBag;
        }
      }
    }
  }
  return loss;
}

/* Writes PATH.RANK, where a path is given: the losses and each variable, by name. */
static inline void save(const char* path, int rank, const float* losses,
                        float (*values)[kNumbers]) {
  char name[4096];
  snprintf(name, sizeof name, "%s.%d", path == NULL ? "" : path, rank);
  FILE* file = path == NULL ? NULL : fopen(name, "w");
  if (file == NULL) return;
  fprintf(file, "losses");
  for (int i = 0; i < kSteps; ++i) fprintf(file, " %.9g", (double)losses[i]);
  for (int i = 0; i < kVariables; ++i) {
    fprintf(file, "\n%s", kVariable[i].name);
    const uint32_t count = kVariable[i].rows * kVariable[i].row_elements;
    for (uint32_t k = 0; k < count; ++k) fprintf(file, " %.9g", (double)values[i][k]);
  }
  fprintf(file, "\n");
  fclose(file);
}

#endif /* PARALLAX_DOCS_EXAMPLES_MODEL_H_ */
