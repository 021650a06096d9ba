/* Sentence embeddings from C: loads a compiled sentence encoder and prints one embedding per line.
 *   cc -I include examples/c/embed.c -o embed -ldl
 *   echo "2 4   101 7592 102 0   101 2204 2154 102   1 1 1 0   1 1 1 1" | ./embed model.so
 * stdin: the batch size and the length, then token ids, then the attention mask. */
#include <dlfcn.h>
#include <ingot/ingot.h>
#include <stdio.h>
#include <stdlib.h>

static ingot_tensor read_ids(int64_t batch, int64_t length) {
  ingot_tensor t = {.dtype = INGOT_I64, .rank = 2, .dims = {batch, length}};
  t.bytes = (size_t)(batch * length) * sizeof(int64_t);
  t.data = malloc(t.bytes);
  for (int64_t i = 0; i < batch * length; i++) {
    long long id = 0;
    if (scanf("%lld", &id) != 1) exit((fprintf(stderr, "too few numbers on stdin\n"), 2));
    ((int64_t*)t.data)[i] = id;
  }
  return t;
}

int main(int argc, char** argv) {
  void* lib = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!lib) return fprintf(stderr, "usage: embed ./model.so < ids (%s)\n", argc == 2 ? dlerror() : "one argument"), 2;
  ingot_create_fn create = (ingot_create_fn)dlsym(lib, "ingot_create");
  ingot_run_fn run = (ingot_run_fn)dlsym(lib, "ingot_run");
  ingot_release_fn release = (ingot_release_fn)dlsym(lib, "ingot_release");
  ingot_destroy_fn destroy = (ingot_destroy_fn)dlsym(lib, "ingot_destroy");
  ingot_error_fn error = (ingot_error_fn)dlsym(lib, "ingot_error");

  long long batch = 0, length = 0;
  if (scanf("%lld %lld", &batch, &length) != 2 || batch < 1 || length < 1 || batch > 4096 || length > 4096)
    return fprintf(stderr, "stdin starts with the batch size and the length\n"), 2;
  ingot_tensor inputs[2] = {read_ids(batch, length), read_ids(batch, length)};
  ingot_tensor embedding = {0}; /* data is NULL: the library allocates it */

  ingot_model* model;
  if (create(0, &model) != INGOT_OK || run(model, inputs, 2, &embedding, 1) != INGOT_OK)
    return fprintf(stderr, "%s\n", error()), 1;
  for (int64_t row = 0; row < embedding.dims[0]; row++) {
    const float* e = (const float*)embedding.data + row * embedding.dims[1];
    for (int64_t i = 0; i < embedding.dims[1]; i++) printf("%.9g%c", e[i], i + 1 == embedding.dims[1] ? '\n' : ' ');
  }
  release(&embedding);
  destroy(model);
  free(inputs[0].data);
  free(inputs[1].data);
  return dlclose(lib);
}
