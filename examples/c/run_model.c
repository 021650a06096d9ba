/* Runs a model.so that has one float input, and prints its first output. Nothing of Ingot is needed but the header:
 *   cc -I include examples/c/run_model.c -o run_model -ldl && echo 1 2 3 4 5 6 7 8 | ./run_model ./model.so 2 4 */
#include <dlfcn.h>
#include <ingot/ingot.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  void* lib = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!lib) return fprintf(stderr, "usage: run_model MODEL.so DIM... < NUMBERS\n%s\n", argc > 1 ? dlerror() : ""), 2;
  ingot_create_fn create = (ingot_create_fn)dlsym(lib, "ingot_create");
  ingot_run_fn run = (ingot_run_fn)dlsym(lib, "ingot_run");
  ingot_error_fn error = (ingot_error_fn)dlsym(lib, "ingot_error");

  ingot_tensor in = {.dtype = INGOT_F32, .bytes = sizeof(float)}, out = {0};
  for (int i = 2; i < argc && in.rank < INGOT_MAX_RANK; i++)
    in.bytes *= (size_t)(in.dims[in.rank++] = strtoll(argv[i], NULL, 10));
  float* numbers = in.data = calloc(in.bytes + 1, 1);
  for (size_t i = 0; i < in.bytes / sizeof(float) && scanf("%f", &numbers[i]) == 1; i++) continue;

  ingot_model* model;
  if (create(0, &model) != INGOT_OK || run(model, &in, 1, &out, 1) != INGOT_OK)
    return fprintf(stderr, "%s\n", error()), 1;
  for (size_t i = 0; i < out.bytes / sizeof(float); i++) printf("%.9g\n", ((float*)out.data)[i]);
  ((ingot_release_fn)dlsym(lib, "ingot_release"))(&out);
  ((ingot_destroy_fn)dlsym(lib, "ingot_destroy"))(model);
  free(in.data);
  return 0;
}
